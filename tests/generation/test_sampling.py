"""From logits to an id: the edges of every filter, ties, ids nobody knows, and a plain NumPy restatement of it all."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.specs import base
from small import small_model
from unembed.errors import InputError, UsageError
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import (
    GREEDY,
    REACHED,
    Sampling,
    check_sampling,
    draw,
    known_ids,
    known_logits,
    probabilities,
)

NAN, INF = math.nan, math.inf


def logs(*probs: float) -> torch.Tensor:
    return torch.tensor(probs, dtype=torch.float64).log()


def kept(probs: torch.Tensor) -> list[int]:
    return probs.nonzero()[:, 0].tolist()


def oracle(logits: np.ndarray, sampling: Sampling, seen: list[int]) -> np.ndarray:
    """The documented rules, one after the other, over Python lists."""
    scores = [float(s) for s in logits]
    if sampling.repetition_penalty is not None:
        for i in set(seen):
            scores[i] = (
                scores[i] / sampling.repetition_penalty if scores[i] > 0 else scores[i] * sampling.repetition_penalty
            )
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if sampling.temperature == 0:
        return np.eye(len(scores))[ranked[0]]
    weights = {i: math.exp((scores[i] - scores[ranked[0]]) / sampling.temperature) for i in ranked}
    if sampling.top_k is not None:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p is not None and sampling.top_p < 1:
        total, running, chosen = sum(weights[i] for i in ranked), 0.0, []
        for i in ranked:
            chosen.append(i)
            running += weights[i] / total
            if running >= sampling.top_p - REACHED:
                break
        ranked = chosen
    if sampling.min_p is not None:
        ranked = [i for i in ranked if weights[i] >= sampling.min_p * weights[ranked[0]]]
    total = sum(weights[i] for i in ranked)
    return np.array([weights[i] / total if i in ranked else 0.0 for i in range(len(scores))])


# --- A16a: temperature ------------------------------------------------------------------------------------


def test_temperature_zero_is_the_largest_score_every_time(generator):
    logits = torch.randn(50, generator=generator, dtype=torch.float64)
    best = int(logits.argmax())
    for _ in range(100):
        uniform = float(torch.rand((), generator=generator))
        assert draw(probabilities(logits, GREEDY), uniform) == best


def test_tiny_temperature_becomes_greedy_without_overflow():
    for logits in (torch.tensor([1e4, -1e4, 9_999.0]), torch.tensor([-1e300, -2e300, 0.0])):
        probs = probabilities(logits.double(), Sampling(temperature=1e-300))
        assert probs.tolist() == probabilities(logits.double(), GREEDY).tolist()


def test_temperature_divides_the_scores(generator):
    logits = torch.randn(9, generator=generator, dtype=torch.float64)
    for temperature in (0.3, 1.0, 5.0):
        probs = probabilities(logits, Sampling(temperature=temperature))
        torch.testing.assert_close(probs, (logits / temperature).softmax(-1), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("temperature", -0.1, "temperature is -0.1; it must be 0"),
        ("temperature", NAN, "temperature is nan; it must be 0"),
        ("temperature", INF, "temperature is inf; .* finite"),
        ("top_k", -1, "top-k is -1; it must be at least 1"),
        ("top_k", 0, "top-k is 0; it must be at least 1"),
        ("top_p", 1.01, "top-p is 1.01; it must lie between 0 and 1"),
        ("top_p", -0.5, "top-p is -0.5; it must lie between 0 and 1"),
        ("top_p", NAN, "top-p is nan; it must lie between 0 and 1"),
        ("min_p", 2.0, "min-p is 2.0; it must lie between 0 and 1"),
        ("min_p", NAN, "min-p is nan; it must lie between 0 and 1"),
        ("repetition_penalty", 0.0, "repetition-penalty is 0.0; it must be above 0"),
        ("repetition_penalty", -1.0, "repetition-penalty is -1.0; it must be above 0"),
        ("repetition_penalty", INF, "repetition-penalty is inf; it must be above 0"),
    ],
)
def test_messages_name_the_option(option, value, message):
    with pytest.raises(UsageError, match=message):
        check_sampling(Sampling(**{option: value}))


def test_good_options_pass_the_check_unchanged():
    options = Sampling(temperature=0.7, top_k=5, top_p=0.0, min_p=1.0, repetition_penalty=1.3)
    assert check_sampling(options) is options


# --- A16b, c: top-k and ties ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [32, 33, 100_000])
def test_top_k_of_the_whole_vocabulary_filters_nothing(k, generator):
    logits = torch.randn(32, generator=generator, dtype=torch.float64)
    assert torch.equal(probabilities(logits, Sampling(top_k=k)), probabilities(logits, Sampling()))


def test_top_1_with_a_tied_maximum_is_the_lower_id_and_equals_greedy(generator):
    logits = torch.tensor([0.0, 5.0, -1.0, 5.0, 5.0])
    for _ in range(100):
        assert draw(probabilities(logits.double(), Sampling(top_k=1)), float(torch.rand((), generator=generator))) == 1
    assert kept(probabilities(logits.double(), GREEDY)) == [1]


def test_ties_at_the_edge_go_to_the_lower_id_alone_and_in_a_batch():
    """A16c: of [1,2,2,2,3] the best three are the 3 and the first two 2s, whatever rows stand beside it."""
    logits = torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0])
    alone = probabilities(logits.double(), Sampling(top_k=3))
    assert kept(alone) == [1, 2, 4]
    batch = torch.stack([logits] * 8)
    assert all(torch.equal(probabilities(row.double(), Sampling(top_k=3)), alone) for row in batch)


def test_many_ties_are_ranked_by_id():
    """Long runs of equal scores leave the short-array sort of most libraries, and with it its stability."""
    assert kept(probabilities(torch.zeros(5000, dtype=torch.float64), Sampling(top_k=7))) == list(range(7))
    assert kept(probabilities(torch.zeros(5000, dtype=torch.float64), GREEDY)) == [0]


# --- A16d: top-p ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probs", "p", "expected"),
    [
        ((0.5, 0.41, 0.09), 0.9, [0, 1]),
        ((0.5, 0.3, 0.15, 0.05), 0.6, [0, 1]),
        ((0.5, 0.3, 0.15, 0.05), 0.85, [0, 1, 2]),
        ((0.4, 0.3, 0.2, 0.1), 0.8, [0, 1, 2]),
        ((0.3, 0.1, 0.1, 0.5), 0.8, [0, 3]),
        ((0.95, 0.05), 0.9, [0]),
        ((0.2, 0.5, 0.3), 0.0, [1]),
        ((0.2, 0.5, 0.3), 1.0, [0, 1, 2]),
        ((0.9999999, 0.00000005, 0.00000005), 1.0, [0, 1, 2]),
        ((0.25, 0.25, 0.25, 0.25), 0.5, [0, 1]),
    ],
)
def test_top_p_keeps_the_fewest_that_reach_p(probs, p, expected):
    got = probabilities(logs(*probs), Sampling(top_p=p))
    assert kept(got) == expected
    assert got.sum().item() == pytest.approx(1.0, abs=1e-15)
    total = sum(probs[i] for i in expected)
    assert [got[i].item() for i in expected] == pytest.approx([probs[i] / total for i in expected], rel=1e-12)


# --- min-p, penalty, order --------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "expected"), [(0.0, [0, 1, 2]), (0.25, [0, 1]), (0.51, [0]), (1.0, [0])])
def test_min_p_is_a_share_of_the_largest(p, expected):
    assert kept(probabilities(logs(0.6, 0.3, 0.1), Sampling(min_p=p))) == expected


def test_repetition_penalty_divides_positive_and_multiplies_negative_scores_once():
    logits = torch.tensor([2.0, -2.0, 1.0, 0.0], dtype=torch.float64)
    seen = torch.tensor([0, 1, 0, 0, 3])
    expected = torch.tensor([1.0, -4.0, 1.0, 0.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(probabilities(logits, Sampling(repetition_penalty=2.0), seen), expected)
    assert torch.equal(probabilities(logits, Sampling(repetition_penalty=1.0), seen), probabilities(logits, Sampling()))


def test_repetition_penalty_moves_the_greedy_choice():
    logits = torch.tensor([1.0, 0.9], dtype=torch.float64)
    assert kept(probabilities(logits, Sampling(temperature=0.0, repetition_penalty=1.2), torch.tensor([0]))) == [1]


@settings(deadline=None)
@given(
    scores=st.lists(st.floats(-30, 30, allow_nan=False).map(lambda x: round(x, 1)), min_size=1, max_size=24),
    temperature=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
    top_k=st.none() | st.integers(1, 30),
    top_p=st.none() | st.floats(0, 1),
    min_p=st.none() | st.floats(0, 1),
    penalty=st.none() | st.floats(0.5, 3),
    data=st.data(),
)
def test_oracle_and_properties_of_every_combination(scores, temperature, top_k, top_p, min_p, penalty, data):
    """Sums to 1, keeps a beginning of the ranked ids, and equals the plain restatement where no edge is a rounding away."""
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty)
    seen = data.draw(st.lists(st.integers(0, len(scores) - 1), max_size=5))
    logits = torch.tensor(scores, dtype=torch.float64)
    probs = probabilities(logits, sampling, torch.tensor(seen, dtype=torch.long))
    assert probs.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert (probs >= 0).all()
    penalised = probabilities(logits, Sampling(repetition_penalty=penalty), torch.tensor(seen, dtype=torch.long))
    ranked = sorted(range(len(scores)), key=lambda i: (-penalised[i].item(), i))
    chosen = kept(probs)
    if temperature != 0.2:  # a low temperature may underflow to 0 what was kept
        # ids of equal probability after the penalty may be ranked by scores that differ in the last bit
        floor = min(penalised[i].item() for i in chosen)
        outside = [penalised[i].item() for i in ranked if i not in chosen]
        assert all(p <= floor * (1 + 1e-9) for p in outside)
    expected = oracle(logits.numpy(), sampling, seen)
    n_expected = int((expected > 0).sum())
    assert abs(len(chosen) - n_expected) <= (0 if top_p is None and min_p is None else 1)
    if len(chosen) == n_expected:
        np.testing.assert_allclose(probs.numpy(), expected, rtol=1e-9, atol=1e-15)


# --- drawing ----------------------------------------------------------------------------------------------


def test_draw_hits_the_stretch_that_holds_the_number():
    probs = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0], dtype=torch.float64)
    expected = {0.0: 1, 0.2499: 1, 0.25: 3, 0.7499: 3, 0.75: 4, 1 - 2**-53: 4}
    assert {uniform: draw(probs, uniform) for uniform in expected} == expected


def test_draws_follow_the_probabilities(generator):
    """5,000 draws of four ids: every count within five standard deviations of its expectation."""
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    uniforms = torch.rand(5_000, generator=generator, dtype=torch.float64).tolist()
    counts = np.bincount([draw(probs, u) for u in uniforms], minlength=4)
    for count, p in zip(counts, probs.tolist(), strict=True):
        assert abs(count - 5_000 * p) < 5 * math.sqrt(5_000 * p * (1 - p))


@pytest.mark.parametrize("bad", [[0.0, NAN], [INF, 0.0], [-INF, -INF]])
def test_broken_scores_are_refused(bad):
    """A model whose weights are NaN ranks nothing; an id drawn from it all the same would look like an answer."""
    for sampling in (GREEDY, Sampling()):
        with pytest.raises(InputError, match=r"largest of the model's scores is .*try an earlier checkpoint"):
            probabilities(torch.tensor(bad, dtype=torch.float64), sampling)


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, Sampling(), Sampling(temperature=50.0), Sampling(top_k=4), Sampling(top_p=1.0), Sampling(min_p=0.0)],
    ids=str,
)
def test_a_score_of_minus_infinity_is_never_drawn_by_any_rule(sampling, generator):
    """A model may forbid ids itself: they stay at probability 0, also where a filter would keep everything."""
    logits = torch.tensor([-INF, 1.0, -INF, 0.0], dtype=torch.float64)
    probs = probabilities(logits, sampling)
    assert set(kept(probs)) <= {1, 3}
    assert probs.sum().item() == pytest.approx(1.0, abs=1e-15)
    assert {draw(probs, float(torch.rand((), generator=generator))) for _ in range(100)} <= {1, 3}
    assert draw(probs, 1 - 2**-53) in {1, 3}


@pytest.mark.parametrize("position", range(3))
def test_one_nan_anywhere_is_refused(position):
    logits = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    logits[position] = NAN
    with pytest.raises(InputError, match=r"largest of the model's scores is nan"):
        probabilities(logits, Sampling())


def test_equal_scores_are_drawn_alike_and_filters_keep_the_lower_ids():
    logits = torch.full((8,), 2.5, dtype=torch.float64)
    assert probabilities(logits, Sampling()).tolist() == [0.125] * 8
    assert kept(probabilities(logits, Sampling(top_p=0.5))) == [0, 1, 2, 3]
    assert kept(probabilities(logits, Sampling(top_p=0.51))) == [0, 1, 2, 3, 4]
    assert kept(probabilities(logits, Sampling(min_p=1.0))) == list(range(8))
    assert kept(probabilities(logits, Sampling(top_k=1))) == [0]


def test_one_token_in_the_vocabulary_is_certain():
    for sampling in (GREEDY, Sampling(top_k=1, top_p=0.0, min_p=1.0, repetition_penalty=3.0)):
        assert probabilities(torch.tensor([-4.0], dtype=torch.float64), sampling, torch.tensor([0])).tolist() == [1.0]


def test_repetition_penalty_counts_the_prompt_and_what_left_the_context():
    """By hand, with scores [2, -5, 1] and a penalty of 4: an id that occurred has 0.5, -20 or 0.25."""
    plain = base()
    plain["embedding"]["vocab_size"], plain["head"]["has_bias"], plain["head"]["scale"] = 3, True, 1e-300
    model = small_model(plain)
    with torch.no_grad():
        model.head.bias[:] = torch.tensor([2.0, -5.0, 1.0])
    penal = Sampling(temperature=0.0, repetition_penalty=4.0)
    (text,) = generate_ids(model, [[0]], n_tokens=3, sampling=penal, seeds=[0])
    assert text.ids == [2, 0, 0]  # 0.5 < 1; then 0.5 > 0.25
    (fresh,) = generate_ids(model, [[1]], n_tokens=3, sampling=penal, seeds=[0])
    assert fresh.ids == [0, 2, 0]
    (long,) = generate_ids(model, [[0] + [1] * 30], n_tokens=1, sampling=penal, seeds=[0])
    assert (long.ids, long.n_slides) == ([2], 1)  # the first id is out of sight and counts all the same


# --- A17: ids that the tokenizer does not know ------------------------------------------------------------


def test_unknown_ids_are_never_drawn_and_take_no_probability(generator):
    logits = torch.randn(64, generator=generator)
    logits[60:] = 50.0
    scores = known_logits(logits, known_ids(64, 60))
    assert scores[:60].log_softmax(-1).exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    assert (scores.log_softmax(-1).exp()[60:] == 0).all()
    for sampling in (GREEDY, Sampling(), Sampling(top_k=62), Sampling(top_p=0.99), Sampling(min_p=0.0)):
        probs = probabilities(scores, sampling)
        assert (probs[60:] == 0).all()
        for _ in range(200):
            assert draw(probs, float(torch.rand((), generator=generator))) < 60


def test_generation_never_returns_an_unknown_id():
    """The last four rows of the table are given the largest scores; 1,000 draws and greedy stay below them."""
    plain = base()
    plain["head"]["has_bias"] = True
    model = small_model(plain)
    with torch.no_grad():
        model.head.bias[9:] = 1e4
    for sampling in (GREEDY, Sampling()):
        texts = generate_ids(model, [[1]] * 100, n_tokens=10, sampling=sampling, seeds=range(100), n_known=9)
        assert max(i for text in texts for i in text.ids) < 9
        assert all(math.exp(p) <= 1 for text in texts for p in text.logprobs)
    assert min(p for text in texts for p in text.logprobs) > -100  # of the nine ids, not beside 1e4
