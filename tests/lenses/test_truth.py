"""The lens against the truth: layers that say known distributions are marked as they must be."""

import numpy as np
import pytest
import torch

from oracles.specs import base, changed
from small import small_model
from unembed.corpora.grammar import grammar
from unembed.lenses import truth
from unembed.lenses.states import States
from unembed.lenses.translators import Translators
from unembed.tokenizers.words import WordTokenizer

LENGTH = 12


@pytest.fixture(params=["es", "en", "ko"])
def rules(request):
    return grammar(request.param, "mini")


@pytest.fixture
def words(rules):
    return rules.stream(3, 5 * LENGTH)


def speaking(rules, monkeypatch):
    """A model whose head gives back the stream, and whose layers say: everything alike, the words' frequencies, the truth."""
    n = len(rules.words)
    plain = changed(base(2), embedding__vocab_size=n, embedding__d_model=n, final_norm=None)
    model = small_model(plain)
    tokenizer = WordTokenizer(rules.words)
    order = [tokenizer.encode_ids(word)[0] for word in rules.words]
    frequencies = rules.automaton.word_distribution(rules.automaton.stationary_prior)

    def states(model, ids):
        values = torch.full((3, *ids.shape, n), -40.0, dtype=torch.float64)
        values[0] = 0.0
        values[1][..., order] = torch.from_numpy(np.log(frequencies))
        texts = [[tokenizer.token_text(i) for i in row] for row in ids.tolist()]
        exact = rules.distributions(texts, "anywhere")
        values[2][..., order] = torch.from_numpy(np.log(np.maximum(exact, 1e-17)))
        return States([0, 1, 2], values)

    monkeypatch.setattr(truth, "take_states", states)
    with torch.no_grad():
        model.embed.table.copy_(torch.eye(n))
    return model, tokenizer


def look(rules, words, monkeypatch, **options):
    model, tokenizer = speaking(rules, monkeypatch)
    return truth.lens_truth(model, tokenizer, rules, words, n_questions=20, **options)


def test_oracle_a_layer_that_says_the_truth_knows_everything_and_one_that_says_nothing_nothing(
    rules, words, monkeypatch
):
    found = look(rules, words, monkeypatch)
    for row in found.tables["known_from"].rows():
        assert row["known_layer"] in (1, 2)  # what frequencies alone tell may be known from 1 on
        assert row["last_share"] == 1
        assert 0 < row["chance_share"] < 1
    blind = [row["right"] for row in found.tables["by_feature"].rows() if row["layer"] == 0]
    assert blind == [0] * len(blind)
    assert sum(row["items"] for row in found.tables["by_feature"].rows() if row["layer"] == 0) == 20


def test_oracle_the_divergence_is_that_of_the_definition(rules, words, monkeypatch):
    found = look(rules, words, monkeypatch)
    n = len(rules.words)
    exact = [
        rules.next_probabilities(words[at : at + i + 1], "anywhere")
        for at in range(0, len(words), LENGTH)
        for i in range(LENGTH)
    ]
    entropies = [-sum(p * np.log(p) for p in one if p > 0) for one in exact]
    rows = found.tables["truth"].rows()
    assert rows[0]["kl_to_truth_nats"] == pytest.approx(np.log(n) - np.mean(entropies), abs=1e-9)
    assert rows[0]["possible_share"] == pytest.approx(np.mean([(one > 0).sum() / n for one in exact]), abs=1e-9)
    frequencies = rules.automaton.word_distribution(rules.automaton.stationary_prior)
    crossed = [-sum(p * np.log(q) for p, q in zip(one, frequencies, strict=True) if p > 0) for one in exact]
    assert rows[1]["kl_to_truth_nats"] == pytest.approx(np.mean(crossed) - np.mean(entropies), abs=1e-9)
    assert rows[2]["kl_to_truth_nats"] == pytest.approx(0, abs=1e-9)
    assert rows[2]["possible_share"] == pytest.approx(1, abs=1e-9)


def test_oracle_distributions_are_those_of_one_beginning_at_a_time(rules, words):
    for start in ("sentence", "anywhere"):
        found = rules.distributions([words[:LENGTH], words[LENGTH : 2 * LENGTH]], start)
        for row, window in enumerate((words[:LENGTH], words[LENGTH : 2 * LENGTH])):
            for pos in range(LENGTH):
                assert np.allclose(found[row, pos], rules.next_probabilities(window[: pos + 1], start), atol=1e-12)


def test_a_tuned_lens_is_put_to_the_same_questions(monkeypatch):
    rules = grammar("en", "mini")
    words, n = rules.stream(3, 2 * LENGTH), len(rules.words)
    same = look(rules, words, monkeypatch, tuned=Translators(torch.zeros(2, n, n), torch.zeros(2, n), {}))
    by_lens = {
        lens: [{**row, "lens": ""} for row in same.tables["by_feature"].rows() if row["lens"] == lens]
        for lens in ("logit", "tuned")
    }
    assert by_lens["logit"] == by_lens["tuned"]
    gone = look(rules, words, monkeypatch, tuned=Translators(-torch.eye(n).repeat(2, 1, 1), torch.zeros(2, n), {}))
    uniform = [row["kl_to_truth_nats"] for row in gone.tables["truth"].rows() if row["lens"] == "tuned"]
    assert uniform[1] == pytest.approx(uniform[0], abs=1e-6)
    assert uniform[2] == pytest.approx(0, abs=1e-9)


def test_a_feature_is_known_from_where_it_stays_known():
    assert truth.known_layer(np.array([0.9, 0.89, 0.9, 0.95])) == 2
    assert truth.known_layer(np.array([0.9, 0.95])) == 0
    assert truth.known_layer(np.array([1.0, 0.8])) is None
