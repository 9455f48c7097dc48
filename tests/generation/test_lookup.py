"""Prompt lookup: guesses change no id, with ties neither, and save forwards where a text repeats itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.test_any_spec import causal_spec
from generation.test_decode import SPECS
from oracles.specs import base, changed
from small import small_model
from unembed.errors import UsageError
from unembed.generation.candidates import look
from unembed.generation.decode import generate_ids
from unembed.generation.lookup import Lookup, check_lookup
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.texts import Writing, continue_text
from unembed.generation.weights.copies import with_weights

pytestmark = pytest.mark.usefixtures("unchecked")
LONG = changed(base(), block__attention__position={"type": "alibi"})
LONG["context_length"] = 200


def both(model, prompt, n_guesses=4, **options):
    """The same text without guesses and with them."""
    options = {"n_tokens": 40, "sampling": GREEDY, "seeds": [0]} | options
    return (generate_ids(model, [prompt], **options, lookup=n)[0] for n in (0, n_guesses))


def same(plain, guessed):
    assert guessed.ids == plain.ids
    assert (guessed.stopped, guessed.n_slides) == (plain.stopped, plain.n_slides)
    assert guessed.logprobs == pytest.approx(plain.logprobs, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*SPECS, "long"])
def test_guesses_change_no_id(name, dtype):
    model = small_model(LONG if name == "long" else SPECS[name], dtype=dtype)
    for prompt in ([3, 1, 4, 3, 1, 4, 3, 1], [5], [2, 2, 2, 2]):
        for n_guesses in (1, 3, 8):
            same(*both(model, prompt, n_guesses))


@pytest.mark.parametrize("seed", range(10))
def test_property_guesses_change_no_id_in_any_mixture(seed):
    model = small_model(causal_spec(seed), seed=seed, dtype=torch.float32)
    same(*both(model, [1, 2, 1, 2, 1], 6))
    same(*both(model, [1, 2, 1, 2, 1], 6, past_context="stop"))


def test_guesses_save_forwards_where_a_text_repeats_itself():
    model = small_model(LONG, dtype=torch.float32)
    plain, guessed = both(model, [3, 1, 4], 8, n_tokens=120)
    same(plain, guessed)
    assert plain.n_forwards == 120
    assert (plain.n_guessed, plain.n_guessed_right) == (0, 0)
    assert guessed.n_forwards < 40
    assert guessed.n_forwards + guessed.n_guessed_right >= 120
    assert 0 < guessed.n_guessed_right <= guessed.n_guessed


def tied_rows(dtype=torch.float32):
    """A model in which each row of the table but the first stands twice: every choice is between equals."""
    model = small_model(LONG, dtype=dtype)
    with torch.no_grad():
        table = model.unembed_table()
        table[7:13] = table[1:7]
    return model


@pytest.mark.parametrize("prompt", [[3, 1, 4, 3, 1, 4], [9, 3, 9, 3], [12, 6]])
def test_equals_are_told_apart_as_without_guesses(prompt):
    """By the last bits, which differ from kernel to kernel: a row's may depend on where it stands."""
    model = tied_rows()
    plain, guessed = both(model, prompt, 4)
    same(plain, guessed)
    assert guessed.logprobs == plain.logprobs  # all is computed again, as without guesses, to the last bit


def test_seeded_without_the_second_look_a_near_tie_goes_wrong(monkeypatch):
    """Scores after guesses that are off by 1e-6 turn a tie: the second look is what keeps the text."""
    model = tied_rows()
    plain, _ = both(model, [3, 1, 4, 3, 1, 4], 0)
    forward = type(model).unembed

    def nudged(self, resid, **rest):
        logits = forward(self, resid, **rest)
        if resid.shape[1] in (1, 6):
            return logits
        return logits + 1e-6 * torch.arange(logits.shape[-1])

    monkeypatch.setattr(type(model), "unembed", nudged)
    _, guessed = both(model, [3, 1, 4, 3, 1, 4], 4)
    assert guessed.n_guessed > 0
    assert guessed.ids == plain.ids
    monkeypatch.setattr("unembed.generation.window._NEAR", -1)
    _, careless = both(model, [3, 1, 4, 3, 1, 4], 4)
    assert careless.ids != plain.ids


def test_penalties_ends_stops_and_candidates_go_with_guesses():
    model = small_model(LONG, dtype=torch.float32)
    prompt = [3, 1, 4, 3, 1]
    same(*both(model, prompt, sampling=Sampling(temperature=0.0, repetition_penalty=1.3)))
    end = generate_ids(model, [prompt], n_tokens=40, sampling=GREEDY, seeds=[0])[0].ids[9]
    same(*both(model, prompt, end_id=end))
    same(*both(model, prompt, ends_at=lambda row, chosen: chosen == end))
    same(*both(model, prompt, n_known=9, gaps=[2]))
    tables = []
    for lookup in (0, 5):
        writing = Writing(model, ids=prompt)
        tables.append(look(model, writing, n_top=3, n_tokens=20, sampling=GREEDY, seed=0, lookup=lookup))
    for column in ("step", "id", "rank", "rule", "drawn"):
        first, second = (list(table.tables["candidates"].columns[column]) for table in tables)
        assert first == second
    assert continue_text(model, ids=prompt, n_tokens=9, sampling=GREEDY, seed=0, lookup=3).values["ids"]


def test_many_texts_are_not_guessed():
    model = small_model(LONG, dtype=torch.float32)
    prompts = [[3, 1, 4], [1, 5, 9, 2]]
    options = {"n_tokens": 20, "sampling": GREEDY, "seeds": [0, 1]}
    assert generate_ids(model, prompts, **options, lookup=4) == generate_ids(model, prompts, **options)


@pytest.mark.parametrize("wrong", [-1, 65, 1.5, True, "4", None])
def test_how_many_guesses_there_can_be(wrong):
    with pytest.raises(UsageError, match=r"it must be a whole number from 0 to 64: so many guesses"):
        check_lookup(wrong)


def test_guesses_are_refused_where_they_could_change_the_text():
    model = small_model(LONG, dtype=torch.float32)
    options = {"n_tokens": 3, "seeds": [0], "lookup": 2}
    with pytest.raises(UsageError, match=r"give temperature 0 \(--greedy\) with it"):
        generate_ids(model, [[1]], sampling=Sampling(temperature=0.5), **options)
    with pytest.raises(UsageError, match=r"goes through exact weights.*Take float32 weights with it"):
        generate_ids(with_weights(model, "bfloat16"), [[1]], sampling=GREEDY, **options)


def guesses_by_hand(ids, n_most):
    """The longest end of the text, three tokens or two, that stood before; the latest such place counts."""
    for length in (3, 2):
        for begin in range(len(ids) - length - 1, -1, -1):
            if len(ids) > length and ids[begin : begin + length] == ids[-length:]:
                loop = ids[begin + length :]
                return (loop * n_most)[:n_most]
    return []


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 6))
def test_property_guesses_are_those_of_a_search_by_hand(ids, n_most):
    lookup = Lookup()
    for end in range(1, len(ids) + 1):
        assert lookup.guesses(ids[:end], n_most) == guesses_by_hand(ids[:end], n_most)
