"""The streamed reading against loops in float64: every statistic, every way to cut the work, and faults that it must show."""

import numpy as np
import pytest
import torch

from oracles import lens as oracle
from oracles.mixtures import random_spec
from oracles.specs import variants
from unembed.lenses import measures, reading
from unembed.lenses.measures import STATISTICS, best, settled
from unembed.lenses.reading import read
from unembed.model.check import from_plain
from unembed.model.transformer import Transformer

N_LAYERS, N_POS, N_TOP = 5, 7, 4
D = 24


def bare(n_vocab=61, *, cap=None, scale=None, bias=False, dtype=torch.float64, seed=0):
    """No blocks, no norm: scores are states times a table, so that any scores can be made."""
    plain = random_spec(0) | {"blocks": [], "final_norm": None}
    plain["embedding"] = variants()["plain"]["embedding"] | {"vocab_size": n_vocab, "d_model": D}
    plain["head"] = {"type": "untied", "transform": None, "has_bias": bias, "scale": scale, "softcap": cap}
    model = Transformer(from_plain(plain)).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return model.to(dtype)


def states_for(seed=1, n_layers=N_LAYERS, n_pos=N_POS, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    last = torch.randn(1, n_pos, D, generator=generator, dtype=torch.float64)
    away = torch.randn(n_layers, n_pos, D, generator=generator, dtype=torch.float64)
    return (last + away * torch.linspace(1.5, 0, n_layers)[:, None, None]).to(dtype)


def scores_of(model, states):
    """The scores in NumPy, from the arrays alone."""
    head = model.spec.head
    x = states.detach().double().numpy() * (1.0 if head.scale is None else head.scale)
    scores = x @ model.head.table.detach().double().numpy().T
    scores = scores if model.head.bias is None else scores + model.head.bias.detach().double().numpy()
    return scores if head.softcap is None else head.softcap * np.tanh(scores / head.softcap)


def targets_for(n_vocab, n_pos=N_POS):
    generator = torch.Generator().manual_seed(9)
    targets, following = torch.randint(0, n_vocab, (2, n_pos), generator=generator)
    following[-1] = -1
    targets[2] = -1
    return targets, following


def numbers(found):
    """What the raw numbers of a reading say, by the oracle's names."""
    raw = {name: value.double().numpy() for name, value in found.numbers.items()}
    total = raw["logsumexp_nats"]
    return {
        **{name: raw[name] for name in ("entropy_nats", "kl_to_final_nats", "js_to_final_nats", "tv_to_final")},
        "logsumexp_nats": total,
        "top_ids": raw["top_ids"],
        "top_probabilities": np.exp(raw["top_scores"] - total[..., None]),
        "target_logit": raw["target_logit"],
        "target_logprob": raw["target_logit"] - total,
        "target_probability": np.exp(raw["target_logit"] - total),
        "target_rank": raw["target_rank"],
        "cross_entropy_nats": total - raw["following_logit"],
    }


def check(model, states, found, targets, following, tolerance):
    absent = [None if i < 0 else i for i in targets.tolist()], [None if i < 0 else i for i in following.tolist()]
    expected = oracle.statistics(scores_of(model, states), targets=absent[0], following=absent[1], n_top=N_TOP)
    got = numbers(found)
    for name, values in expected.items():
        if name in ("agrees", "settled"):
            continue
        for layer, row in enumerate(values):
            for pos, value in enumerate(row):
                where = f"{name}, layer {layer}, position {pos}"
                mine = got[name][layer][pos]
                if value is None:
                    continue
                if name == "target_rank":
                    assert value[0] <= mine <= value[1], where
                elif name == "top_ids":
                    assert mine.tolist() == value, where
                else:
                    np.testing.assert_allclose(mine, value, rtol=0, atol=tolerance, err_msg=where)
    assert settled(found.numbers["top_ids"][..., 0].T, list(range(len(states)))) == expected["settled"]


def all_of(model, states, **options):
    targets, following = targets_for(len(model.head.table), states.shape[1])
    found = read(model, states, n_top=N_TOP, targets=targets, following=following, **options)
    return found, targets, following


@pytest.mark.parametrize("n_vocab", [7, 61, 3001])
@pytest.mark.parametrize("head", [{}, {"cap": 2.5, "scale": 0.7, "bias": True}])
def test_oracle_every_statistic_in_float64(n_vocab, head):
    model, states = bare(n_vocab, **head), states_for()
    found, targets, following = all_of(model, states)
    check(model, states, found, targets, following, 1e-10)
    assert found.identity_error <= 1e-10


def test_oracle_every_statistic_in_float32():
    """Of scores up to 20: an entropy is a sum of 3,001 terms of up to 0.1, each rounded to 24 bits."""
    model, states = bare(3001, dtype=torch.float32), states_for(dtype=torch.float32)
    found, targets, following = all_of(model, states)
    check(model, states, found, targets, following, 2e-5)


@pytest.mark.parametrize(("at_once", "slab"), [(1, 1), (61 * 3, 1), (61 * 5 * 2, 61 * 5), (61 * 5 * 3, 61 * 5 * 2)])
def test_oracle_however_the_work_is_cut(monkeypatch, at_once, slab):
    """One layer beside the last at a time, a few layers, chunks and slabs of a few positions with an odd rest."""
    monkeypatch.setattr(reading, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(reading, "SLAB_SCORES", slab)
    model, states = bare(), states_for()
    found, targets, following = all_of(model, states)
    check(model, states, found, targets, following, 1e-10)
    assert found.identity_error <= 1e-10


MUTATIONS = {
    "scores one layer on": lambda s: s.roll(1, 1),
    "scores one position on": lambda s: s.roll(1, 0),
    "a column left out": lambda s: s.index_fill(-1, torch.tensor([s.shape[-1] - 1]), -30.0),
    "twice as sure": lambda s: s * 2,
    "a constant more": lambda s: s + 1.0,
    "the last layer for all": lambda s: s[:, -1:].expand_as(s).clone(),
    "one score rounded": lambda s: s.index_copy(-1, torch.tensor([3]), s[..., 3:4].round()),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_oracle_sees_faults_in_the_scores(monkeypatch, name):
    """Each fault is planted into every chunk of scores on its way to the statistics."""
    whole = measures.measure
    monkeypatch.setattr(reading, "measure", lambda scores, *rest: whole(MUTATIONS[name](scores), *rest))
    model, states = bare(), states_for()
    found, targets, following = all_of(model, states)
    with pytest.raises(AssertionError):
        check(model, states, found, targets, following, 1e-6)


SWAPPED = {
    "entropy_nats": "kl_to_final_nats",
    "kl_to_final_nats": "js_to_final_nats",
    "js_to_final_nats": "tv_to_final",
    "target_logit": "following_logit",
    "logsumexp_nats": "entropy_nats",
}


@pytest.mark.parametrize("name", SWAPPED)
def test_oracle_sees_one_number_in_the_place_of_another(name):
    model, states = bare(), states_for()
    found, targets, following = all_of(model, states)
    found.numbers[name] = found.numbers[SWAPPED[name]]
    with pytest.raises(AssertionError):
        check(model, states, found, targets, following, 1e-6)


@pytest.mark.parametrize("n", [1, 5, 11])
def test_best_tokens_are_those_of_a_sort(n):
    scores = torch.from_numpy(oracle.random_scores(3, 4, 5003, seed=n))
    values, ids = torch.empty(3, 4, n, dtype=torch.float64), torch.empty(3, 4, n, dtype=torch.long)
    best(scores, values, ids)
    order = np.argsort(-scores.numpy(), -1)[..., :n]
    assert ids.tolist() == order.tolist()
    assert torch.equal(values, scores.gather(-1, ids))


@pytest.mark.parametrize("place", [0, 63, 64, 2559, 2560, 2599])
def test_best_token_is_found_wherever_it_stands(place):
    """2,600 scores are 40 columns of 64 and a rest of 40."""
    scores = torch.zeros(1, 1, 2600)
    scores[0, 0, place] = 1.0
    values, ids = torch.empty(1, 1, 2), torch.empty(1, 1, 2, dtype=torch.long)
    best(scores, values, ids)
    assert ids[0, 0, 0] == place
    assert ids[0, 0, 1] != place


def test_best_of_equal_scores_are_different_tokens():
    values, ids = torch.empty(1, 1, 5), torch.empty(1, 1, 5, dtype=torch.long)
    best(torch.ones(1, 1, 4000), values, ids)
    assert len(set(ids.flatten().tolist())) == 5


@pytest.mark.parametrize("statistic", STATISTICS)
def test_one_statistic_alone_is_the_same_as_among_all(statistic):
    model, states = bare(3001), states_for()
    together, targets, following = all_of(model, states)
    alone = read(model, states, statistics=[statistic], n_top=N_TOP, targets=targets, following=following)
    for name, value in alone.numbers.items():
        whole = together.numbers[name]
        torch.testing.assert_close(value, whole[..., : value.shape[-1]] if value.ndim == 3 else whole, rtol=0, atol=0)


def test_rows_without_a_token_are_left_out_of_everything():
    model, states = bare(), states_for()
    targets, following = targets_for(50)
    found = read(model, states, n_top=N_TOP, n_known=50, targets=targets, following=following)
    small = bare(50)
    small.head.table.data.copy_(model.head.table.data[:50])
    check(small, states, found, targets, following, 1e-10)


def test_identity_error_shows_a_last_layer_that_is_not_the_models(monkeypatch):
    model, states = bare(), states_for()
    own = model.unembed
    monkeypatch.setattr(model, "unembed", lambda resid: own(resid) + 0.25)
    assert read(model, states).identity_error == pytest.approx(0.25)
    monkeypatch.setattr(model, "unembed", lambda resid: own(resid) * float("nan"))
    assert np.isnan(read(model, states).identity_error)
    assert read(model, states, checks_identity=False).identity_error is None


def test_translator_changes_every_state_but_the_last(monkeypatch):
    monkeypatch.setattr(reading, "SCORES_AT_ONCE", 61 * 3)
    model, states = bare(), states_for()
    factors = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0]).double()[:, None, None]
    found = read(model, states, translate=lambda layers, chunk: chunk * factors[list(layers)])
    factors[-1] = 1
    expected = read(model, states * factors)
    for name, value in expected.numbers.items():
        torch.testing.assert_close(found.numbers[name], value, rtol=0, atol=1e-12)
    assert found.identity_error <= 1e-12


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_scores_are_the_models_own(name):
    dtype = getattr(torch, name)
    model, states = bare(dtype=dtype), states_for(dtype=dtype)
    found, _, _ = all_of(model, states)
    with torch.no_grad():
        own = model.unembed(states)
    assert found.identity_error <= 1e-2 * float(own.abs().max())
    exact = torch.softmax(own.double(), -1)
    assert torch.allclose(found.numbers["entropy_nats"].double(), -(exact * exact.log()).sum(-1), atol=5e-3)
    assert all(value.dtype in (torch.float32, torch.int64) for value in found.numbers.values())


def test_large_scores_keep_their_digits():
    """Scores around 1,000, as some models have: the sums must not see the size that all of a row share."""
    model, states = bare(3001, dtype=torch.float32), states_for(dtype=torch.float32)
    plain = read(model, states)
    bias = torch.nn.Parameter(torch.full((3001,), 1024.0))
    model.head.bias = bias
    shifted = read(model, states)
    for name in ("entropy_nats", "kl_to_final_nats", "js_to_final_nats", "tv_to_final"):
        torch.testing.assert_close(shifted.numbers[name], plain.numbers[name], rtol=1e-3, atol=1e-3)
