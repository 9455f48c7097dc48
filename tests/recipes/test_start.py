"""A start that comes to nothing leaves nothing; what is no text is refused; a run is not trained on foreign ids."""

import json
import math
import os
import signal

import pytest

from unembed.checkpoints.load import open_run
from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.reading import Reading
from unembed.corpora.text import find_files
from unembed.errors import CorpusError, Interrupted, RunError, UsageError
from unembed.recipes.small import prepare as prepare_small
from unembed.recipes.start import train
from unembed.training.config import parse_setting
from unembed.views.progress import loss
from unembed.views.run import RunView

FEW = {"steps": 2, "context_length": 8, "batch_size": 2, "eval_every": 2}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 20)
    return path


def begin(text, out, **settings):
    return train([text], recipe_name="nanogpt-cpu", out=out, settings={**FEW, **settings})


@pytest.mark.parametrize("was_there", [False, True])
def test_a_start_that_fails_on_its_data_leaves_the_folder_free(text, tmp_path, was_there):
    out = tmp_path / "run"
    if was_there:
        out.mkdir()
    with pytest.raises(CorpusError, match="a window of context_length 5000 needs 5001"):
        begin(text, out, context_length=5000)
    assert out.exists() == was_there
    assert begin(text, out).step == 2


def test_a_validation_split_with_nothing_to_predict_is_refused_before_the_run(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("abcdefgh")
    with pytest.raises(CorpusError, match=r"val split: .* nothing to predict"):
        begin(short, tmp_path / "run", context_length=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_pipes_are_refused_by_name_and_left_out_of_folders(text, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(CorpusError, match=r"pipe\.txt: is no regular file"):
        find_files(tmp_path / "pipe.txt")
    assert find_files(tmp_path) == (text,)


def test_a_foreign_tokenizer_stops_a_resume(text, tmp_path):
    out = tmp_path / "run"
    begin(text, out)
    file = out / "tokenizer.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "characters": values["characters"] + "Z"}))
    with pytest.raises(RunError, match="is not the tokenizer that made the ids"):
        train(recipe_name="nanogpt-cpu", out=out, resume=True, settings={"steps": 3})


def test_fewer_steps_than_are_done_report_the_run_and_change_nothing(text, tmp_path):
    out = tmp_path / "run"
    begin(text, out)
    before, said = (out / "run.json").read_bytes(), []
    outcome = train(recipe_name="nanogpt-cpu", out=out, resume=True, settings={"steps": 1}, say=said.append)
    assert (outcome.step, (out / "run.json").read_bytes()) == (2, before)
    assert "the run is finished at step 2" in said


@pytest.mark.parametrize("key", ["settings", "data", "floors", "versions"])
def test_an_edited_description_is_refused_by_key(text, tmp_path, key):
    out = tmp_path / "run"
    begin(text, out)
    run = RunFolder.open(out)
    run.write_description({**run.description, key: [1]})
    run.close()
    with pytest.raises(RunError, match=rf"run.json: {key} is \[1\], expected an object"):
        open_run(out)


def test_an_edited_log_is_refused_by_record(text, tmp_path):
    out = tmp_path / "run"
    begin(text, out)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9}\n')
    with pytest.raises(RunError, match=r"record \d+ has no loss_nats, seconds, split, tokens"):
        loss(RunView.open(out))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init.std": -1.0}, "setting init.std is -1.0; it must be above 0"),
        ({"init.std": float("nan")}, "setting init.std is nan"),
        ({"accumulate": 10**12}, "setting accumulate is 1000000000000; it must be at least 1 and at most"),
        ({"steps": 2**63}, "setting steps is"),
        ({"training": 3}, "setting training is a group; set one of its fields, such as training.steps"),
    ],
)
def test_message_for_settings_that_cannot_be(text, tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        begin(text, tmp_path / "run", **settings)


def test_message_for_an_endless_budget_and_a_nest_of_brackets(text):
    with pytest.raises(UsageError, match=r"setting minutes is 1e[+]300; it must be a number above 0"):
        prepare_small([str(text)], Reading(), {"minutes": 1e300})
    assert parse_setting("seed=" + "[" * 100_000)[0] == "seed"


def test_how_text_is_read_may_be_set_like_anything_else(text, tmp_path):
    text.write_bytes(text.read_bytes() + b"\r\n\xe9")
    with pytest.raises(CorpusError, match=r"text.txt, byte 822 \(0xe9\): .* train --set invalid_bytes=skip"):
        begin(text, tmp_path / "run")
    said: list[str] = []
    settings = {**FEW, "invalid_bytes": "skip", "newlines": "lf"}
    train([text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=settings, say=said.append)
    assert any("1 byte is no UTF-8 and was skipped, the first at" in note for note in said)
    noted = open_run(tmp_path / "run").description
    assert noted["data"]["reading"] == {"newlines": "lf", "invalid_bytes": "skip", "column": None}
    again: list[str] = []
    train(recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=settings, resume=True, say=again.append)
    assert "the run is finished at step 2" in again
    assert not any("stay as they were" in note for note in again)
    other = {**settings, "newlines": "keep"}
    train(recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=other, resume=True, say=again.append)
    assert any("column, newlines and invalid_bytes stay as they were" in note for note in again)
    with pytest.raises(UsageError, match=r"settings newlines=mac: .*There are: newlines keep or lf"):
        begin(text, tmp_path / "other", newlines="mac")


def test_bits_per_byte_stand_beside_the_loss(text, tmp_path):
    text.write_text("año " * 200)
    outcome = begin(text, tmp_path / "run")
    # the last tenth is 80 tokens, a character each, and 100 bytes
    assert outcome.val_bits_per_byte == pytest.approx(outcome.val_loss_nats / math.log(2) * 80 / 100)


# --- what is announced ------------------------------------------------------------------------------------


def said_by(text, out, **settings):
    said = []
    train([text], recipe_name="nanogpt-cpu", out=out, settings=settings, resume=True, say=said.append)
    return said


SHORT = {"steps": 2, "batch_size": 2, "accumulate": 3, "context_length": 8, "eval_every": 2, "sample_every": 0}


def test_announced_steps_are_those_that_are_done(text, tmp_path):
    """From the settings and the data as they are in the end, not from the recipe's own plan."""
    said = said_by(text, tmp_path / "run", **SHORT)
    n_all = len(text.read_text())
    n_tokens = n_all * 9 // 10
    times = f"{2 * 48 / n_tokens:.2g} times the {n_tokens:,} tokens to learn from, of {n_all:,} (a tenth is held out)"
    assert f"training: 2 steps of 48 tokens, {times}" in said


def test_a_recipe_that_chose_the_steps_says_why_in_the_same_line(text, tmp_path):
    said = []
    settings = {"steps": 1, "sample_every": 0}
    train([text], recipe_name="small", out=tmp_path / "run", settings=settings, say=said.append)
    lines = [line for line in said if " steps of " in line]
    assert len(lines) == 1
    assert lines[0].startswith("training: 1 steps of ")
    assert lines[0].endswith("(a tenth is held out): as asked")


def test_another_total_is_said_to_change_the_schedule_where_it_does(text, tmp_path):
    """A cosine was under way, so the steps done had other rates; in the warm-up they would have had the same."""
    out, told = tmp_path / "run", "the learning rate's schedule now spans 3 steps instead of 2; the 2 steps done had"
    said_by(text, out, **SHORT, **{"training.schedule.warmup_steps": 0})
    more = {**SHORT, "training.schedule.warmup_steps": 0, "steps": 3}
    assert any(sentence.startswith(told) for sentence in said_by(text, out, **more))
    assert not any("schedule now spans" in sentence for sentence in said_by(text, out, **more))
    calm = tmp_path / "calm"
    said_by(text, calm, **SHORT, **{"training.schedule.warmup_steps": 5})
    again = said_by(text, calm, **{**SHORT, "training.schedule.warmup_steps": 5, "steps": 3})
    assert not any("schedule now spans" in sentence for sentence in again)
    assert "going on after step 2" in again


def test_a_total_that_only_lengthens_a_plateau_gives_the_very_run_that_was_begun_with_it(text, tmp_path):
    """The claim behind saying nothing: equal rates so far, so equal bits in the end."""
    plateau = {"type": "plateau", "peak": 1e-3, "floor": 0.0, "warmup_steps": 1, "decay_steps": 1}
    changes = {**SHORT, "training.schedule": plateau}
    with pytest.raises(Interrupted):
        train([text], recipe_name="nanogpt-cpu", out=tmp_path / "on", settings=changes, observers=[terminate_at_one])
    said = said_by(text, tmp_path / "on", **{**changes, "steps": 4})
    assert not any("schedule now spans" in sentence for sentence in said)
    said_by(text, tmp_path / "at once", **{**changes, "steps": 4})
    ours, theirs = (RunFolder.open(tmp_path / name).latest()[0].path for name in ("on", "at once"))
    assert (ours / "optimizer.safetensors").read_bytes() == (theirs / "optimizer.safetensors").read_bytes()


def terminate_at_one(trainer, record):
    if record["step"] == 0 and record["split"] == "val":
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupted_run_says_when_its_validation_loss_was_measured(text, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train([text], recipe_name="nanogpt-cpu", out=out, settings=SHORT, observers=[terminate_at_one])
    done = train([text], recipe_name="nanogpt-cpu", out=out, settings={"steps": 1}, resume=True)
    assert (done.step, done.val_step, done.best_step, done.stopped) == (1, 0, 0, "steps")
