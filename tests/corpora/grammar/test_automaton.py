"""The forward algorithm against every path written out, on automata small enough for that.

Next to read: test_sentences.py.
"""

import itertools
import math

import numpy as np
import pytest

from unembed.corpora.grammar import Grammar
from unembed.corpora.grammar.automaton import Automaton, State
from unembed.corpora.grammar.builder import Builder, Ends, zipf

WORDS = (".", "a", "b")


def small_automaton(n_states: int, n_targets: int, seed: int) -> Automaton:
    """Random arcs, the full stop always among the targets; state i > 0 has the cell 1 + i % 2, both can write "b"."""
    rng = np.random.default_rng(seed)
    arcs, shares = [], []
    for source in range(n_states):
        others = rng.permutation(np.arange(1, n_states))[: n_targets - 1]
        targets = sorted({0, *others.tolist()})
        weights = rng.random(len(targets)) + 0.1
        arcs += [(source, target) for target in targets]
        shares += (weights / weights.sum()).tolist()
    states = [State(cell=0, part="stop")]
    for index in range(1, n_states):
        features = {"number": "plural" if index % 3 else "singular"}
        states.append(State(cell=1 + index % 2, part="word", features=features))
    return Automaton(
        words=WORDS,
        states=tuple(states),
        arcs=np.array(arcs),
        arc_probabilities=np.array(shares),
        cells=np.array([[1, 0, 0], [0, 0.3, 0.7], [0, 0, 1.0]]),
    )


# A full row of sources makes the dense product, few of them the gathered one; both must be tried.
SMALL = [small_automaton(7, 7, seed=1), small_automaton(6, 2, seed=2), small_automaton(5, 3, seed=3)]


def transition_matrix(automaton: Automaton) -> np.ndarray:
    matrix = np.zeros((len(automaton.states), len(automaton.states)))
    for (source, target), share in zip(automaton.arcs.tolist(), automaton.arc_probabilities.tolist(), strict=True):
        matrix[source, target] += share
    return matrix


def oracle_joint(automaton: Automaton, ids: list[int], prior: np.ndarray) -> dict[int, float]:
    """p(words, last state), summed over every sequence of states one by one."""
    moves = transition_matrix(automaton).tolist()
    out = dict.fromkeys(range(len(automaton.states)), 0.0)
    for path in itertools.product(range(len(automaton.states)), repeat=len(ids)):
        chance = float(prior[path[0]])
        for before, after in itertools.pairwise(path):
            chance *= moves[before][after]
        for state, word in zip(path, ids, strict=True):
            chance *= float(automaton.cells[automaton.states[state].cell, word])
        out[path[-1]] += chance
    return out


def oracle_stationary(automaton: Automaton) -> np.ndarray:
    """The solution of pi P = pi, sum pi = 1, by linear algebra rather than by counting visits."""
    n = len(automaton.states)
    system = np.vstack([transition_matrix(automaton).T - np.eye(n), np.ones(n)])
    return np.linalg.lstsq(system, np.r_[np.zeros(n), 1.0], rcond=None)[0]


@pytest.mark.parametrize("automaton", SMALL, ids=["dense", "sparse", "mixed"])
def test_oracle_stationary_distribution(automaton):
    np.testing.assert_allclose(automaton.stationary_prior, oracle_stationary(automaton), atol=1e-12)


@pytest.mark.parametrize("automaton", SMALL, ids=["dense", "sparse", "mixed"])
@pytest.mark.parametrize("start", ["sentence", "anywhere"])
def test_oracle_every_path(automaton, start):
    tiny = Grammar(language="test", size="tiny", automaton=automaton)
    # Not the oracle's stationary distribution: its rounding gives unreachable states 1e-17, and a logarithm shows that.
    prior = transition_matrix(automaton)[0] if start == "sentence" else automaton.stationary_prior
    for text in ("b", "a b b .", "b . b a", ". b a b", "b b . b"):
        words = text.split()
        ids = [WORDS.index(word) for word in words]
        joints = [oracle_joint(automaton, ids[:end], prior) for end in range(1, len(ids) + 1)]
        totals = [sum(joint.values()) for joint in joints]
        expected = [-math.inf if not total else math.log(total) for total in totals]
        got = np.cumsum(tiny.log_probabilities(words, start))
        np.testing.assert_allclose(got, expected, atol=1e-12)
        if totals[-1]:
            plural = sum(p for s, p in joints[-1].items() if automaton.states[s].label("number") == "plural")
            column = tiny.labels["number"].index("plural")
            assert tiny.posterior(words, "number", start)[-1, column] == pytest.approx(plural / totals[-1], abs=1e-12)


@pytest.mark.parametrize("automaton", SMALL, ids=["dense", "sparse", "mixed"])
def test_property_all_texts_of_one_length_sum_to_one(automaton):
    tiny = Grammar(language="test", size="tiny", automaton=automaton)
    texts = itertools.product(WORDS, repeat=4)
    with np.errstate(under="ignore"):
        total = sum(math.exp(tiny.log_probabilities(text, "anywhere").sum()) for text in texts)
    assert total == pytest.approx(1, abs=1e-12)


def test_worked_example_an_impossible_word_and_what_follows():
    """After the first "a" nothing but "." can come: 1/2, then log 1, then impossible for ever."""
    b = Builder()
    b.stop(b.word(b.start * 0.5, ["a"], part="x") + b.word(b.start * 0.5, ["b"], part="y"))
    tiny = Grammar(language="test", size="tiny", automaton=b.build())
    got = tiny.log_probabilities(["a", ".", ".", "a"])
    np.testing.assert_array_equal(got, [math.log(0.5), 0, -math.inf, -math.inf])
    assert not tiny.next_probabilities(["a", "b"]).any()


def test_property_sampled_states_and_words_come_as_often_as_computed():
    automaton = SMALL[0]
    draws = list(itertools.islice(automaton.sample(np.random.Generator(np.random.PCG64(0))), 100_000))
    share = np.bincount([state for state, _ in draws], minlength=len(automaton.states)) / len(draws)
    # Five standard errors of a share near 1/7; neighbouring states are hardly correlated here.
    np.testing.assert_allclose(share, automaton.stationary_prior, atol=5 * math.sqrt(0.25 / len(draws)))


def test_builder_shares_join_and_loop():
    b = Builder()
    noun = b.word(b.start, zipf(["n", "m"]), part="noun")
    again = b.word(noun * 0.25, ["and"], part="and")
    b.join(again, noun)
    b.stop(noun * 0.75 + Ends())
    automaton = b.build()
    assert automaton.words == (".", "n", "m", "and")
    tiny = Grammar(language="test", size="tiny", automaton=automaton)
    got = tiny.log_probabilities(["n", "and", "m", "."])
    np.testing.assert_allclose(got, np.log([2 / 3, 0.25, 1 / 3, 0.75]), atol=1e-12)


def test_builder_refuses_a_grammar_that_loses_probability_or_never_ends():
    b = Builder()
    b.stop(b.word(b.start, ["a"], part="x") * 0.5)
    with pytest.raises(AssertionError, match=r"x \{\} gives away 0.5, not 1"):
        b.build()
    b = Builder()
    word = b.word(b.start, ["a"], part="x")
    b.join(word, word)
    with pytest.raises(AssertionError, match="never reach the full stop"):
        b.build()
