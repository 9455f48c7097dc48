"""The training loop: what a step optimises, what it says, and what it does when there is nothing or no number to learn from."""

import json
import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.specs import base, changed
from small import run_config, tokens, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.state import optimizer_tensors
from unembed.corpora.windows import TokenSplit
from unembed.errors import NotFiniteError
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY
from unembed.objectives import IGNORED
from unembed.optim.schedules import Cosine
from unembed.training.forward import dropout_seed

LEARNED = {"type": "learned", "n_rows": 12, "offset": 0}


class Masked(TokenSplit):
    """A split whose targets are ignored in some rows: `hide(index, targets)` says which."""

    hide = staticmethod(lambda index, targets: targets)

    def batch(self, seed, step, batch_size, context_length):
        inputs, targets = super().batch(seed, step, batch_size, context_length)
        return inputs, self.hide(step, targets.copy())


def masked(hide) -> Masked:
    split = Masked("train", tokens(400).ids)
    object.__setattr__(split, "hide", hide)
    return split


def weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def gradients(trainer):
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


def states(trainer):
    return {name: t.clone() for name, t in optimizer_tensors(trainer.model, trainer.optimizer).items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- A05: accumulation ------------------------------------------------------------------------------------


def hide_ends(index, targets):
    """Rows of very unequal length: row r of the run keeps the first 1, 4, 7, 10, 1, ... of its labels."""
    first = index * len(targets)
    for row in range(len(targets)):
        targets[row, 1 + 3 * ((first + row) % 4) :] = IGNORED
    return targets


@pytest.mark.parametrize(("accumulate", "batch_size"), [(2, 6), (3, 4), (4, 3), (12, 1)])
@pytest.mark.parametrize("is_unequal", [False, True])
def test_accumulated_gradient_is_that_of_the_large_batch(accumulate, batch_size, is_unequal):
    """A05b: the same 12 windows, however they are split and however unequal: loss, norm and every gradient."""
    hide = hide_ends if is_unequal else (lambda index, targets: targets)
    large = trainer_of(run_config(batch_size=12, clip_norm=None), train=masked(hide))
    small = trainer_of(run_config(batch_size=batch_size, accumulate=accumulate, clip_norm=None), train=masked(hide))
    loss, norm = large.step()
    loss_small, norm_small = small.step()
    assert loss_small == pytest.approx(loss, rel=1e-6)
    assert norm_small == pytest.approx(norm, rel=1e-5)
    for name, gradient in gradients(large).items():
        error = (gradients(small)[name] - gradient).norm() / gradient.norm().clamp(min=1e-12)
        assert error <= 1e-5, name


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_property_any_split_of_any_unequal_sequences_is_the_large_batch(data):
    """A05b: sequences of lengths drawn by hypothesis, empty ones included, in every split into equal micro-batches."""
    lengths = data.draw(st.lists(st.integers(0, 12), min_size=12, max_size=12), label="labels of each sequence")
    batch_size = data.draw(st.sampled_from([1, 2, 3, 4, 6]), label="sequences at once")

    def hide(index, targets):
        for row in range(len(targets)):
            targets[row, lengths[(index * len(targets) + row) % 12] :] = IGNORED
        return targets

    large = trainer_of(run_config(batch_size=12, clip_norm=None), train=masked(hide))
    small = trainer_of(
        run_config(batch_size=batch_size, accumulate=12 // batch_size, clip_norm=None), train=masked(hide)
    )
    before = weights(small)
    loss, norm = large.step()
    assert small.step() == (pytest.approx(loss, rel=1e-5), pytest.approx(norm, rel=1e-5))
    assert small.tokens == large.tokens == sum(lengths)
    for name, gradient in gradients(large).items():
        error = (gradients(small)[name] - gradient).norm()
        assert error <= 1e-5 * gradient.norm() + 1e-12, name
    assert equal(before, weights(small)) == (sum(lengths) == 0)


def test_unequal_micro_batches_are_weighed_by_tokens():
    """A05a: 1 label in the first half and 12 in the second give the mean of 13 tokens, not the mean of two means."""

    def hide(index, targets):
        targets[:, 1 if index == 0 else 12 :] = IGNORED
        return targets

    trainer = trainer_of(run_config(batch_size=1, accumulate=2), train=masked(hide))
    with torch.no_grad():
        parts = []
        for micro in range(2):
            inputs, targets = trainer.train.batch(1, micro, 1, 12)
            scores = trainer.model(torch.from_numpy(inputs)).log_softmax(-1)[0]
            parts += [-scores[i, t].item() for i, t in enumerate(targets[0]) if t != IGNORED]
    assert len(parts) == 13
    loss, _ = trainer.step()
    assert loss == pytest.approx(sum(parts) / 13, rel=1e-6)
    assert loss != pytest.approx((parts[0] + sum(parts[1:]) / 12) / 2, rel=1e-3)


def test_fully_masked_sequences_change_nothing():
    """A05c, A06a: a micro-batch of ignored labels adds neither to the sum nor to the count."""

    def only_first(index, targets):
        if index % 4:
            targets[:] = IGNORED
        return targets

    plain = trainer_of(run_config(batch_size=3, clip_norm=None))
    more = trainer_of(run_config(batch_size=3, accumulate=4, clip_norm=None), train=masked(only_first))
    assert plain.step() == more.step()
    assert equal(gradients(plain), gradients(more))
    assert more.tokens == plain.tokens == 36


def test_step_without_any_label_changes_nothing_and_says_so(caplog):
    """A06a: no NaN anywhere, the weights bit-identical, and a warning."""

    def hide_second_step(index, targets):
        if index == 1:
            targets[:] = IGNORED
        return targets

    trainer = trainer_of(run_config(), train=masked(hide_second_step))
    trainer.step()
    before, moments = weights(trainer), states(trainer)
    with caplog.at_level(logging.WARNING, logger="unembed"):
        loss, norm = trainer.step()
    assert (loss, norm) == (0.0, 0.0)
    assert equal(before, weights(trainer))
    assert equal(moments, states(trainer))
    assert "step 2: every label is ignored, so the step changes nothing" in caplog.text
    trainer.step()
    assert not equal(before, weights(trainer))


def test_norm_is_reported_before_clipping_and_the_step_is_taken_after():
    free, clipped = trainer_of(run_config(clip_norm=None)), trainer_of(run_config(clip_norm=0.01))
    _, norm = free.step()
    assert clipped.step()[1] == norm
    assert norm > 0.01
    for name, gradient in gradients(clipped).items():
        torch.testing.assert_close(gradient, gradients(free)[name] * (0.01 / norm), rtol=1e-3, atol=0)


def test_twenty_steps_learn_something():
    trainer = trainer_of(run_config(steps=20, batch_size=8))
    losses = [trainer.step()[0] for _ in range(20)]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.3


# --- A08: numbers that are not finite ---------------------------------------------------------------------


def spoil(at, name, value):
    """An observer that writes a value into a weight once `at` steps are done."""

    def observe(trainer, record):
        if trainer.step_number == at and record["split"] == "train":
            with torch.no_grad():
                dict(trainer.model.named_parameters())[name].view(-1)[0] = value

    return observe


def lines(run):
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_step_that_is_not_finite_stops_the_run(tmp_path, value):
    """A08a: the log shows it at its step, the last checkpoint is untouched, and the message names the tensor."""
    with RunFolder.create(tmp_path / "run", description={}) as run:
        name = "blocks.1.mlp.down.weight"
        trainer = trainer_of(run_config(checkpoint_every=2), run=run, observers=[spoil(2, name, value)])
        # spoilt between step 2 and its checkpoint: nobody could go on from such a one
        with pytest.raises(
            NotFiniteError, match=r"step 2: not finite: weights \['blocks.1.mlp.down.weight'\]. Nothing was"
        ):
            trainer.run()
        assert [c.step for c in run.checkpoints()] == [0]
        before = (run.path / "checkpoints/step-000000/model.safetensors").read_bytes()
        trainer = trainer_of(run_config(checkpoint_every=5), run=run, observers=[spoil(2, name, value)])
        with pytest.raises(NotFiniteError) as caught:
            trainer.run()
        assert caught.value.exit_code == 6
        message = str(caught.value)
        assert message.startswith(("step 3: loss nan nats", "step 3: loss inf nats"))
        assert "not finite: weights ['blocks.1.mlp.down.weight']" in message
        assert "The step was not taken" in message
        last = lines(run)[-1]
        assert (last["step"], last["split"], last["loss_nats"], last["not_finite"]) == (3, "train", None, "nan")
        assert [c.step for c in run.checkpoints()] == [0]
        assert (run.path / "checkpoints/step-000000/model.safetensors").read_bytes() == before


def test_gradient_that_is_not_finite_names_its_tensor_and_takes_no_step():
    """The names are looked at before clipping, which would have spread one NaN over all gradients."""
    trainer = trainer_of(run_config())
    parameter = dict(trainer.model.named_parameters())["blocks.0.attn.q_proj.weight"]
    parameter.register_hook(lambda g: g.index_fill(0, torch.tensor([1]), math.nan))
    before = weights(trainer)
    with pytest.raises(
        NotFiniteError, match=r"gradient norm nan; not finite: gradients of \['blocks.0.attn.q_proj.weight'\]"
    ):
        trainer.step()
    assert equal(before, weights(trainer))
    assert trainer.step_number == 0


def test_infinite_norm_is_reported_as_infinite(tmp_path):
    """A08b: finite gradients of 1e30 have a norm beyond float32; the log says inf, not the clip limit."""
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer = trainer_of(run_config(), run=run)
        trainer.model.embed.table.register_hook(lambda g: torch.full_like(g, 1e30))
        with pytest.raises(NotFiniteError, match="gradient norm inf; not finite: the norm, for its square overflows"):
            trainer.step()
        assert lines(run)[-1]["grad_norm"] is None
        assert lines(run)[-1]["not_finite"] == "inf"


def test_validation_loss_that_is_not_finite_stops_before_saving(tmp_path):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer = trainer_of(
            run_config(eval_every=2, checkpoint_every=2), run=run, observers=[spoil(2, "embed.table", math.nan)]
        )
        with pytest.raises(
            NotFiniteError, match=r"step 2: validation loss nan nats; not finite: weights \['embed.table'\]"
        ):
            trainer.run()
        assert [c.step for c in run.checkpoints()] == [0]
        assert lines(run)[-1] | {"seconds": 0} == {
            "step": 2,
            "split": "val",
            "loss_nats": None,
            "not_finite": "nan",
            "not_finite_of": {"loss_nats": "nan"},
            "learning_rate": lines(run)[-1]["learning_rate"],
            "grad_norm": None,
            "tokens": 72,
            "seconds": 0,
        }
        assert trainer.validation.best_step == 0


# --- evaluation and records -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 12, 13, 14, 60, 1 + 12 * 5])
def test_oracle_evaluation_is_the_mean_over_every_token_once(n):
    """Against one window after another: tokens k*12+1 ... (k+1)*12 from the 12 before, the rest in a short window."""
    val = tokens(n, seed=3)
    trainer = trainer_of(run_config(changed(base(), embedding__position=LEARNED)), val=val)
    ids = [int(i) for i in val.ids]
    total, count = 0.0, 0
    for begin in range(0, n - 1, 12):
        window = ids[begin : begin + 13]
        with torch.no_grad():
            scores = trainer.model(torch.tensor([window[:-1]]))[0].double().log_softmax(-1)
        total -= sum(scores[i, target].item() for i, target in enumerate(window[1:]))
        count += len(window) - 1
    assert count == n - 1
    assert trainer.evaluate() == pytest.approx(total / count, rel=1e-6)


def test_evaluation_does_not_depend_on_how_many_windows_go_at_once(monkeypatch):
    trainer = trainer_of(run_config(), val=tokens(200))
    expected = trainer.evaluate()
    for at_once in (1, 25, 10_000):
        monkeypatch.setattr("unembed.training.validation.TOKENS_AT_ONCE", at_once)
        assert trainer.evaluate() == pytest.approx(expected, rel=1e-6)


def test_observers_are_handed_each_record_before_it_is_written(tmp_path):
    seen = []

    def observe(trainer, record):
        written = len(lines(trainer.run_folder)) if (trainer.run_folder.path / "metrics.jsonl").exists() else 0
        seen.append((record, written, trainer.step_number))

    with RunFolder.create(tmp_path / "run", description={}) as run:
        config = run_config(steps=7, log_every=2, eval_every=3, checkpoint_every=4)
        trainer_of(config, run=run, observers=[observe]).run()
        assert [record for record, _, _ in seen] == lines(run)
        assert [written for _, written, _ in seen] == list(range(len(seen)))
        assert all(step == record["step"] for record, _, step in seen)
        splits = [(record["step"], record["split"]) for record, _, _ in seen]
        expected = [
            (0, "val"),
            (2, "train"),
            (3, "val"),
            (4, "train"),
            (6, "train"),
            (6, "val"),
            (7, "train"),
            (7, "val"),
        ]
        assert splits == expected
        assert [c.step for c in run.checkpoints()] == [0, 6, 7]  # 3 and 6 as the best of their time
        keys = ["step", "split", "loss_nats", "learning_rate", "grad_norm", "tokens", "seconds"]
        assert all(list(record) == keys for record, _, _ in seen)
        assert seen[-1][0]["tokens"] == 7 * 3 * 12


def test_run_keeps_the_first_the_best_the_last_two_and_every_nth(tmp_path):
    """The best is written in the state and survives the pruning, whatever came after it."""
    values = iter([3.0, 2.5, 1.0, 2.0, 2.1, 2.2, 2.3])
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer = trainer_of(run_config(steps=6, eval_every=1, checkpoint_every=1, keep_every=3), run=run)
        trainer.evaluate = lambda: next(values)
        trainer.run()
        assert [c.step for c in run.checkpoints()] == [0, 2, 3, 5, 6]
        assert run.latest()[0].state["best"] == {"step": 2, "val_loss_nats": 1.0}


# --- randomness -------------------------------------------------------------------------------------------


def test_dropout_draws_leave_the_callers_generator_alone_and_differ_by_place():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer = trainer_of(run_config(dropout=0.4, accumulate=2))
    trainer.step()
    assert torch.equal(torch.rand(3), expected)
    seeds = {dropout_seed(s, t, m, rank=r) for s in (1, 2) for t in (0, 1, 2) for m in (0, 1) for r in (0, 1)}
    assert len(seeds) == 24
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_dropout_draws_anew_in_each_step_and_micro_batch():
    """Equal windows and weights that do not move: what is left of a difference is the draw."""
    still = Cosine(peak=1e-30, floor=0.0, warmup_steps=0)
    same = TokenSplit("train", np.full(100, 3, dtype=np.uint16))
    once, twice = (trainer_of(run_config(dropout=0.4, schedule=still, accumulate=n), train=same) for n in (1, 2))
    losses = [once.step()[0] for _ in range(3)]
    assert len(set(losses)) == 3
    assert twice.step()[0] != losses[0]


def test_dropout_acts_in_training_and_not_in_evaluation():
    wet, dry = trainer_of(run_config(dropout=0.4)), trainer_of(run_config())
    assert wet.evaluate() == dry.evaluate()
    assert wet.step()[0] != dry.step()[0]
    again = trainer_of(run_config(dropout=0.4))
    again.step()
    assert equal(weights(wet), weights(again))


def test_run_steps_rates_of_the_schedule():
    rates = []
    trainer_of(run_config(steps=4), observers=[lambda t, r: rates.append((r["split"], r["learning_rate"]))]).run()
    assert [rate for split, rate in rates if split == "train"] == pytest.approx(
        [1e-2 / 3, 2e-2 / 3, 1e-2, 1e-3 + 9e-3 * 0.5], rel=1e-12
    )


def test_end_of_text_is_learnt():
    """A07b: over-fitted on one sentence of five tokens and an end, a model writes the sentence and stops by itself."""
    end, sentence = 12, [3, 1, 4, 1, 5]
    ids = np.array([end, *sentence] * 40, dtype=np.uint16)
    config = run_config(changed(base(), embedding__position=LEARNED), steps=60, batch_size=8)
    trainer = trainer_of(config, train=TokenSplit("train", ids), val=TokenSplit("val", ids[:30]))
    for _ in range(60):
        trainer.step()
    (text,) = generate_ids(trainer.model, [[end]], n_tokens=20, sampling=GREEDY, seeds=[0], end_id=end)
    assert (text.ids, text.stopped) == (sentence, "end")
