"""A run that is stopped, killed or damaged and goes on is the run that was never stopped, to the last bit.

The runs are real ones, by recipe and folder; those that are killed from outside are processes of their own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from small import run_config, tokens, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import OPTIMIZER, WEIGHTS
from unembed.corpora.windows import TokenSplit
from unembed.errors import CheckpointError, Interrupted, RunError
from unembed.recipes.start import train

TEXT = "El perro que corre por la calle no tiene hambre. La gata duerme.\n" * 40
SETTINGS = {
    "steps": 10,
    "batch_size": 2,
    "accumulate": 2,
    "dropout": 0.2,
    "context_length": 8,
    "eval_every": 5,
    "checkpoint_every": 5,
    "training.log_every": 1,
}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def straight(text, tmp_path_factory) -> Path:
    """The run that nobody stopped: ten steps with dropout and two micro-batches each."""
    out = tmp_path_factory.mktemp("straight") / "run"
    train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS)
    return out


def go_on(text, out, **more):
    said = []
    outcome = train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, resume=True, say=said.append, **more)
    return outcome, said


def stop_at(step, action):
    """An observer that does something once the record of a training step is made."""

    def observe(trainer, record):
        if (record["step"], record["split"]) == (step, "train"):
            action()

    return observe


def crash():
    raise RuntimeError("the power went")


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def metrics(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same(out, straight):
    """Weights and optimizer files equal byte by byte, metrics but for seconds, and no half-written thing left."""
    ours, theirs = (RunFolder.open(path).latest()[0] for path in (out, straight))
    assert ours.step == theirs.step
    for name in (WEIGHTS, OPTIMIZER):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes(), name
    assert metrics(out) == metrics(straight)
    assert [path.name for path in (out / "checkpoints").iterdir() if path.name.startswith(".")] == []


def spoil(out, steps):
    for step in steps:
        path = out / "checkpoints" / f"step-{step:06d}" / WEIGHTS
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)


# --- A30a: ten steps are five and five ---------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 5, 7, 10])
def test_crash_and_resume_equal_the_straight_run(step, text, straight, tmp_path):
    """The crash comes before the step is written: back to step 0, to 0, to 5, to 5."""
    out = tmp_path / "run"
    with pytest.raises(RuntimeError, match="the power went"):
        train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, observers=[stop_at(step, crash)])
    outcome, said = go_on(text, out)
    assert outcome.step == 10
    assert f"going on after step {0 if step <= 5 else 5}" in said
    assert_same(out, straight)


def test_crash_before_the_first_checkpoint_begins_again(text, straight, tmp_path):
    def at_once(trainer, record):
        crash()

    out = tmp_path / "run"
    with pytest.raises(RuntimeError):
        train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, observers=[at_once])
    go_on(text, out)
    assert_same(out, straight)


def test_stopped_twice_by_a_signal_equals_the_straight_run(text, straight, tmp_path):
    """The step in progress ends and is saved; where the checkpoints fall does not show in what comes out."""
    out = tmp_path / "run"
    with pytest.raises(
        Interrupted, match=r"stopped by SIGTERM after step 3, which is saved\.\nGo on with: unembed train --out"
    ):
        train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, observers=[stop_at(3, terminate)])
    assert [c.step for c in RunFolder.open(out).checkpoints()] == [0, 3]
    with pytest.raises(Interrupted, match="after step 8") as caught:
        go_on(text, out, observers=[stop_at(8, terminate)])
    assert caught.value.exit_code == 130
    outcome, said = go_on(text, out)
    assert "going on after step 8" in said
    assert outcome.tokens == 10 * 2 * 2 * 8
    assert_same(out, straight)


def test_second_sigint_stops_at_once(text, tmp_path):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # handlers run between two steps of the interpreter

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train([text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=SETTINGS, observers=[stop_at(2, twice)])
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_in_the_last_step_is_no_interruption(text, straight, tmp_path):
    out = tmp_path / "run"
    outcome = train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, observers=[stop_at(10, terminate)])
    assert outcome.step == 10
    assert_same(out, straight)


class Listening(TokenSplit):
    """A split that notes which batches are asked for."""

    def batch(self, seed, step, batch_size, context_length):
        self.__dict__.setdefault("asked", []).append(
            (step, super().batch(seed, step, batch_size, context_length)[0].tolist())
        )
        return super().batch(seed, step, batch_size, context_length)


def test_resumes_from_other_steps_begin_with_other_batches(tmp_path):
    """A30b: the first batch after step 5 is not the first after step 10, nor the first of all."""
    config, split = run_config(steps=15, keep_every=5), Listening("train", tokens(400).ids)
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer_of(config, run=run, train=split).run()
        straight = dict(split.asked)
        firsts = []
        for checkpoint in run.checkpoints():
            split.asked.clear()
            trainer = trainer_of(config, run=run, train=split)
            trainer.resume(checkpoint.weights(), checkpoint.optimizer(), checkpoint.state, "here")
            if trainer.step_number < 15:
                trainer.step()
                ((step, batch),) = split.asked
                assert step == checkpoint.step
                assert batch == straight[step]
                firsts.append(str(batch))
        assert len(firsts) == len(set(firsts)) == 3


# --- finished, absent, damaged ----------------------------------------------------------------------------


@pytest.fixture
def copied(straight, tmp_path) -> Path:
    return shutil.copytree(straight, tmp_path / "run")


def test_finished_run_is_reported_and_left_alone(text, straight, copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and not path.name.startswith(".")}
    outcome, said = go_on(text, copied)
    assert said[0] == "the run is finished at step 10"
    assert (outcome.step, outcome.tokens) == (10, 320)
    assert outcome.val_loss_nats == metrics(straight)[-1]["loss_nats"]
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and not path.name.startswith(".")}
    assert after == before


def test_resume_where_there_is_no_run_begins_one(text, straight, tmp_path):
    outcome, _ = go_on(text, tmp_path / "new")
    assert outcome.run == str((tmp_path / "new").resolve())
    assert_same(tmp_path / "new", straight)


def test_damaged_newest_checkpoint_is_passed_over_and_said(text, straight, copied):
    spoil(copied, [10])
    _, said = go_on(text, copied)
    assert said[0].startswith("step-000010 is passed over: model.safetensors is not what was saved")
    assert said[1:3] == ["going back to step-000005", "going on after step 5"]
    assert_same(copied, straight)


def test_run_whose_checkpoints_are_all_damaged_begins_again_and_says_so(text, straight, copied):
    spoil(copied, [0, 5, 10])
    _, said = go_on(text, copied)
    assert [sentence.partition(" is passed")[0] for sentence in said[:3]] == [
        "step-000010",
        "step-000005",
        "step-000000",
    ]
    assert said[3] == "none of the checkpoints is complete"
    assert_same(copied, straight)


def test_run_in_the_way_is_refused_without_resume(text, straight):
    with pytest.raises(RunError, match=r"holds a run already. Go on with it by --resume"):
        train([text], recipe_name="nanogpt-cpu", out=straight, settings=SETTINGS)


def test_more_steps_go_on_and_stand_in_the_description(text, copied):
    said = []
    more = {**SETTINGS, "steps": 12}
    outcome = train([text], recipe_name="nanogpt-cpu", out=copied, settings=more, resume=True, say=said.append)
    assert "the settings differ from the run's own; the new ones hold from here on" in said
    assert (outcome.step, RunFolder.open(copied).description["config"]["training"]["steps"]) == (12, 12)
    assert [r["step"] for r in metrics(copied) if r["split"] == "train"] == list(range(1, 13))
    again, said = go_on(text, copied)  # the command that began the run asks for ten: they are done
    assert again.step == 12
    assert RunFolder.open(copied).description["config"]["training"]["steps"] == 12
    assert "the run is finished at step 12" in said


@pytest.mark.parametrize("change", [{"seed": 2}, {"tied": False}, {"context_length": 9}, {"init.std": 0.1}])
def test_model_seed_and_init_cannot_change_on_the_way(change, text, copied):
    with pytest.raises(RunError, match="cannot change its model, its seed or its init when it goes on"):
        train([text], recipe_name="nanogpt-cpu", out=copied, settings=change, resume=True)


def test_foreign_description_is_refused(text, tmp_path):
    RunFolder.create(tmp_path / "run", description={"config": {"recipe": "other"}}).close()
    with pytest.raises(RunError, match=r"its run.json holds no configuration of this version of unembed"):
        go_on(text, tmp_path / "run")


# --- killed before the data was ready ---------------------------------------------------------------------


def unready(run):
    """What a kill leaves between run.json and the shards."""
    for name in ("data", "checkpoints"):
        shutil.rmtree(run / name)
    (run / "metrics.jsonl").unlink()
    (run / "tokenizer.json").unlink()
    (run / ".data.half").mkdir()
    (run / ".data.half" / "train.bin").write_bytes(b"123")


def test_run_killed_before_its_data_was_ready_reads_it_again(text, straight, copied):
    unready(copied)
    go_on(text, copied)
    assert_same(copied, straight)
    assert not (copied / ".data.half").exists()


def test_run_killed_before_its_data_was_ready_needs_the_same_data(text, copied, tmp_path):
    unready(copied)
    with pytest.raises(
        RunError, match=r"is gone, and with it the run's data. Put it back, or name the same files again"
    ):
        train([], recipe_name="nanogpt-cpu", out=copied, settings=SETTINGS, resume=True)
    other = tmp_path / "other.txt"
    other.write_text("abc" * 500)
    with pytest.raises(RunError, match=r"what is read now makes another model. Name the same files"):
        go_on(other, copied)


@pytest.mark.slow  # the tour's text takes seconds to write
def test_tour_keeps_its_language_when_the_same_command_goes_on(tmp_path):
    settings = {"language": "es", "steps": 3, "eval_every": 3}
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(
            recipe_name="tour",
            out=out,
            settings={**settings, "training.log_every": 1},
            observers=[stop_at(1, terminate)],
        )
    for path in ("data", "tokenizer.json"):
        shutil.rmtree(out / path) if (out / path).is_dir() else (out / path).unlink()
    outcome = train(recipe_name="tour", out=out, settings=settings, resume=True)
    assert outcome.step == 3
    assert RunFolder.open(out).description["data"]["grammar"]["language"] == "es"


# --- a checkpoint that does not fit -----------------------------------------------------------------------


def test_checkpoint_that_does_not_fit_is_refused_by_name(tmp_path):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer = trainer_of(run_config(steps=2), run=run)
        trainer.run()
        last = run.latest()[0]
        weights, optimizer, state = last.weights(), last.optimizer(), last.state

    def resume(weights=weights, optimizer=optimizer):
        fresh = trainer_of(run_config(steps=4))
        fresh.resume(weights, optimizer, state, "here")
        return fresh

    assert resume().step_number == 2
    name = "blocks.0.mlp.up.weight"
    without = {key: value for key, value in weights.items() if key != name}
    with pytest.raises(
        CheckpointError, match=r"here: 1 parameters are missing from the file \['blocks.0.mlp.up.weight'\], and 0"
    ):
        resume(weights=without)
    with pytest.raises(CheckpointError, match=r"and 1 tensors have no place in the model \['extra'\]"):
        resume(weights={**weights, "extra": weights[name]})
    with pytest.raises(
        CheckpointError, match=r"here: blocks.0.mlp.up.weight has shape \[3\], the model needs \[15, 12\]"
    ):
        resume(weights={**weights, name: weights[name].view(-1)[:3]})
    with pytest.raises(CheckpointError, match=r"here: optimizer tensor 'extra.step' belongs to no parameter"):
        resume(optimizer={**optimizer, "extra.step": optimizer[f"{name}.step"]})
    for entry in ("exp_avg", "exp_avg_sq", "step"):
        lacking = {key: value for key, value in optimizer.items() if key != f"{name}.{entry}"}
        with pytest.raises(
            CheckpointError, match=r"here: 1 parameters lack some of the optimizer's tensors .*mlp.up.weight"
        ):
            resume(optimizer=lacking)
    short = {**optimizer, f"{name}.exp_avg": optimizer[f"{name}.exp_avg"][:1]}
    with pytest.raises(CheckpointError, match=r"optimizer tensor 'blocks.0.mlp.up.weight.exp_avg' has shape \[1, 12\]"):
        resume(optimizer=short)
    assert resume(optimizer={}).step_number == 2  # none at all: as before the first step


# --- real processes ---------------------------------------------------------------------------------------


def start(text, out, *more):
    """`unembed train ... --resume` as a process of its own, on one thread."""
    named = {**SETTINGS, "steps": 150, "checkpoint_every": 3, "eval_every": 10}
    settings = [part for name, value in named.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    command = [sys.executable, "-m", "unembed", "train", str(text), "--recipe", "nanogpt-cpu", "--out", str(out)]
    return subprocess.Popen(
        [*command, "--threads", "1", "--format", "json", "--resume", *settings, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(process, condition):
    while process.poll() is None and not condition():
        time.sleep(0.001)
    assert process.poll() is None, f"it ended before it could be stopped: {process.communicate()}"


def n_lines(out):
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def finish(process):
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return json.loads(stdout)


@pytest.fixture(scope="module")
def long_straight(text, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("straight") / "long"
    assert finish(start(text, out))["step"] == 150
    return out


@pytest.mark.slow
def test_signals_from_outside_save_exit_130_and_lose_nothing(text, long_straight, tmp_path):
    out = tmp_path / "run"
    for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
        process = start(text, out)
        seen = n_lines(out)
        wait_until(process, lambda seen=seen: n_lines(out) > seen + 4)
        process.send_signal(number)
        _, stderr = process.communicate()
        assert process.returncode == 130, stderr
        assert "Traceback" not in stderr
        last = RunFolder.open(out).latest()[0].step
        again = "; press Ctrl-C again to stop now" if name == "SIGINT" else ""
        assert f"stopping after this step{again}\n" in stderr
        assert f"error: stopped by {name} after step {last}, which is saved.\n" in stderr
        assert stderr.endswith(f"Go on with: unembed train --out {out} --resume\n")
        assert metrics(out)[-1]["step"] == last
    assert finish(start(text, out))["step"] == 150
    assert_same(out, long_straight)
