"""`unembed tune-lens` and `unembed calibration`, as a user calls them."""

import subprocess

import pytest

from commands import command, environment, run

QUICK = ("--steps", "3", "--rows", "32", "--start-tokens", "300", "--held-out-tokens", "60")


@pytest.fixture(scope="module")
def lens(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("lenses") / "lens.safetensors"
    done = run("tune-lens", trained, "--out", path, *QUICK, "--format", "json")
    assert done.code == 0, done
    return path, done


def test_a_runs_own_text_is_enough(lens):
    path, done = lens
    assert done.json["written"] == str(path)
    assert set(done.json["layers"]) == {
        "lens", "layer", "kl_to_final_nats", "loss_nats", "right_share", "confidence_share", "calibration_error",
        "agreement_share",
    }  # fmt: skip
    assert done.json["middle_kl_tuned_nats"] < done.json["middle_kl_logit_nats"]
    assert "step 3/3 · mean divergence" in done.err


def test_calibration_shows_both_lenses_side_by_side(lens, trained):
    path, _ = lens
    found = run("calibration", trained, "--tuned", path, "--tokens", "60", "--format", "json").json
    assert set(found["layers"]["lens"]) == {"logit", "tuned"}
    assert "ideal" in found["curves"]["layer"]
    shown = run("calibration", trained, "--tokens", "60", "--lang", "ko")
    assert "로짓 렌즈" in shown.out
    assert "보정 오차" in shown.out


def test_a_checkpoint_before_is_another_model(lens, trained):
    path, _ = lens
    done = run("calibration", trained / "checkpoints" / "step-000000", "--tuned", path)
    assert done.code == 3
    assert "was tuned for a model with other weights" in done.err


def test_a_finished_lens_is_reported_when_resumed_and_refused_when_not(lens, trained):
    path, done = lens
    again = run("tune-lens", trained, "--out", path, *QUICK, "--resume", "--format", "json")
    assert again.json["layers"] == done.json["layers"]
    assert "the lens is finished already" in again.err
    assert run("tune-lens", trained, "--out", path, *QUICK).code == 3


def test_a_text_is_read_through_the_lens_and_a_note_says_so(lens, trained):
    path, _ = lens
    plain = run("lens", trained, "to be", "--format", "json").json
    tuned = run("lens", trained, "to be", "--tuned", path, "--format", "json").json
    assert tuned["kl_to_final_nats"][0] != plain["kl_to_final_nats"][0]
    assert tuned["entropy_nats"][-1] == pytest.approx(plain["entropy_nats"][-1], abs=1e-6)
    shown = run("lens", trained, "to be", "--tuned", path, "--lang", "es")
    assert "a través de un traductor" in shown.err
    refused = run("lens", trained, "to be", "--tuned", path, "--after-attention")
    assert refused.code == 2
    assert "a tuned lens has translators after whole blocks alone" in refused.err


def test_a_text_is_followed_over_training_layer_by_layer(trained):
    found = run("lens", trained, "to be", "--over-training", "--format", "json").json["by_layer"]
    alone = run("lens", trained, "to be", "--format", "json").json
    n = len(alone["layers"])
    assert found["layer"][-n:] == alone["layers"]
    means = [sum(row) / len(row) for row in alone["kl_to_final_nats"]]
    assert found["kl_to_final_nats"][-n:] == pytest.approx(means)
    assert found["step"][0] == 0


@pytest.mark.slow
def test_sigkill_at_any_instant_costs_no_bit(tmp_path, text_file, trained):
    """Processes of their own, killed after longer and longer waits until one comes through."""
    arguments = ("tune-lens", trained, text_file, "--steps", "40", "--rows", "64", "--start-tokens", "500", "--quiet")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(*arguments, "--out", whole), env=environment(), check=True, capture_output=True)
    wait, n_killed = 1.0, 0
    while not killed.exists():
        child = subprocess.Popen(command(*arguments, "--out", killed, "--resume"), env=environment())
        try:
            assert child.wait(timeout=wait) == 0
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            n_killed += 1
        wait *= 1.2
        assert n_killed < 60
    assert n_killed > 0
    assert killed.read_bytes() == whole.read_bytes()


def test_calibration_shows_people_a_row_a_layer_and_programs_all(trained):
    shown = run("calibration", trained, "--tokens", "60")
    rows = [line.split() for line in shown.out.splitlines() if line.startswith("logit ")]
    layers = run("calibration", trained, "--tokens", "60", "--format", "json").json["layers"]["layer"]
    assert [row[1] for row in rows] == [str(layer) for layer in layers]
    assert "calibration_error" in shown.out
    assert "curves" not in shown.out
    assert "reliability" not in shown.out
