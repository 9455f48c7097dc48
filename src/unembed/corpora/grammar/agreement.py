"""Questions that only memory answers: after this beginning, which form agrees with a word said long before?

Items are cut out of sentences that the automaton draws. The automaton also decides what is right: a wrong form is one to
which it gives probability 0 after this very beginning. Next: __init__.py, which puts a grammar together.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from unembed.corpora.grammar.automaton import STOP, Automaton, State
from unembed.errors import CorpusError

# So many sentences may fail to give a new question, one after the other, before we say that there are no more.
PATIENCE = 20_000


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One question: the beginning of a sentence, and the forms that may and may not come next.

    `distance` counts the words between the one that decides `feature` and the one asked for. `right` holds every form of
    the asked kind that agrees, `wrong` forms of the same kind that differ in `feature` alone and are impossible here.
    """

    prefix: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    distance: int
    feature: str


def long_agreements(
    automaton: Automaton,
    seed: int,
    n: int,
    *,
    min_distance: int = 4,
    max_words: int = 31,
    exclude: Iterable[tuple[str, ...]] = (),
) -> list[Agreement]:
    """Draws n different questions whose answer lies at least `min_distance` words before, at most one a sentence.

    A beginning has at most `max_words` words: a model whose context is one more sees all of it and the full stop before
    it. `exclude` holds sentences that a model was trained on (`sentences(stream)`): no question begins like one of them,
    so what is asked was never read. Raises: CorpusError if the grammar has too few such questions.
    """
    words = automaton.words
    # A question has its controller, the words between and the target: shorter beginnings need not be remembered.
    seen = {sentence[:end] for sentence in exclude for end in range(min_distance + 1, len(sentence))}
    forms = _Forms(automaton)
    rng = np.random.Generator(np.random.PCG64(seed))
    items: list[Agreement] = []
    asked: set[tuple[tuple[str, ...], str]] = set()
    idle = 0
    for states, ids in _sentences(automaton, rng):
        if len(items) == n:
            break
        if idle == PATIENCE:
            raise CorpusError(
                f"grammar: found {len(items)} of {n} agreements over {min_distance} or more words after {PATIENCE} sentences "
                "without a new one. Ask for fewer, for a smaller min_distance, for more max_words, or exclude fewer sentences"
            )
        idle += 1
        questions = [found for found in _targets(automaton, states, min_distance) if found[0] <= max_words]
        if not questions:
            continue
        pos, distance, feature = questions[int(rng.random() * len(questions))]
        prefix = tuple(words[i] for i in ids[:pos])
        if prefix in seen or (prefix, feature) in asked:
            continue
        right, wrong = forms.after(np.array(ids[:pos]), states[pos], feature)
        if right and wrong:
            asked.add((prefix, feature))
            items.append(Agreement(prefix=prefix, right=right, wrong=wrong, distance=distance, feature=feature))
            idle = 0
    return items


def sentences(stream: Iterable[str]) -> frozenset[tuple[str, ...]]:
    """Gives the whole sentences of a stream that begins with one, each with its full stop.

    >>> sorted(sentences("a b . c . a b . d".split()))
    [('a', 'b', '.'), ('c', '.')]
    """
    found, sentence = set(), []
    for word in stream:
        sentence.append(word)
        if word == ".":
            found.add(tuple(sentence))
            sentence = []
    return frozenset(found)


def _sentences(automaton: Automaton, rng: np.random.Generator) -> Iterator[tuple[list[int], list[int]]]:
    states: list[int] = []
    ids: list[int] = []
    for state, word in automaton.sample(rng):
        states.append(state)
        ids.append(word)
        if state == STOP:
            yield states, ids
            states, ids = [], []


def _targets(automaton: Automaton, states: list[int], min_distance: int) -> Iterator[tuple[int, int, str]]:
    """Position, distance and feature of every word of a sentence that agrees with a word far enough before it."""
    decided: dict[str, int] = {}
    for pos, index in enumerate(states):
        state = automaton.states[index]
        for feature in state.agrees:
            if feature in decided and (distance := pos - decided[feature] - 1) >= min_distance:
                yield pos, distance, feature
        decided |= dict.fromkeys(state.controls, pos)


class _Forms:
    """The agreeing and the disagreeing forms of each kind of word, by automaton and then by beginning."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        # States that differ only in what they remember for later ask and answer alike.
        profiles: dict[tuple[object, ...], State] = {}
        for state in automaton.states:
            if state.agrees:
                shown = tuple(state.label(feature) for feature in state.agrees)
                profiles[state.cell, state.part, state.agrees, shown, state.label("topic")] = state
        self.profiles = tuple(profiles.values())

    def after(
        self, ids: Int64[np.ndarray, " pos"], target: int, feature: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        automaton = self.automaton
        belief = automaton.final_belief(ids, automaton.start_prior)
        chances = automaton.word_distribution(automaton.advance(belief))
        asked = automaton.states[target]
        right = np.zeros(len(automaton.words), dtype=bool)
        wrong = right.copy()
        for state in self.profiles:
            if state.part != asked.part or feature not in state.agrees or not _share_topic(state, asked):
                continue
            differs = {name for name in state.agrees if state.label(name) != asked.label(name)}
            if not differs:
                right |= automaton.cells[state.cell] > 0
            elif differs == {feature}:
                wrong |= automaton.cells[state.cell] > 0
        return self._words(right & (chances > 0)), self._words(wrong & (chances == 0))

    def _words(self, chosen: Bool[np.ndarray, " vocab"]) -> tuple[str, ...]:
        return tuple(self.automaton.words[i] for i in np.flatnonzero(chosen))


def _share_topic(one: State, other: State) -> bool:
    return "-" in (one.label("topic"), other.label("topic")) or one.label("topic") == other.label("topic")
