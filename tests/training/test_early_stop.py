"""Early stop and the best checkpoint: when a run ends by itself, that it does so however often it was stopped before, and
that its best step can be opened afterwards."""

import itertools
import json
import os
import signal

import pytest

from commands import run as command
from small import run_config, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import Interrupted
from unembed.recipes.start import train
from unembed.training.loop import Trainer
from unembed.training.validation import Validation
from unembed.views.progress import loss
from unembed.views.run import RunView

TEXT = "El perro que corre por la calle no tiene hambre. La gata duerme.\n" * 40
# Losses of the evaluations at steps 0, 2, 4, ...: the best is at step 4, and three worse ones follow it.
LOSSES = (3.0, 2.5, 2.0, 2.2, 2.0, 2.1, 1.0, 0.9)
SETTINGS = {
    "steps": 12,
    "batch_size": 2,
    "context_length": 8,
    "eval_every": 2,
    "checkpoint_every": 5,
    "early_stop": 3,
    "training.log_every": 1,
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def scripted(monkeypatch):
    """Evaluations whose result is a function of the step, so that they are the same when a run goes on."""
    monkeypatch.setattr(Trainer, "evaluate", lambda self: LOSSES[self.step_number // 2])


def begin(text, out, **more):
    said = []
    done = train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, say=said.append, **more)
    return done, said


def metrics(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def stop_at(step):
    def observe(trainer, record):
        if (record["step"], record["split"]) == (step, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    return observe


def test_run_ends_after_so_many_evaluations_without_a_better_loss(text, scripted, tmp_path):
    """Steps 6, 8 and 10 are no better than step 4, an equal loss included."""
    out = tmp_path / "run"
    done, said = begin(text, out)
    assert (done.step, done.stopped, done.val_step, done.val_loss_nats) == (10, "early", 10, 2.1)
    assert (done.best_step, done.best_val_loss_nats) == (4, 2.0)
    assert said[2].startswith(
        "training: at most 12 steps of 16 tokens, 0.082 times the 2,340 tokens to learn from, of 2,"
    )
    assert said[3].startswith("stopped early after step 10 of 12: 3 evaluations in a row were no better than the best")
    assert said[4].startswith("the best validation loss, 2.0000 nats, was that of step 4: unembed sample ")
    assert [c.step for c in RunFolder.open(out).checkpoints()] == [0, 4, 5, 10]
    state = RunFolder.open(out).latest()[0].state
    assert (state["step"], state["val_step"], state["n_worse"]) == (10, 10, 3)
    assert metrics(out)[-1]["step"] == 10
    report = loss(RunView.open(out))
    assert (report.notes, report.values["steps"], "steps_planned" in report.values) == ((), 10, False)


@pytest.mark.parametrize("stops", [(5, 7), (9,), (3, 6, 10)])
def test_stopped_and_resumed_it_ends_at_the_same_step(text, scripted, tmp_path, stops):
    """Stopped between evaluations, at one, and in the very step that ends the run."""
    begin(text, tmp_path / "straight")
    out = tmp_path / "run"
    for step in stops:
        if step == 10:  # the run is over with this step: no interruption
            assert begin(text, out, resume=True, observers=[stop_at(step)])[0].stopped == "early"
            continue
        with pytest.raises(Interrupted):
            begin(text, out, resume=True, observers=[stop_at(step)])
    done, _ = begin(text, out, resume=True)
    assert (done.step, done.stopped, done.best_step) == (10, "early", 4)
    assert metrics(out) == metrics(tmp_path / "straight")
    ours, theirs = (RunFolder.open(path).latest()[0].path for path in (out, tmp_path / "straight"))
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()


def test_resumed_after_its_end_it_is_reported_and_goes_on_only_when_told(text, scripted, tmp_path):
    out = tmp_path / "run"
    begin(text, out)
    before = (out / "metrics.jsonl").read_bytes()
    done, said = begin(text, out, resume=True)
    assert (done.step, done.stopped) == (10, "early")
    assert said[0] == "the run is finished at step 10"
    assert said[1].startswith("stopped early after step 10 of 12")
    assert (out / "metrics.jsonl").read_bytes() == before
    on = train([text], recipe_name="nanogpt-cpu", out=out, settings={**SETTINGS, "early_stop": 0}, resume=True)
    assert (on.step, on.stopped, on.best_step, on.val_loss_nats) == (12, "steps", 12, 1.0)


def test_zero_never_stops_early(text, scripted, tmp_path):
    done = train([text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings={**SETTINGS, "early_stop": 0})
    assert (done.step, done.stopped) == (12, "steps")


def test_best_checkpoint_is_written_where_none_was_due_survives_and_can_be_sampled(text, scripted, tmp_path):
    """The best step, 4, is no multiple of checkpoint_every (5); everything after it is worse and prunes what it may."""
    out = tmp_path / "run"
    _, said = begin(text, out)
    named = said[-1].partition("unembed sample ")[2]
    assert named == str(out / "checkpoints" / "step-000004")
    done = command("sample", named, "--tokens", "5", "--format", "json")
    assert (done.code, len(done.json["ids"])) == (0, 5), done
    straight = trainer_at(text, tmp_path / "four", steps=4)
    found = RunFolder.open(out).checkpoints()[1].weights()
    assert all((found[name] == value).all() for name, value in straight.items())


def trainer_at(text, out, steps):
    """The weights of a run of the same schedule that was stopped after so many steps."""
    with pytest.raises(Interrupted):
        begin(text, out, observers=[stop_at(steps)])
    return RunFolder.open(out).latest()[0].weights()


def test_worked_example_of_the_count():
    seen = Validation()
    found = []
    for step, value in enumerate((3.0, 2.0, 2.0, float("nan"), 1.5)):
        seen = seen.after(step, value)
        found.append((seen.best_step, seen.n_worse, seen.step))
    assert found == [(0, 0, 0), (1, 0, 1), (1, 1, 2), (1, 2, 3), (4, 0, 4)]
    assert Validation.of_state(seen.to_state()) == seen
    assert Validation.of_state(Validation().to_state()) == Validation()


def test_checkpoint_from_before_the_count_was_kept_goes_on():
    old = {"best": {"step": 3, "val_loss_nats": 1.0}, "val_loss_nats": 1.5, "step": 5}
    assert Validation.of_state(old) == Validation(loss_nats=1.5, step=3, best_loss_nats=1.0, best_step=3, n_worse=0)


def test_best_is_kept_through_any_order_of_losses(tmp_path):
    """All orders of three losses: the best one's checkpoint is there at the end, whatever was pruned on the way."""
    for number, losses in enumerate(itertools.permutations((1.0, 2.0, 3.0))):
        with RunFolder.create(tmp_path / str(number), description={}) as folder:
            trainer = trainer_of(run_config(steps=2, eval_every=1, checkpoint_every=10), run=folder)
            trainer.evaluate = iter(losses).__next__
            trainer.run()
            best = losses.index(1.0)
            assert best in [c.step for c in folder.checkpoints()]
            assert folder.latest()[0].state["best"] == {"step": best, "val_loss_nats": 1.0}
