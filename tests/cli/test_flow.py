"""`unembed flow`: a run of one's own, a preset with a text, and the comparison of three deep models."""

import pytest

from commands import run


def test_a_run_is_measured_on_its_own_held_out_text(trained):
    found = run("flow", trained, "--format", "json").json
    assert found["flow"]["layer"] == list(range(len(found["flow"]["layer"])))
    assert min(found["flow"]["stream_grad_norm"]) > 0
    assert found["reaches_first"] == pytest.approx(
        found["flow"]["stream_grad_norm"][0] / found["flow"]["stream_grad_norm"][-1]
    )


def test_a_text_beside_a_checkpoint_is_read_instead(trained, text_file):
    (checkpoint,) = trained.glob("checkpoints/step-000006")
    own, named = run("flow", checkpoint, "--format", "json"), run("flow", trained, text_file, "--format", "json")
    assert own.json["flow"]["layer"] == named.json["flow"]["layer"]
    assert own.json == run("flow", trained, "--format", "json").json


def test_the_comparison_speaks_the_language_and_tells_its_progress():
    done = run("flow", "--compare", "--layers", "1", "--steps", "50", "--lang", "es")
    assert done.code == 0, done
    assert "atajo, norma antes" in done.out
    assert "post_norm: step 50, loss" in done.err
