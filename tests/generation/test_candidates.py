"""The candidates of each draw: their numbers against the model's own, and the rule that cut each of them."""

import json
import math

import numpy as np
import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.errors import InputError, UsageError
from unembed.tokenizers.characters import CharacterTokenizer

COLUMNS = ["step", "rank", "id", "token", "logit", "logprob", "probability", "rule", "drawn"]


def model_with_scores(scores, n_rows=None, tokenizer=None):
    """A model that gives every position these scores: its stream counts for nothing, its head's bias for all."""
    plain = changed(base(), embedding__vocab_size=n_rows or len(scores))
    plain["head"]["has_bias"] = True
    plain["head"]["scale"] = 1e-300
    model = small_model(plain)
    with torch.no_grad():
        model.head.bias[:] = torch.tensor(scores, dtype=torch.float64)
    model.tokenizer = tokenizer
    return model


def rules(result, step=0):
    table = result.tables["candidates"]
    return {int(i): r for i, r, s in zip(table["id"], table["rule"], table["step"], strict=True) if s == step}


PROBS = [0.05, 0.4, 0.3, 0.15, 0.1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {1: "kept", 2: "kept", 3: "kept", 4: "kept", 0: "kept"}),
        ({"top_k": 2}, {1: "kept", 2: "kept", 3: "top_k", 4: "top_k", 0: "top_k"}),
        ({"top_p": 0.7}, {1: "kept", 2: "kept", 3: "top_p", 4: "top_p", 0: "top_p"}),
        ({"min_p": 0.3}, {1: "kept", 2: "kept", 3: "kept", 4: "min_p", 0: "min_p"}),
        ({"top_k": 4, "top_p": 0.85, "min_p": 0.5}, {1: "kept", 2: "kept", 3: "min_p", 4: "top_p", 0: "top_k"}),
        ({"temperature": 0.0}, {1: "kept", 2: "greedy", 3: "greedy", 4: "greedy", 0: "greedy"}),
        ({"temperature": 0.0005}, {1: "kept", 2: "kept", 3: "zero", 4: "zero", 0: "zero"}),
        ({"temperature": 0.0005, "top_k": 4}, {1: "kept", 2: "kept", 3: "zero", 4: "zero", 0: "top_k"}),
    ],
)
def test_each_filter_signs_what_it_cut(options, expected):
    """Worked by hand: of .4 .3 .15 .1 .05, the first to reach .85 of the four are three, and half of .4 is above .15."""
    result = unembed.candidates(model_with_scores(np.log(PROBS)), ids=[1], **options)
    assert rules(result) == expected
    table, kept = result.tables["candidates"], [i for i, rule in expected.items() if rule == "kept"]
    temperature = options.get("temperature", 1.0) or 1.0
    weight = {i: PROBS[i] ** (1 / temperature) if i in kept else 0.0 for i in expected}
    if temperature != 0.0005:
        shares = [weight[i] / sum(weight.values()) for i in expected]
        np.testing.assert_allclose(table["probability"].astype(float), shares, rtol=1e-9)
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(np.exp(table["logprob"].astype(float)), [PROBS[i] for i in expected], rtol=1e-9)
    steps = result.tables["steps"]
    assert steps["kept"].tolist() == [len(kept)]
    assert steps["kept_mass"][0] == pytest.approx(sum(PROBS[i] for i in kept), rel=1e-9)


def test_rows_that_no_token_has_stand_where_their_score_puts_them_and_are_never_drawn():
    """A17: two padded rows with the largest scores of all; top-k counts the known ids alone."""
    tokenizer = CharacterTokenizer.from_text("abc")
    model = model_with_scores([0.0, 1.0, 2.0, 9.0, 8.0], tokenizer=tokenizer)
    for options in ({}, {"temperature": 0.0}, {"top_k": 1}):
        result = unembed.candidates(model, "a", tokens=5, top=3, seed=4, **options)
        found = rules(result)
        assert [found[3], found[4]] == ["unknown", "unknown"]
        table = result.tables["candidates"]
        first = table["step"] == 0
        assert table["token"][first].tolist()[:3] == ["<unused 3>", "<unused 4>", "c"]
        unknown = table["rule"] == "unknown"
        assert set(table["logprob"][unknown]) == {-math.inf}
        assert not table["drawn"][unknown].any()
        assert max(result.values["ids"]) < 3
    assert found[2] == "kept"


