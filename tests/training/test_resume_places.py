"""A run may be stopped anywhere: past the ends of its text, in the middle of an accumulation, and go on with other threads.

test_resume.py holds the rest of resuming. What is compared is bits: weights, moments, metrics; and the very windows that
each step asked for.
"""

import json
import os
import signal

import pytest
import torch

from small import run_config, tokens, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.windows import TokenSplit
from unembed.errors import Interrupted
from unembed.recipes.start import train
from unembed.training import parallel

# 172 characters to learn from: a step of 2 x 2 windows of 16 sees a third of them.
TEXT = "La gata duerme y el perro corre por la calle, que no tiene fin.\n" * 3
STEPS, PER_STEP = 10, 2 * 2 * 16
SETTINGS = {
    "steps": STEPS,
    "batch_size": 2,
    "accumulate": 2,
    "dropout": 0.2,
    "context_length": 16,
    "eval_every": 5,
    "checkpoint_every": 4,
    "training.log_every": 1,
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def begin(text, out, **more):
    return train([text], recipe_name="nanogpt-cpu", out=out, settings=SETTINGS, resume=True, **more)


@pytest.fixture(scope="module")
def straight(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "run"
    begin(text, out)
    return out


def metrics(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same(out, straight):
    ours, theirs = (RunFolder.open(path).latest()[0] for path in (out, straight))
    assert ours.step == theirs.step == STEPS
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes(), name
    assert metrics(out) == metrics(straight)
    assert (out / "samples.jsonl").read_bytes() == (straight / "samples.jsonl").read_bytes()


def terminate_at(step):
    def observe(trainer, record):
        if (record["step"], record["split"]) == (step, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    return observe


def test_across_the_ends_of_the_text(text, straight, tmp_path):
    """As many tokens as the text has were seen once within step 3, twice within step 6: stops on both sides of each."""
    n_tokens = len(TEXT) * 9 // 10
    assert [step * PER_STEP // n_tokens for step in (2, 3, 5, 6, 8, 10)] == [0, 1, 1, 2, 2, 3]
    out = tmp_path / "run"
    for step in (2, 3, 5, 6, 8):
        with pytest.raises(Interrupted):
            begin(text, out, observers=[terminate_at(step)])
    begin(text, out)
    assert_same(out, straight)


class Power(RuntimeError):
    """The power went."""


@pytest.mark.parametrize("event", ["crash", "signal"])
@pytest.mark.parametrize("step", [2, 7])
def test_in_the_middle_of_an_accumulation(text, straight, tmp_path, monkeypatch, event, step):
    """Between the gradients of the first half and the second: a crash loses the half, a signal waits for the step's end."""
    loss, left = parallel.micro_loss, [2 * step]  # two halves a step

    def interrupted(model, *given, **options):
        left[0] -= 1
        if not left[0]:
            assert any(p.grad is not None for p in model.parameters())  # the first half is there
            if event == "crash":
                raise Power
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(model, *given, **options)

    out = tmp_path / "run"
    monkeypatch.setattr(parallel, "micro_loss", interrupted)
    with pytest.raises(Power if event == "crash" else Interrupted):
        begin(text, out)
    saved = RunFolder.open(out).latest()[0].step
    assert saved == {("crash", 2): 0, ("crash", 7): 5}.get((event, step), step)
    monkeypatch.setattr(parallel, "micro_loss", loss)
    begin(text, out)
    assert_same(out, straight)


class Listening(TokenSplit):
    """A split that notes which windows each step asked for."""

    def batch(self, seed, step, batch_size, context_length):
        found = super().batch(seed, step, batch_size, context_length)
        self.__dict__.setdefault("asked", []).append((step, found[0].tolist()))
        return found


@pytest.fixture
def threads():
    """Sets torch's threads, and puts them back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def listen(config, run=None, checkpoint=None):
    split = Listening("train", tokens(400).ids)
    trainer = trainer_of(config, train=split, run=run)
    if checkpoint is not None:
        trainer.resume(checkpoint.weights(), checkpoint.optimizer(), checkpoint.state, "here")
    trainer.run()
    return split.asked, trainer


@pytest.mark.slow  # on a busy machine every product waits for its second thread
def test_with_other_threads_the_windows_come_in_the_same_order(tmp_path, threads):
    """One thread for the whole run; then five steps with one and the rest with two: the same windows at each step."""
    config = run_config(steps=10, accumulate=2, checkpoint_every=5, dropout=0.3)
    threads(1)
    want, straight = listen(config)
    threads(2)
    with RunFolder.create(tmp_path / "run", description={}) as run:
        got, other = listen(config, run=run)
        assert got == want
        assert [index for index, _ in want] == list(range(20))
        half = next(c for c in run.checkpoints() if c.step == 5)
        threads(1)
        rest, resumed = listen(config, checkpoint=half)
    assert rest == want[10:]
    assert resumed.tokens == other.tokens == straight.tokens
    for (name, ours), theirs in zip(resumed.model.named_parameters(), straight.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=name)  # another order of sums, no more
