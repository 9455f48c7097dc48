"""The tuned lens: its start against least squares, its steps against autograd's own Adam, and what it is good for."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oracles.specs import base, changed
from small import small_model, tokens
from unembed.errors import UsageError
from unembed.lenses.logit_lens import logit_lens
from unembed.lenses.reading import read
from unembed.lenses.states import take_states
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_lens import TunedTrainer, held_out, settings_for
from unembed.lenses.tuned_start import closed_form

LENGTH = 8


def model_of(**changes):
    return small_model(changed(base(3), **changes), dtype=torch.float32)


def trainer_of(model, **numbers):
    settings = settings_for(model, **{"steps": 60, "rows": 64, "window": LENGTH, "start_tokens": 2000, **numbers})
    return TunedTrainer(model, tokens(3000), settings)


def trained(model, **numbers):
    trainer = trainer_of(model, **numbers)
    trainer.begin()
    while not trainer.is_finished:
        trainer.step()
    return trainer


def divergence(model, translate):
    ids = torch.from_numpy(next(tokens(400, seed=9).windows(LENGTH, 40))[0])
    states = take_states(model, ids).values.flatten(1, 2)
    found = read(model, states, statistics=("kl_to_final",), translate=translate)
    return found.numbers["kl_to_final_nats"].double().mean(1).numpy()


# Translators ----------------------------------------------------------------------------------------------------------


def test_zeros_are_the_logit_lens_and_the_last_layer_is_never_touched():
    model = model_of()
    none, zeros = divergence(model, None), divergence(model, Translators.zeros(model.spec))
    assert zeros.tolist() == none.tolist()
    ones = Translators(torch.ones(3, 12, 12), torch.ones(3, 12), {})
    stream = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ones.one(3, stream), stream)
    assert torch.allclose(ones.one(2, stream), stream + stream.sum(-1, keepdim=True) + 1, atol=1e-5)
    assert ones.one(2, stream.to(torch.bfloat16)).dtype == torch.bfloat16


# The start ------------------------------------------------------------------------------------------------------------


def test_oracle_the_start_is_weighted_least_squares(generator):
    """numpy's solver on the rows times 1 / size, with the ridge as rows of its own."""
    states = torch.randn(2, 400, 5, generator=generator) * torch.tensor([1.0, 3.0, 0.2, 1.0, 1.0]) + 2
    start = closed_form(iter(states.split(150, dim=1)), has_final_norm=True, ridge=0.05)
    x, final = states.double().numpy()
    sizes = np.sqrt((x**2).mean(-1, keepdims=True))
    y = final / np.sqrt((final**2).mean(-1, keepdims=True))
    weights = 1 / sizes**2
    x_mean, y_mean = ((weights * one).sum(0) / weights.sum() for one in (x, y))
    x0, y0, root = x - x_mean, y - y_mean, np.sqrt(weights / weights.sum())
    alpha = (1 / sizes).mean()
    ridge = np.sqrt(0.05 * ((root * x0) ** 2).sum() / 5)
    rows, wanted = np.vstack([root * x0, ridge * np.eye(5)]), np.vstack([root * y0, ridge * alpha * np.eye(5)])
    matrix = np.linalg.lstsq(rows, wanted, rcond=None)[0].T
    assert start.weight[0].numpy() == pytest.approx(matrix / alpha - np.eye(5), abs=2e-5)
    assert start.bias[0].numpy() == pytest.approx((y_mean - matrix @ x_mean) / alpha, abs=2e-5)
    plain = (x - x.mean(0)).T @ (x - x.mean(0)) / len(x) + ridge**2 * np.eye(5)
    whiten = start.whiten[0].double().numpy()
    assert whiten @ plain @ whiten.T == pytest.approx(np.eye(5), abs=1e-4)
    assert start.mean[0].numpy() == pytest.approx(x_mean, abs=1e-5)
    assert float(start.scale[0]) == pytest.approx(1 / alpha, rel=1e-5)


def test_an_affine_change_of_the_stream_is_found_exactly_where_nothing_normalises(generator):
    x = torch.randn(500, 6, generator=generator)
    matrix, vector = torch.randn(6, 6, generator=generator), torch.randn(6, generator=generator)
    start = closed_form([torch.stack([x, x @ matrix.T + vector])], has_final_norm=False, ridge=1e-9)
    assert torch.allclose(start.weight[0] + torch.eye(6), matrix, atol=1e-4)
    assert torch.allclose(start.bias[0], vector, atol=1e-4)


def test_much_ridge_is_the_logit_lens(generator):
    start = closed_form([torch.randn(2, 300, 4, generator=generator)], has_final_norm=True, ridge=1e9)
    assert float(start.weight.abs().max()) < 1e-6


# The steps ------------------------------------------------------------------------------------------------------------