def test_the_drawn_id_has_a_row_wherever_it_stands_and_the_numbers_are_the_models():
    model = small_model()
    result = unembed.candidates(model, ids=[3, 1], tokens=8, top=2, temperature=3.0, seed=1)
    table, made = result.tables["candidates"], result.values
    assert list(table.columns) == COLUMNS
    assert table["id"][table["drawn"]].tolist() == made["ids"] == result.tables["steps"]["id"].tolist()
    np.testing.assert_allclose(table["logprob"][table["drawn"]], made["logprobs"], rtol=1e-12)
    assert max(table["rank"]) > 2  # a hot draw went past the two best
    with torch.no_grad():
        scores = model(torch.tensor([[3, 1, *made["ids"]]]))[0]
    for step, token_id, logit, rank in zip(table["step"], table["id"], table["logit"], table["rank"], strict=True):
        row = scores[1 + int(step)]
        assert logit == pytest.approx(float(row[int(token_id)]), rel=1e-9)
        assert rank == 1 + int((row > row[int(token_id)]).sum())
    assert made["text"] is None
    assert set(table["token"]) == {None}


def test_the_penalty_moves_ranks_and_not_the_models_own_numbers():
    result = unembed.candidates(model_with_scores([2.0, 1.5, -1.0]), ids=[0, 2], repetition_penalty=2.0)
    table = result.tables["candidates"]
    assert table["id"].tolist() == [1, 0, 2]  # 2.0 / 2, and -1.0 * 2
    np.testing.assert_allclose(table["logit"], [1.5, 2.0, -1.0], rtol=1e-12)
    weights = np.exp([1.5, 1.0, -2.0])
    np.testing.assert_allclose(table["probability"], weights / weights.sum(), rtol=1e-12)


def test_an_end_token_that_was_drawn_has_its_rows():
    tokenizer = CharacterTokenizer.from_text("ab", has_end=True)
    result = unembed.candidates(model_with_scores([0.0, 0.0, 50.0], tokenizer=tokenizer), "ab", tokens=4)
    assert (result.values["ids"], result.values["stopped"]) == ([], "end")
    assert result.tables["steps"]["token"].tolist() == ["<end>"]
    assert rules(result)[2] == "kept"


def test_it_is_the_text_that_generate_writes():
    model = model_with_scores(np.log(PROBS), tokenizer=CharacterTokenizer.from_text("abcde"))
    options = {"tokens": 12, "temperature": 1.3, "top_p": 0.9, "seed": 3, "stop": ["bb", "cc"]}
    assert unembed.candidates(model, "a", **options).values == unembed.generate(model, "a", **options).values


def test_no_tokens_no_rows_and_a_notebook_shows_hostile_tokens_escaped():
    model = model_with_scores([0.0, 1.0, 2.0], tokenizer=CharacterTokenizer.from_text('<"&'))
    assert unembed.candidates(model, "<", tokens=0).tables["candidates"].n_rows == 0
    shown = unembed.candidates(model, "<", tokens=2)._repr_html_()
    assert "&lt;" in shown
    assert "<td><</td>" not in shown
    assert json.dumps(unembed.candidates(model, "<", tokens=2).to_dict())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("top", [0, -1, True, 2.0, "3", None])
def test_messages(top):
    with pytest.raises(UsageError, match=r"top is .*; it must be at least 1, a whole number: so many candidates"):
        unembed.candidates(small_model(), ids=[1], top=top)
    with pytest.raises(UsageError, match="candidates: give either a prompt or ids, not both"):
        unembed.candidates(small_model(), "a", ids=[1])
    with pytest.raises(InputError, match="this model has no tokenizer"):
        unembed.candidates(small_model(), "a")
