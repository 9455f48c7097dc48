"""A probabilistic automaton that writes words, and the exact probability of what it wrote.

A grammar of this package is a hidden Markov model: each state writes one word, drawn from the state's *cell* (a small
table of words and probabilities, shared by many states), then hands on to the next state. State 0 writes the full stop
and is where a sentence starts. Because the number of states is finite, the forward algorithm gives p(word | words before
it) exactly: the floor below which no model's loss can fall. Axes of this file's own: state, arc, cell, and batch for windows.
builder.py, the next file, makes automata from readable rules.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
from jaxtyping import Float64, Int64

STOP = 0
DRAWS_PER_BLOCK = 1 << 16
WINDOWS_PER_BLOCK = 1 << 12

_Ints = Int64[np.ndarray, " _"]
_Floats = Float64[np.ndarray, " _"]
_Matrix = Float64[np.ndarray, "_ _"]


@dataclass(frozen=True, kw_only=True)
class State:
    """What is known of one hidden state: its cell, its part of speech, its features, and its place in agreement.

    `features` are those of the sentence's controller as far as the state carries them (the subject's number, the tense
    that the time word asked for). `controls` names the features that this word decides; `agrees` those its form shows.
    """

    cell: int
    part: str
    features: Mapping[str, str] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    agrees: tuple[str, ...] = ()

    def label(self, name: str) -> str:
        """The state's value of one label (`part` or a feature); "-" where it carries none."""
        return self.part if name == "part" else self.features.get(name, "-")


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the forward algorithm knows after one word of each window.

    log_probability[i] = log p(word | earlier words of window i), in nats. Row i of `belief` is the distribution over
    `class_states[classes[i]]`, the only states that can have written the word; columns beyond them mean nothing.
    """

    log_probability: Float64[np.ndarray, " batch"]
    classes: Int64[np.ndarray, " batch"]
    belief: Float64[np.ndarray, "batch columns"]


class _Block:
    """A piece of the transition matrix. Between subject and verb nearly all of it is one arc per state: then it is stored
    as the few sources of each column, and a product costs a few additions per state instead of a row of multiplications.
    """

    MOST_SOURCES = 4

    def __init__(self, matrix: _Matrix) -> None:
        self.matrix = matrix
        n_sources = max(int((matrix > 0).sum(axis=0).max()), 1)
        self.sources: Int64[np.ndarray, "source after"] | None = None
        if n_sources <= min(self.MOST_SOURCES, len(matrix)):
            self.sources = np.argsort(matrix == 0, axis=0, kind="stable")[:n_sources]
            self.shares = np.take_along_axis(matrix, self.sources, axis=0)

    def advance(self, belief: _Matrix, rows: _Ints) -> _Matrix:
        """belief[rows] @ matrix; columns of `belief` beyond the matrix mean nothing."""
        if self.sources is None:
            return np.asarray(belief[rows, : len(self.matrix)] @ self.matrix)
        reached: _Matrix = belief[rows[:, None], self.sources[0]] * self.shares[0]
        for sources, shares in zip(self.sources[1:], self.shares[1:], strict=True):
            reached += belief[rows[:, None], sources] * shares
        return reached


@dataclass(frozen=True, eq=False)
class Automaton:
    """States, arcs and cells; everything else is derived. Build one with `builder.Builder`.

    `arcs` holds rows (from, to), sorted, and `arc_probabilities` their probabilities; those leaving a state sum to 1.
    `cells` has one row a cell and one column a word, each row sums to 1.
    """

    words: tuple[str, ...]
    states: tuple[State, ...]
    arcs: Int64[np.ndarray, "arc 2"]
    arc_probabilities: Float64[np.ndarray, " arc"]
    cells: Float64[np.ndarray, "cell vocab"]

    # Derived tables ---------------------------------------------------------------------------------------------------

    @cached_property
    def state_cells(self) -> Int64[np.ndarray, " state"]:
        """The cell of each state."""
        return np.array([state.cell for state in self.states], dtype=np.int64)

    @cached_property
    def start_prior(self) -> Float64[np.ndarray, " state"]:
        """The distribution of the state of a sentence's first word."""
        return self.advance(np.eye(1, len(self.states), STOP)[0])

    @cached_property
    def stationary_prior(self) -> Float64[np.ndarray, " state"]:
        """The distribution of the state at an arbitrary place of an endless stream.

        Every sentence comes back to the full stop, so it is the expected number of visits per sentence, normalised.
        The sum is over word positions, until less than 1e-18 of the sentences goes on.
        """
        here = self.start_prior.copy()
        visits = here.copy()
        while True:
            here[STOP] = 0.0
            if here.sum() < 1e-18:
                return np.asarray(visits / visits.sum())
            here = self.advance(here)
            visits += here

    @cached_property
    def classes(self) -> Int64[np.ndarray, " vocab"]:
        """The class of each word: words that exactly the same states can write are computed together."""
        keys = [tuple(np.flatnonzero(column)) for column in self.cells.T]
        names = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        return np.array([names[key] for key in keys], dtype=np.int64)

    @cached_property
    def class_states(self) -> tuple[_Ints, ...]:
        """For each class of words, the states that can write them, in increasing order."""
        firsts = [int(np.flatnonzero(self.classes == index)[0]) for index in range(int(self.classes.max()) + 1)]
        return tuple(np.flatnonzero(self.cells[self.state_cells, word] > 0) for word in firsts)

    @cached_property
    def _successors(self) -> tuple[tuple[_Ints, _Floats], ...]:
        # Arcs grouped by the state they leave, in arc order: sampling and the blocks below walk along them.
        edges = np.searchsorted(self.arcs[:, 0], np.arange(1, len(self.states)))
        targets, shares = np.split(self.arcs[:, 1], edges), np.split(self.arc_probabilities, edges)
        return tuple(zip(targets, shares, strict=True))

    @cached_property
    def _emissions(self) -> tuple[_Matrix, ...]:
        # For each class of words, p(word | state) with a row per word of the class and a column per state.
        return tuple(
            self.cells[self.state_cells[states]][:, self.classes == index].T.copy()
            for index, states in enumerate(self.class_states)
        )

    @cached_property
    def _rank_in_class(self) -> Int64[np.ndarray, " vocab"]:
        ranks = np.zeros(len(self.words), dtype=np.int64)
        for index in range(len(self.class_states)):
            members = self.classes == index
            ranks[members] = np.arange(members.sum())
        return ranks

    @cached_property
    def _blocks(self) -> dict[tuple[int, int], "_Block"]:
        return {}

    def _block(self, before: int, after: int) -> "_Block":
        # The transition matrix from one class's states to another's. Far smaller than the whole, and only pairs of
        # classes that follow each other in the text are ever asked for.
        key = (before, after)
        if key not in self._blocks:
            column = np.full(len(self.states), -1, dtype=np.int64)
            column[self.class_states[after]] = np.arange(len(self.class_states[after]))
            matrix = np.zeros((len(self.class_states[before]), len(self.class_states[after])))
            for row, state in enumerate(self.class_states[before]):
                targets, probabilities = self._successors[state]
                kept = column[targets] >= 0
                matrix[row, column[targets[kept]]] = probabilities[kept]
            self._blocks[key] = _Block(matrix)
        return self._blocks[key]

    # Probabilities ----------------------------------------------------------------------------------------------------

    def advance(self, belief: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, " state"]:
        """Gives the distribution of the next state from that of this one (one row of the transition matrix each)."""
        moved = belief[self.arcs[:, 0]] * self.arc_probabilities
        return np.bincount(self.arcs[:, 1], weights=moved, minlength=len(self.states))

    def word_distribution(self, belief: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, " vocab"]:
        """Gives the distribution of the word that a state drawn from `belief` writes."""
        by_cell = np.bincount(self.state_cells, weights=belief, minlength=len(self.cells))
        return np.asarray(by_cell @ self.cells)

    def forward(self, ids: Int64[np.ndarray, "batch pos"], prior: Float64[np.ndarray, " state"]) -> Iterator[Step]:
        """Runs the forward algorithm over all windows at once and yields one Step per position.

        belief'(s') is proportional to sum_s belief(s) p(s' | s) p(word | s'), and the factor is p(word | words before).
        The state of every window's first word is drawn from `prior`. An impossible word has
        log probability -inf, and so has all that follows it in its window.
        """
        n_windows, length = ids.shape
        width = max(len(states) for states in self.class_states)
        belief = np.zeros((n_windows, width))
        before = np.zeros(n_windows, dtype=np.int64)
        for pos in range(length):
            words = ids[:, pos]
            classes = self.classes[words]
            joint = np.zeros(n_windows)
            next_belief = np.zeros((n_windows, width))
            pairs = classes if pos == 0 else before * len(self.class_states) + classes
            order = np.argsort(pairs, kind="stable")
            edges = np.flatnonzero(np.diff(pairs[order], prepend=-1))
            for rows in np.split(order, edges[1:]):
                after = int(classes[rows[0]])
                states = self.class_states[after]
                if pos == 0:
                    reached = np.tile(prior[states], (len(rows), 1))
                else:
                    reached = self._block(int(before[rows[0]]), after).advance(belief, rows)
                reached *= self._emissions[after][self._rank_in_class[words[rows]]]
                total = reached.sum(axis=1)
                joint[rows] = total
                # A window that became impossible keeps a belief of zeros: each later word is impossible too.
                next_belief[rows, : len(states)] = reached / np.where(total > 0, total, 1.0)[:, None]
            belief, before = next_belief, classes
            with np.errstate(divide="ignore"):
                yield Step(log_probability=np.log(joint), classes=classes, belief=belief)

    def window_log_probabilities(
        self, ids: Int64[np.ndarray, "batch pos"], prior: Float64[np.ndarray, " state"]
    ) -> Float64[np.ndarray, "batch pos"]:
        """log p(word | earlier words of its window) in nats."""
        out = np.empty(ids.shape)
        for first in range(0, len(ids), WINDOWS_PER_BLOCK):
            rows = slice(first, first + WINDOWS_PER_BLOCK)
            for pos, step in enumerate(self.forward(ids[rows], prior)):
                out[rows, pos] = step.log_probability
        return out

    def final_belief(
        self, ids: Int64[np.ndarray, " pos"], prior: Float64[np.ndarray, " state"]
    ) -> Float64[np.ndarray, " state"]:
        """The distribution over all states after the words `ids`, at least one; zeros if they are impossible."""
        *_, last = self.forward(ids[None, :], prior)
        belief = np.zeros(len(self.states))
        states = self.class_states[int(last.classes[0])]
        belief[states] = last.belief[0, : len(states)]
        return belief

    # Sampling ---------------------------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Yields (state, word) for ever, from the start of a sentence on.

        Two uniform numbers a word, each turned into a choice by the inverse of a cumulative sum: nothing else is asked
        of the generator, so a seed gives the same text on every platform.
        """
        moves = [(targets.tolist(), list(accumulate(shares.tolist()))) for targets, shares in self._successors]
        written = []
        for cell in self.cells:
            words = np.flatnonzero(cell)
            written.append((words.tolist(), list(accumulate(cell[words].tolist()))))
        state = STOP
        while True:
            draws = rng.random(DRAWS_PER_BLOCK).tolist()
            for move, emit in zip(draws[::2], draws[1::2], strict=True):
                targets, cumulative = moves[state]
                # The last sum may fall short of 1 by rounding: what lies beyond it belongs to the last choice.
                state = targets[min(bisect_right(cumulative, move), len(targets) - 1)]
                words, cumulative = written[self.states[state].cell]
                yield state, words[min(bisect_right(cumulative, emit), len(words) - 1)]
