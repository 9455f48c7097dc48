"""TensorBoard events: the numbers of metrics.jsonl, each step once however often a run was stopped."""

import json
import math
import os
import signal
from importlib.util import find_spec

import pytest

from commands import run as command
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import Interrupted, NotFiniteError, UsageError
from unembed.recipes.start import train
from unembed.training import tensorboard

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="tensorboard is not installed: pip install 'unembed[track]'"
)
SETTINGS = {
    "steps": 5,
    "batch_size": 2,
    "context_length": 8,
    "eval_every": 2,
    "checkpoint_every": 2,
    "training.log_every": 1,
    "tensorboard": True,
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("La gata duerme y el perro corre.\n" * 40, encoding="utf-8")
    return path


def begin(text, out, settings=SETTINGS, **more):
    return train([text], recipe_name="nanogpt-cpu", out=out, settings=settings, **more)


def scalars(out):
    """Every curve of a run as TensorBoard's own reader sees it: {tag: [(step, value), ...]}."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (out / "tensorboard").iterdir()
    found = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
            found.setdefault(value.tag, []).append((event.step, number))
    return found


def expected(out):
    found = {}
    for record in (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()):
        for name in ("loss_nats", "grad_norm", "learning_rate", "tokens"):
            if record[name] is not None:
                found.setdefault(f"{record['split']}/{name}", []).append((record["step"], record[name]))
    return found


def assert_same(got, want):
    assert got.keys() == want.keys()
    for tag, curve in want.items():
        assert [step for step, _ in got[tag]] == [step for step, _ in curve], tag
        assert [value for _, value in got[tag]] == pytest.approx([value for _, value in curve], rel=1e-6), tag


@needs_tensorboard
def test_events_hold_the_numbers_of_the_log(text, tmp_path):
    out = tmp_path / "run"
    begin(text, out)
    want = expected(out)
    assert set(want) >= {"train/loss_nats", "train/grad_norm", "val/loss_nats", "val/tokens"}
    assert [step for step, _ in want["val/loss_nats"]] == [0, 2, 4, 5]
    assert_same(scalars(out), want)


@needs_tensorboard
def test_stopped_and_crashed_and_resumed_no_step_stands_twice(text, tmp_path):
    out = tmp_path / "run"

    def terminate(trainer, record):
        if (record["step"], record["split"]) == (1, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    def crash(trainer, record):
        if (record["step"], record["split"]) == (4, "train"):
            raise RuntimeError("the power went")

    with pytest.raises(Interrupted):
        begin(text, out, observers=[terminate])
    with pytest.raises(RuntimeError):
        begin(text, out, observers=[crash], resume=True)
    begin(text, out, resume=True)
    assert_same(scalars(out), expected(out))
    assert [step for step, _ in scalars(out)["train/loss_nats"]] == [1, 2, 3, 4, 5]


@needs_tensorboard
def test_switched_on_later_it_has_the_steps_from_before(text, tmp_path):
    out = tmp_path / "run"
    begin(text, out, {**SETTINGS, "tensorboard": False, "steps": 3})
    assert not (out / "tensorboard").exists()
    begin(text, out, resume=True)
    assert [step for step, _ in scalars(out)["train/loss_nats"]] == [1, 2, 3, 4, 5]


@needs_tensorboard
def test_a_number_that_is_not_finite_is_shown_as_it_was(text, tmp_path):
    """At once, as the run stops, and again when it is opened later."""
    out = tmp_path / "run"
    wrong = {**SETTINGS, "learning_rate": 1e38, "training.schedule.warmup_steps": 0, "sample_every": 0, "eval_every": 9}
    with pytest.raises(NotFiniteError):
        begin(text, out, wrong)
    last = scalars(out)["train/loss_nats"][-1]
    assert not math.isfinite(last[1])
    with tensorboard.EventWriter(out, RunFolder.open(out).metrics()):
        pass
    assert str(scalars(out)["train/loss_nats"][-1]) == str(last)


def test_without_the_package_it_is_said_before_anything_is_written(text, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    out = tmp_path / "run"
    message = r"tensorboard is not installed. Install it with: pip install 'unembed\[track\]'"
    with pytest.raises(UsageError, match=message):
        begin(text, out)
    assert not out.exists()
    begin(text, out, {**SETTINGS, "tensorboard": False, "steps": 1})
    before = (out / "run.json").read_bytes()
    with pytest.raises(UsageError, match=message):
        begin(text, out, resume=True)
    assert (out / "run.json").read_bytes() == before
    words = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    done = command("train", text, "--out", tmp_path / "new", "--recipe", "nanogpt-cpu", *words)
    assert done.code == 2
    assert "unembed[track]" in done.err
