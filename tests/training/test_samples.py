"""Samples on the way: deterministic, exact under resume, and without influence on a single bit of the training."""

import json
import os
import signal

import pytest
import torch

from small import run_config, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import Interrupted, NotFiniteError
from unembed.recipes.start import train
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.training.config import with_settings
from unembed.training.loop import Trainer
from unembed.training.samples import MOST_TOKENS, Sampler, sample_seed

TEXT = "El perro que corre por la calle no tiene hambre.\nLa gata duerme.\n" * 40
SETTINGS = {
    "steps": 6,
    "batch_size": 2,
    "dropout": 0.2,
    "context_length": 8,
    "eval_every": 3,
    "checkpoint_every": 3,
    "sample_every": 2,
    "training.log_every": 1,
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def begin(text, out, **settings):
    return train([text], recipe_name="nanogpt-cpu", out=out, settings={**SETTINGS, **settings})


@pytest.fixture(scope="module")
def straight(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "run"
    begin(text, out)
    return out


def weights(out):
    newest = RunFolder.open(out).latest()[0].path
    return [(newest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def metrics(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def test_samples_stand_at_their_steps_and_hold_a_text(straight):
    found = RunFolder.open(straight).samples()
    assert [one["step"] for one in found] == [0, 2, 4, 6]
    assert all(list(one) == ["step", "text"] for one in found)
    assert all(0 < len(one["text"]) <= 8 for one in found)
    assert all(set(one["text"]) <= set(TEXT) for one in found)
    assert len({one["text"] for one in found}) == 4


def test_a_run_with_samples_and_one_without_end_bit_equal(text, straight, tmp_path):
    """With dropout, whose draws a sample must not move."""
    begin(text, tmp_path / "mute", sample_every=0)
    assert weights(tmp_path / "mute") == weights(straight)
    assert metrics(tmp_path / "mute") == metrics(straight)
    assert not (tmp_path / "mute" / "samples.jsonl").exists()
    assert RunFolder.open(tmp_path / "mute").samples() == []


@pytest.mark.parametrize("stop", [2, 5])
def test_stopped_or_crashed_and_resumed_the_file_equals_the_unbroken_ones(text, straight, tmp_path, stop):
    """Stopped by a signal at the step, then crashed after a sample that no checkpoint knows of."""
    out = tmp_path / "run"

    def terminate(trainer, record):
        if (record["step"], record["split"]) == (stop, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    def crash(trainer, record):
        if (record["step"], record["split"]) == (6, "sample"):
            raise RuntimeError("the power went")

    sources = {"recipe_name": "nanogpt-cpu", "out": out, "settings": SETTINGS, "resume": True}
    with pytest.raises(Interrupted):
        train([text], observers=[terminate], **sources)
    with pytest.raises(RuntimeError):
        train([text], observers=[crash], **sources)
    assert (out / "samples.jsonl").read_bytes() != (straight / "samples.jsonl").read_bytes()
    train([text], **sources)
    assert (out / "samples.jsonl").read_bytes() == (straight / "samples.jsonl").read_bytes()
    assert weights(out) == weights(straight)


def test_without_a_number_a_sample_comes_with_each_evaluation(text, tmp_path):
    begin(text, tmp_path / "run", sample_every=None, steps=4)
    assert [one["step"] for one in RunFolder.open(tmp_path / "run").samples()] == [0, 3, 4]


def sampler_of(trainer: Trainer) -> Sampler:
    letters = "abcdefghijk\n "[: trainer.config.model.embedding.vocab_size]
    trainer.model.tokenizer = CharacterTokenizer.from_text(letters, has_end=False)
    return Sampler(1)


def test_the_same_seed_and_step_give_the_same_text_and_others_another():
    trainer = trainer_of(run_config())
    sampler = sampler_of(trainer)
    torch.manual_seed(3)
    first, drawn = sampler(trainer.model, 4), torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))  # the caller's generator stands where it stood
    assert sampler(trainer.model, 4) == first
    assert sampler(trainer.model, 5)["text"] != first["text"]
    assert len(first["text"]) == min(MOST_TOKENS, trainer.config.model.context_length)
    assert len({sample_seed(seed, step) for seed in range(9) for step in range(9)}) == 81


def test_weights_that_are_not_finite_are_no_fault_of_the_sampler():
    config = with_settings(run_config(eval_every=9), {"sample_every": 2})

    def spoil(trainer, record):
        if (record["step"], record["split"]) == (2, "train"):
            with torch.no_grad():
                trainer.model.embed.table.view(-1)[0] = float("nan")

    trainer = trainer_of(config, observers=[spoil])
    trainer.sampler = sampler_of(trainer)
    with pytest.raises(NotFiniteError, match=r"step 2: not finite: weights \['embed.table'\]. Nothing was saved"):
        trainer.run()


def test_a_text_without_breaks_begins_after_a_token_of_its_own(tmp_path):
    """DNA has no line break and no space: nothing could be read after, but a base."""
    path = tmp_path / "dna.txt"
    path.write_text("ACGTTGCA" * 100)
    begin(path, tmp_path / "run", steps=1)
    assert all(set(one["text"]) <= set("ACGT") for one in RunFolder.open(tmp_path / "run").samples())


@pytest.mark.slow  # a compiler runs
def test_compiled_blocks_are_not_compiled_again_for_a_sample(unchecked):
    """The graphs that training compiled stay as they are: a compiled run with samples ends as one without."""
    ends = []
    for every in (0, 1):
        torch._dynamo.reset()
        trainer = trainer_of(with_settings(run_config(steps=2, compile=True), {"sample_every": every}))
        trainer.sampler = sampler_of(trainer)
        trainer.run()
        ends.append({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
