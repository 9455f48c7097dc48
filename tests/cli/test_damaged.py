"""A damaged run is never taken for a sound one: every reader says what is damaged, also when it is to be quiet."""

import json
import os
import shutil

import pytest

import unembed
from commands import run
from unembed.errors import DamageWarning
from unembed.report import write

NEWEST = "step-000006"


def flip(path, at=-5):
    """Changes one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def own(here, trained):
    """A copy of the trained run that a test may damage."""
    return shutil.copytree(trained, here / "own")


@pytest.fixture
def cut(own):
    """A run whose newest checkpoint has one wrong byte in its weights."""
    flip(own / "checkpoints" / NEWEST / "model.safetensors")
    return own


@pytest.mark.parametrize(
    "words",
    [
        ("sample", "--prompt", "to", "--tokens", "2"),
        ("tie",),
        ("convert", "out", "--to", "hf"),
        ("report", "-o", "page.html"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_says_that_an_older_checkpoint_was_taken(cut, words, monkeypatch):
    monkeypatch.setattr(write, "ANALYSES", write.ANALYSES[:1])
    done = run(words[0], cut, *words[1:], "--quiet")
    assert done.code in (0, 3), done
    assert f"warning: {cut}: {NEWEST} is passed over: model.safetensors is not what was saved" in done.err
    assert done.err.count("warning") == 1


def test_a_sound_run_is_opened_without_a_warning(own):
    done = run("sample", own, "--prompt", "to", "--tokens", "2", "--quiet")
    assert (done.code, done.err) == (0, "")


def test_load_warns(cut):
    with pytest.warns(DamageWarning, match=f"{NEWEST} is passed over"):
        unembed.load(cut)


def test_verify_fails_and_names_the_step(cut):
    done = run("verify", cut, "--claim", "checkpoints", "--format", "json", "--quiet")
    assert done.code == 3
    claim = done.json["claims"][0]
    assert (claim["name"], claim["status"]) == ("checkpoints", "failed")
    assert f"{NEWEST} is passed over: model.safetensors" in claim["detail"]
    assert "the claims are about step-000003" in claim["detail"]


def test_verify_proves_the_checkpoints_of_a_sound_run(own):
    done = run("verify", own, "--claim", "checkpoints", "--format", "json")
    assert (done.code, done.json["claims"][0]["status"]) == (0, "proved")


def test_a_wrong_letter_in_the_settings_is_no_fault_of_ours(own):
    text = (own / "run.json").read_text()
    description = json.loads(text)
    kind = description["config"]["training"]["schedule"]["type"]
    description["config"]["training"]["schedule"]["type"] = kind + "x"
    (own / "run.json").write_text(json.dumps(description))
    done = run("verify", own, "--claim", "exact resume", "--format", "json")
    assert done.code == 3
    assert "holds no configuration of this version of unembed" in done.json["claims"][0]["detail"]


def edited(own):
    description = json.loads((own / "run.json").read_text())
    description["config"]["training"]["steps"] = -1
    (own / "run.json").write_text(json.dumps(description))


DAMAGES = {
    "data/train.bin": lambda own: flip(own / "data" / "train.bin"),
    "data/manifest.json": lambda own: flip(own / "data" / "manifest.json", 0),
    "metrics.jsonl: line 1": lambda own: flip(own / "metrics.jsonl", 0),
    "metrics.jsonl: is gone": lambda own: (own / "metrics.jsonl").unlink(),
    "run.json holds no configuration": edited,
}


@pytest.mark.parametrize("told", DAMAGES)
def test_inspect_tells_what_is_wrong_beside_the_checkpoints(own, told):
    DAMAGES[told](own)
    done = run("inspect", own, "--format", "json")
    assert done.code == 3
    assert [problem for problem in done.json["problems"] if told in problem], done.json["problems"]


def test_inspect_finds_nothing_wrong_with_a_sound_run(own):
    done = run("inspect", own, "--format", "json")
    assert (done.code, done.json["problems"]) == (0, [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("name", [f"checkpoints/{NEWEST}/model.safetensors", "data/manifest.json", "metrics.jsonl"])
def test_a_pipe_in_a_run_is_refused_and_not_waited_for(own, name):
    (own / name).unlink()
    os.mkfifo(own / name)
    done = run("inspect", own, "--format", "json")
    assert done.code == 3
    assert "is no regular file but a pipe" in "".join(done.json["problems"])


def test_a_resume_without_the_log_says_that_the_history_is_gone(own):
    (own / "metrics.jsonl").unlink()
    done = run("train", "--out", own, "--resume", "--steps", "7")
    assert done.code == 0, done
    assert "metrics.jsonl: is gone, and with it what was measured up to step 6" in done.err