def test_oracle_steps_are_those_of_torchs_adam_on_the_mean_divergence():
    model = model_of()
    ours, other = trainer_of(model, steps=5, learning_rate=0.12), trainer_of(model, steps=5, learning_rate=0.12)
    ours.begin(), other.begin()
    start = other._start
    values = [torch.zeros(3, 12, 12, requires_grad=True), torch.zeros(3, 12, requires_grad=True)]
    adam = torch.optim.Adam(values, lr=0.12, betas=(0.9, 0.99), eps=1e-8)
    for number in range(5):
        states = other._rows(number)
        final = model.unembed(states[-1:])[0].softmax(-1).detach()
        adam.zero_grad()
        for layer in range(3):
            x, whitened = states[layer], (states[layer] - start.mean[layer]) @ start.whiten[layer].T
            moved = x + x @ start.weight[layer].T + start.bias[layer]
            moved = moved + start.scale[layer] * (whitened @ values[0][layer].T + values[1][layer])
            log_probs = model.unembed(moved[None])[0].log_softmax(-1)
            (final * (final.log() - log_probs)).sum(-1).mean().backward()
        for group in adam.param_groups:
            group["lr"] = 0.12 * (1 - number / 5) / 12
        adam.step()
        ours.step()
    assert torch.allclose(ours._learnt["value.matrix"], values[0].detach(), atol=2e-4)
    assert torch.allclose(ours._learnt["value.vector"], values[1].detach(), atol=2e-4)
    folded, x = ours.translators(), other._rows(7)[1]
    own = ours._translated(1, x, ours._learnt["value.matrix"][1], ours._learnt["value.vector"][1])
    assert torch.allclose(folded.one(1, x), own, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"block__residual": {"type": "serial", "norm_at": "post"}, "final_norm": None}, {"head__softcap": 3.0}],
    ids=["pre", "post", "capped"],
)
def test_a_tuned_lens_is_nearer_to_the_answer_than_the_logit_lens_on_text_that_it_has_not_read(changes):
    model = model_of(**changes)
    trainer = trainer_of(model)
    trainer.begin()
    logit, started = divergence(model, None), divergence(model, trainer.translators())
    tuned = divergence(model, trained(model).translators())
    assert tuned[3] == started[3] == 0
    assert (tuned[:3] < 0.5 * logit[:3]).all(), (logit, started, tuned)
    assert tuned[:3].sum() < started[:3].sum()


def test_nothing_of_the_model_is_changed_or_left_behind():
    model = model_of()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trained(model, steps=3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_training_that_is_taken_up_ends_with_the_same_bits():
    model = model_of()
    whole = trained(model, steps=9).translators()
    first, second = trainer_of(model, steps=9), trainer_of(model, steps=9)
    first.begin()
    for _ in range(4):
        first.step()
    second.restore(first.tensors(), 4)
    while not second.is_finished:
        second.step()
    assert torch.equal(second.translators().weight, whole.weight)
    assert torch.equal(second.translators().bias, whole.bias)
    other = trained(model, steps=9, seed=1).translators()
    assert not torch.equal(other.weight, whole.weight)


def test_held_out_windows_stop_when_enough_was_read():
    split = tokens(1000)
    assert sum(inputs.size for inputs, _ in held_out(split, 10, 95)) == 100
    assert sum(inputs.size for inputs, _ in held_out(split, 10, 10**9)) == 999


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"steps": -1}, "steps is -1; it must be at least 0"),
        ({"rows": 0}, "rows is 0; it must be at least 1"),
        ({"window": 1}, "window is 1; it must be at least 2"),
        ({"start_tokens": 1}, "start_tokens is 1; it must be at least 2"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must lie between 0 and 1"),
        ({"window": 10**6}, "window is 1000000, but the model's context has"),
    ],
)
def test_impossible_numbers_are_refused(numbers, says):
    with pytest.raises(UsageError, match=says):
        settings_for(model_of(), **numbers)


def test_a_model_without_layers_has_nothing_to_translate():
    with pytest.raises(UsageError, match="this model has no layers, so there is nothing to translate"):
        settings_for(small_model(base(0)))


def test_the_loss_of_a_step_is_the_divergence_of_its_rows():
    model = model_of()
    trainer = trainer_of(model)
    trainer.begin()
    states = trainer._rows(0)
    final = model.unembed(states[-1:])[0].log_softmax(-1).detach()
    layers = [
        model.unembed(trainer.translators().one(i, states[i])[None])[0].log_softmax(-1).detach() for i in range(3)
    ]
    wanted = np.mean([float(F.kl_div(one, final, log_target=True, reduction="batchmean")) for one in layers])
    assert trainer.step() == pytest.approx(wanted, rel=1e-4)


# Reading a text through it --------------------------------------------------------------------------------------------


def test_a_text_is_read_through_the_translators_of_the_layers_that_were_chosen():
    model = model_of()
    tuned = trained(model, steps=5).translators()
    ids = [3, 1, 4, 1, 5]
    every, some = logit_lens(model, ids, tuned=tuned), logit_lens(model, ids, tuned=tuned, layers=[2])
    assert some.values["layers"] == [2, 3]
    assert some.values["entropy_nats"][0] == pytest.approx(every.values["entropy_nats"][2], abs=1e-6)
    assert some.values["entropy_nats"][1] == pytest.approx(logit_lens(model, ids).values["entropy_nats"][3], abs=1e-6)
    stream = take_states(model, torch.tensor([ids])).values[2]
    probs = model.unembed(tuned.one(2, stream))[0].softmax(-1).detach().double()
    assert every.values["entropy_nats"][2] == pytest.approx((-probs * probs.log()).sum(-1).numpy(), abs=1e-5)
    assert "lens_is_tuned" in every.notes
    assert "lens_is_a_clue" not in every.notes
    with pytest.raises(UsageError, match="a tuned lens has translators after whole blocks alone"):
        logit_lens(model, ids, tuned=tuned, after_attention=True)
