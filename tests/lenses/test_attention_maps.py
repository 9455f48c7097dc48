"""Attention maps: patterns are the oracle's, scores those of plain loops, a model made by hand has the heads it was given."""

import math

import numpy as np
import pytest
import torch

from lenses.induction import induction_model
from oracles.mixtures import random_spec
from oracles.specs import base, variants
from oracles.transformer import run as oracle_run
from oracles.weights import draw as draw_weights
from small import small_model
from unembed.errors import UsageError
from unembed.lenses import attention_maps as module
from unembed.lenses import head_scores as scores
from unembed.lenses.attention_maps import Watch, attention_maps, random_repeats
from unembed.lenses.attribution import attribute
from unembed.lenses.head_scores import head_scores, repeats
from unembed.pictures import draw

VARIANTS = variants()
IDS = [1, 2, 5, 4, 1, 1, 2, 7]
KINDS = (
    "plain",
    "grouped_query",
    "multi_query",
    "window_3",
    "alibi_4_heads",
    "score_softcap",
    "bidirectional",
    "rotary",
)


def slow_scores(pattern, ids):
    """The scores of one head [pos, key_pos] as plain loops; the oracle."""
    n = len(ids)
    later = range(1, n)
    earlier = {q: [j for j in range(q) if ids[j] == ids[q]] for q in range(n)}
    after = {q: [j + 1 for j in earlier[q] if j + 1 < q] for q in range(n)}

    def mean(values):
        values = list(values)
        return sum(values) / len(values) if values else None

    return {
        "previous": mean(pattern[q][q - 1] for q in later),
        "first": mean(pattern[q][0] for q in later),
        "itself": mean(pattern[q][q] for q in later),
        "same_token": mean(sum(pattern[q][j] for j in earlier[q]) for q in range(n) if earlier[q]),
        "induction": mean(sum(pattern[q][j] for j in after[q]) for q in range(n) if after[q]),
        "entropy_nats": mean(-sum(w * math.log(w) for w in pattern[q] if w > 0) for q in later),
    }


