"""Writes an automaton the way one writes a sentence: word after word, with open ends.

`Builder.word` adds a state that follows some open ends and returns the new open end. An end can be shared out
(`end * 0.3`) and ends can be joined (`a + b`), so an optional adverb reads

    adverb = b.word(verb * 0.4, ["again"], part="adverb")
    b.stop(adverb + verb * 0.6)

What a later word must agree with is remembered simply by building the words between once for each value of the feature.
`build` checks that every state gives away exactly all of its probability, and reaches the full stop. Next: spanish.py,
english.py, korean.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unembed.corpora.grammar.automaton import STOP, Automaton, State

FULL_STOP = "."
Cell = Mapping[str, float]


@dataclass(frozen=True)
class Ends:
    """States that still have probability to give to a next word, each with the share on offer."""

    shares: tuple[tuple[int, float], ...] = ()

    def __mul__(self, share: float) -> "Ends":
        return Ends(tuple((state, offered * share) for state, offered in self.shares))

    def __add__(self, other: "Ends") -> "Ends":
        return Ends(self.shares + other.shares)


class Builder:
    """Collects states and arcs; see the module's example. One builder makes one automaton."""

    def __init__(self) -> None:
        self._cells: dict[tuple[tuple[str, float], ...], int] = {}
        self._states: list[State] = []
        self._arcs: dict[tuple[int, int], float] = {}
        self.start = self._add([FULL_STOP], part="stop")

    def word(
        self,
        ends: Ends,
        cell: Cell | Sequence[str],
        *,
        part: str,
        controls: tuple[str, ...] = (),
        agrees: tuple[str, ...] = (),
        features: Mapping[str, str] | None = None,
    ) -> Ends:
        """Adds one word after `ends`, drawn from `cell` (weights by word, or words that are equally probable).

        `features` and the rest are kept with the state, see `automaton.State`.
        """
        end = self._add(cell, part=part, controls=controls, agrees=agrees, features=features)
        self._connect(ends, end.shares[0][0])
        return end

    def time(self, tense: str, words: Cell | Sequence[str], share: float) -> Ends:
        """Adds the word of time that opens a sentence and decides its tense; `share` of all sentences begin so."""
        return self.word(self.start * share, words, part="time", controls=("tense",), features={"tense": tense})

    def join(self, ends: Ends, earlier: Ends) -> None:
        """Lets `ends` go on with a word that exists already: how loops are made."""
        for state, _ in earlier.shares:
            self._connect(ends, state)

    def stop(self, ends: Ends) -> None:
        """Ends the sentence with the full stop."""
        self._connect(ends, STOP)

    def build(self) -> Automaton:
        """Returns the automaton; a state whose shares do not sum to 1 is a mistake in the grammar."""
        totals = np.zeros(len(self._states))
        for (source, _), share in self._arcs.items():
            totals[source] += share
        for state, total in zip(self._states, totals.tolist(), strict=True):
            assert abs(total - 1) < 1e-9, f"{state.part} {dict(state.features)} gives away {total}, not 1"
        # From the full stop backwards: a state that never comes to one would write for ever.
        ending, found = {STOP}, {STOP}
        while found:
            found = {source for source, target in self._arcs if target in found} - ending
            ending |= found
        assert len(ending) == len(self._states), "some states never reach the full stop"
        arcs = sorted(self._arcs.items())
        words = tuple(dict.fromkeys(word for cell in self._cells for word, _ in cell))
        column = {word: index for index, word in enumerate(words)}
        cells = np.zeros((len(self._cells), len(words)))
        for row, cell in enumerate(self._cells):
            # Plain sums: NumPy's may depend on the processor, and a seed must give one text everywhere.
            whole = sum(weight for _, weight in cell)
            for word, weight in cell:
                cells[row, column[word]] = weight / whole
        return Automaton(
            words=words,
            states=tuple(self._states),
            arcs=np.array([pair for pair, _ in arcs], dtype=np.int64),
            arc_probabilities=np.array([share / totals[pair[0]] for pair, share in arcs]),
            cells=cells,
        )

    def _add(
        self,
        cell: Cell | Sequence[str],
        *,
        part: str,
        controls: tuple[str, ...] = (),
        agrees: tuple[str, ...] = (),
        features: Mapping[str, str] | None = None,
    ) -> Ends:
        weights = cell if isinstance(cell, Mapping) else dict.fromkeys(cell, 1.0)
        assert min(weights.values(), default=0.0) > 0, f"a {part} without words, or with a weight that is not positive"
        index = self._cells.setdefault(tuple(weights.items()), len(self._cells))
        self._states.append(State(cell=index, part=part, features=features or {}, controls=controls, agrees=agrees))
        return Ends(((len(self._states) - 1, 1.0),))

    def _connect(self, ends: Ends, target: int) -> None:
        for source, share in ends.shares:
            if share > 0:
                self._arcs[source, target] = self._arcs.get((source, target), 0.0) + share


def zipf(words: Sequence[str]) -> Cell:
    """Weights by Zipf's law, 1 / rank: the first words of a list are the commonest.

    >>> zipf(["the", "of", "and", "to"])
    {'the': 1.0, 'of': 0.5, 'and': 0.3333333333333333, 'to': 0.25}
    """
    return {word: 1.0 / rank for rank, word in enumerate(words, start=1)}
