"""The recipe speedrun: as large as it may be, one evaluation, and a rate that falls over its steps, however many there are."""

import json

import pytest

from unembed.corpora.reading import Reading
from unembed.errors import RunError, UsageError
from unembed.model.counts import count
from unembed.optim.muon import MuonConfig
from unembed.recipes.nanogpt_cpu import prepare as prepare_nanogpt
from unembed.recipes.speedrun import prepare
from unembed.recipes.start import train
from unembed.views.progress import loss
from unembed.views.run import RunView

ALPHABET = "".join(chr(ord("0") + number) for number in range(65))  # as many as tinyshakespeare has


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(ALPHABET * 20, encoding="utf-8")
    return path


def begin(text, out, **settings):
    sampling = {"sample_every": 0, **settings}
    return train([text], recipe_name="speedrun", out=out, settings=sampling, resume=out.exists())


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_no_larger_than_what_it_is_measured_against_and_sees_the_same(text, tied):
    ours = prepare([str(text)], Reading(), {"tied": tied}).config
    theirs = prepare_nanogpt([str(text)], Reading(), {}).config
    assert count(ours.model).parameters <= 810_000
    assert count(theirs.model).parameters == 804_096
    assert ours.model.context_length == theirs.model.context_length == 64
    assert ours.model.embedding.vocab_size == theirs.model.embedding.vocab_size == 65


@pytest.mark.parametrize("steps", [1, 7, 5000])
def test_schedule_and_evaluation_follow_the_steps(text, steps):
    training = prepare([str(text)], Reading(), {"steps": steps}).config.training
    assert training.steps == steps
    assert training.eval_every == steps
    assert 1 <= training.schedule.decay_steps <= steps
    assert isinstance(training.optimizer, MuonConfig)


def test_steps_that_are_no_number_are_refused_as_everywhere(text):
    with pytest.raises(UsageError, match="setting steps is 'many': expected `int`"):
        prepare([str(text)], Reading(), {"steps": "many"})


def test_a_run_is_evaluated_once_and_readable(text, tmp_path):
    done = begin(text, tmp_path / "run", steps=2)
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [(one["step"], one["split"]) for one in records] == [(2, "train"), (2, "val")]
    assert done.val_loss_nats == records[-1]["loss_nats"]
    assert loss(RunView.open(tmp_path / "run")).tables


def test_a_run_goes_on_with_its_own_optimizer_alone(text, tmp_path):
    begin(text, tmp_path / "run", steps=2)
    with pytest.raises(RunError, match=r"a run cannot change its optimizer when it goes on: .*begin another run"):
        begin(text, tmp_path / "run", steps=3, optimizer="adamw")
    assert begin(text, tmp_path / "run", steps=3).step == 3