def check(spec):
    patterns = oracle_run(spec, draw_weights(spec, 0), [IDS])
    for layer, block in enumerate(spec["blocks"]):
        expected = patterns[f"blocks.{layer}.attn_pattern"][0]
        found = attention_maps(small_model(spec), IDS, layer=layer)
        np.testing.assert_allclose(found.values["patterns"], expected, atol=1e-12)
        assert found.tables["heads"].n_rows == block["attention"]["n_heads"]
        for row in found.tables["heads"].rows():
            for name, value in slow_scores(expected[row["head"]].tolist(), IDS).items():
                assert row[name] == pytest.approx(value, abs=1e-10), name
        whole = np.zeros_like(expected)
        for row in found.tables["weights"].rows():
            whole[row["head"], row["position"], row["key_position"]] = row["share"]
        np.testing.assert_allclose(whole, expected, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_oracle_patterns_and_scores(name):
    check(VARIANTS[name])


@pytest.mark.parametrize("seed", range(4))
def test_oracle_random_mixtures(seed):
    check(random_spec(seed))


def test_constructed_model_has_its_two_heads_and_no_other():
    model = induction_model()
    found = attention_maps(model, [3, 1, 4, 2, 3, 1, 4, 2]).tables["heads"].rows()
    by_head = {(row["layer"], row["head"]): row for row in found}
    for name in ("induction", "induction_repeated"):
        assert by_head[1, 0][name] > 0.99
        assert max(row[name] for key, row in by_head.items() if key != (1, 0)) < 0.3
    assert by_head[0, 0]["previous"] > 0.99
    assert max(row["previous"] for key, row in by_head.items() if key != (0, 0)) < 0.5
    logits = model(torch.tensor([[3, 1, 4, 2, 3, 1]]))
    assert int(logits[0, -1].argmax()) == 4  # what followed the 1 before
    parts = attribute(model, [3, 1, 4, 2, 3, 1], target=4, against=1).tables["strongest"]
    assert parts["term"][0] == "L1H0"


def test_constructed_model_keeps_its_score_where_a_token_stands_three_times():
    """Weights are then split between both places after it; the score is what both get together."""
    (row,) = attention_maps(induction_model(), [3, 1, 3, 2, 3, 4, 3], layer=1, head=0).tables["heads"].rows()
    assert row["induction"] > 0.99
    assert row["same_token"] < 0.01


def test_looking_changes_no_bit_of_the_same_path_and_little_of_the_other():
    model = small_model(VARIANTS["grouped_query"])
    ids = torch.tensor([IDS])
    with torch.no_grad():
        plain = model(ids, attention="explicit")
        assert torch.equal(model(ids, attention="explicit", tap=Watch([IDS], 1)), plain)
        assert float((model(ids) - plain).abs().max()) < 1e-12


def test_random_tokens_stand_twice_and_no_oftener_and_the_seed_decides():
    model = small_model(base())
    rows = random_repeats(model)
    assert [len(row) for row in rows] == [12] * module.N_SEQUENCES
    for row in rows:
        assert row[:6] == row[6:]
        assert len(set(row)) == 6
    assert rows == random_repeats(model)
    assert rows != random_repeats(model, seed=1)


def test_where_a_token_stood_before_and_what_came_after_it():
    same, after = repeats([7, 8, 7, 7, 8])
    assert same.nonzero().tolist() == [[2, 0], [3, 0], [3, 2], [4, 1]]
    assert after.nonzero().tolist() == [[2, 1], [3, 1], [4, 2]]


def test_no_repetition_has_no_induction_and_one_token_no_score():
    rows = attention_maps(small_model(base()), [1, 2, 3]).tables["heads"].rows()
    assert {row["induction"] for row in rows} == {None}
    assert all(0 <= row["induction_repeated"] <= 1 for row in rows)
    alone = attention_maps(small_model(base()), [1]).tables["heads"].rows()
    assert len(alone) == 8
    assert {row["previous"] for row in alone} == {None}


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ((scores, "repeats"), lambda ids: (repeats(ids)[1], repeats(ids)[0])),
        ((module, "head_scores"), lambda pattern, ids: head_scores(pattern.transpose(1, 2), ids)),
        ((module, "head_scores"), lambda pattern, ids: head_scores(pattern.flip(0), ids)),
        ((torch.special, "xlogy"), lambda a, b: a * b),
    ],
    ids=["same and after exchanged", "queries and keys exchanged", "heads exchanged", "entropy without its logarithm"],
)
def test_seeded_mutation_is_caught_by_the_oracle(place, change, monkeypatch, unchecked):
    monkeypatch.setattr(*place, change)
    with pytest.raises(AssertionError):
        check(VARIANTS["plain"])


def test_pictures_and_keys_of_the_tables():
    found = attention_maps(small_model(base()), IDS)
    assert [picture.key for picture in found.pictures] == ["head_scores"]
    assert draw(found.pictures[0], found.tables, lang="es")
    one = attention_maps(small_model(base()), IDS, layer=0, head=3)
    assert [picture.key for picture in one.pictures] == ["attention"]
    assert one.values["patterns"].shape == (1, 8, 8)
    assert set(one.tables["attended"]["head"]) == {3}
    long = attention_maps(small_model(base()), IDS * 4, layer=0)
    assert long.pictures == ()
    assert "text_is_longer_than_the_context" in long.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2}, "layer is 2; layers run from 0 to 1"),
        ({"layer": -1}, "layer is -1"),
        ({"layer": 0, "head": 4}, "head is 4; heads run from 0 to 3"),
        ({"head": 1}, "a head is one of a layer; name the layer too"),
    ],
)
def test_message_for_what_is_not_there(options, message):
    with pytest.raises(UsageError, match=message):
        attention_maps(small_model(base()), IDS, **options)
