"""Seeded grammars in Spanish, English and Korean, with the exact probability of everything that they say.

A model that learns one of them can be held against the truth: the floor of its loss is known, and so is what it has to
remember at each word. Sentences are written by automaton.py, from rules in spanish.py, english.py and korean.py; questions
about distant agreement come from agreement.py. This file puts them together. Next: automaton.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from unembed.corpora.grammar import agreement, english, korean, spanish
from unembed.corpora.grammar.agreement import Agreement, sentences
from unembed.corpora.grammar.automaton import Automaton
from unembed.errors import CorpusError

__all__ = ["LANGUAGES", "SIZES", "Agreement", "Grammar", "Start", "grammar", "sentences"]

LANGUAGES = ("es", "en", "ko")
SIZES = ("mini", "large")
Start = Literal["sentence", "anywhere"]


@dataclass(frozen=True, eq=False)
class Grammar:
    """One grammar: a language, a size, and the automaton that writes it.

    The stream is one sentence after the other, each ended by the word "."; there is no other mark. Probabilities are
    natural logarithms. `start` says what is known before the first word: "sentence", that it begins one (as a stream
    does), or "anywhere", that the text was cut out of an endless stream (as a model's windows are).

    >>> es = grammar("es", "mini")
    >>> len(es.words), es.text(seed=1, n_words=8)
    (62, 'hoy tú con las niñas estás contento .')
    """

    language: str
    size: str
    automaton: Automaton

    @property
    def words(self) -> tuple[str, ...]:
        """Every word, in a fixed order; the full stop is the first."""
        return self.automaton.words

    # Text -------------------------------------------------------------------------------------------------------------

    def sample(self, seed: int, n_words: int) -> tuple[list[str], Int64[np.ndarray, " pos"]]:
        """Writes n_words words, and tells the hidden state behind each; the last sentence may be cut.

        A longer text of the same seed begins with the shorter one.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        drawn = list(islice(self.automaton.sample(rng), n_words))
        return [self.words[word] for _, word in drawn], np.array([state for state, _ in drawn], dtype=np.int64)

    def stream(self, seed: int, n_words: int) -> list[str]:
        """Writes n_words words, sentence after sentence."""
        return self.sample(seed, n_words)[0]

    def text(self, seed: int, n_words: int) -> str:
        """The same stream as one text, words apart by single spaces."""
        return " ".join(self.stream(seed, n_words))

    # Probabilities ----------------------------------------------------------------------------------------------------

    def log_probabilities(self, words: Sequence[str], start: Start = "sentence") -> Float64[np.ndarray, " pos"]:
        """log p(word | words before it) in nats, for each word, by the forward algorithm.

        An impossible word has -inf, and so have all after it. Raises: CorpusError for a word that is none of `words`.
        """
        return self.automaton.window_log_probabilities(self._ids(words)[None, :], self._prior(start)).reshape(-1)

    def next_probabilities(self, words: Sequence[str], start: Start = "sentence") -> Float64[np.ndarray, " vocab"]:
        """p(next word | words), for each of `self.words` in order; all zero after an impossible beginning."""
        if not words:
            return self.automaton.word_distribution(self._prior(start))
        belief = self.automaton.final_belief(self._ids(words), self._prior(start))
        return self.automaton.word_distribution(self.automaton.advance(belief))

    def distributions(
        self, windows: Sequence[Sequence[str]], start: Start = "sentence"
    ) -> Float64[np.ndarray, "batch pos vocab"]:
        """p(next word | the window's words up to and including this one), at every word of windows of one length.

        Raises: CorpusError for a word that is none of `words`.
        """
        ids = np.stack([self._ids(words) for words in windows])
        out = np.empty((*ids.shape, len(self.words)))
        for pos, step in enumerate(self.automaton.forward(ids, self._prior(start))):
            for row, (index, reached) in enumerate(zip(step.classes.tolist(), step.belief, strict=True)):
                states = self.automaton.class_states[index]
                belief = np.zeros(len(self.automaton.states))
                belief[states] = reached[: len(states)]
                out[row, pos] = self.automaton.word_distribution(self.automaton.advance(belief))
        return out

    def floor_nats(self, words: Sequence[str], context_length: int) -> float:
        """The least mean loss that a model of this context can have on these words, in nats per predicted word.

        Windows as an evaluation cuts them: window k reads words kT .. kT+T-1 and predicts kT+1 .. kT+T, each from its own
        window alone; the last may be shorter, and the first word of all is not predicted. What a window cannot see is
        averaged over: its first state is drawn from the stationary distribution, also in the first window, since no model
        can tell that one apart. Raises: CorpusError if the words are fewer than two, or cannot follow each other.
        """
        ids = self._ids(words)
        n_predicted = len(ids) - 1
        if n_predicted < 1 or context_length < 1:
            raise CorpusError(
                f"grammar: a floor of {len(ids)} words in windows of {context_length}; it takes at least 2 words, and "
                "windows of at least 1"
            )
        n_whole = n_predicted // context_length
        starts = np.arange(n_whole)[:, None] * context_length
        pieces = [ids[starts + np.arange(context_length + 1)]] if n_whole else []
        if n_predicted % context_length:
            pieces.append(ids[None, n_whole * context_length :])
        prior = self.automaton.stationary_prior
        total = sum(float(self.automaton.window_log_probabilities(piece, prior)[:, 1:].sum()) for piece in pieces)
        if not np.isfinite(total):
            raise CorpusError(
                f"grammar: these words are no text of the {self.size} {self.language} grammar: some follow each other that "
                "cannot. Give a piece of `stream`, in its order"
            )
        return -total / n_predicted

    def ngram_nats(self, words: Sequence[str], order: int) -> float:
        """The mean loss of the best n-gram model there can be: exact p(word | the order - 1 words before it), in nats.

        Not counted from text but computed, as if from an endless one, so every n-gram model that was trained does worse.
        Words with fewer than order - 1 before them are left out. Raises: CorpusError if that leaves none.
        """
        ids = self._ids(words)
        if not 1 <= order <= len(ids):
            raise CorpusError(f"grammar: order {order} for {len(ids)} words; it must lie between 1 and their number")
        windows = np.lib.stride_tricks.sliding_window_view(ids, order)
        return -float(self.automaton.window_log_probabilities(windows, self.automaton.stationary_prior)[:, -1].mean())

    # Structure --------------------------------------------------------------------------------------------------------

    @cached_property
    def labels(self) -> MappingProxyType[str, tuple[str, ...]]:
        """What is known of a word's hidden state: each label's name and its possible values; "-" where it has none.

        `part` is the part of speech, with the roles apart ("noun" the subject's head, "distractor" a noun that merely
        stands between). The others are features of the sentence's controller, as far as they still matter: "number" on a
        distractor is the subject's number, not its own.
        """
        names = dict.fromkeys(name for state in self.automaton.states for name in ("part", *state.features))
        values = {name: tuple(dict.fromkeys(self.state_labels(name))) for name in names}
        return MappingProxyType(values)

    def state_labels(self, label: str) -> tuple[str, ...]:
        """One label of every hidden state, in the order of the states that `sample` tells."""
        return tuple(state.label(label) for state in self.automaton.states)

    def posterior(
        self, words: Sequence[str], label: str, start: Start = "sentence"
    ) -> Float64[np.ndarray, "pos values"]:
        """p(the word's label has this value | words up to and including it), columns as in `labels[label]`.

        Raises: CorpusError for a label that this grammar does not have.
        """
        if label not in self.labels:
            raise CorpusError(
                f"grammar: no label {label!r} in {self.language} {self.size}; it has {', '.join(self.labels)}"
            )
        column = {value: index for index, value in enumerate(self.labels[label])}
        of_state = np.array([column[value] for value in self.state_labels(label)])
        out = np.zeros((len(words), len(column)))
        for pos, (states, belief) in enumerate(self._beliefs(words, start)):
            np.add.at(out[pos], of_state[states], belief)
        return out

    def annotate(self, words: Sequence[str], start: Start = "sentence") -> list[dict[str, str]]:
        """Gives each word's labels as far as the words up to it settle them; "?" where more than one value is possible.

        >>> [word["number"] for word in grammar("es", "mini").annotate("hoy las niñas con el gato están".split())]
        ['-', 'plural', 'plural', 'plural', 'plural', 'plural', 'plural']
        """
        of_state = {label: self.state_labels(label) for label in self.labels}
        out: list[dict[str, str]] = []
        for states, belief in self._beliefs(words, start):
            possible = {label: {values[state] for state in states[belief > 0]} for label, values in of_state.items()}
            out.append({label: values.pop() if len(values) == 1 else "?" for label, values in possible.items()})
        return out

    def long_agreements(
        self,
        seed: int,
        n: int,
        *,
        min_distance: int = 4,
        max_words: int = 31,
        exclude: Iterable[tuple[str, ...]] = (),
    ) -> list[Agreement]:
        """Draws n questions about agreement across at least `min_distance` words; see agreement.py.

        A beginning has at most `max_words` words: with the full stop before it, it fits a context of 32. A model is right
        when the right forms together are more probable than the wrong ones together, and the most probable of all of them
        is a right one.
        """
        return agreement.long_agreements(
            self.automaton, seed, n, min_distance=min_distance, max_words=max_words, exclude=exclude
        )

    # ------------------------------------------------------------------------------------------------------------------

    def _prior(self, start: Start) -> Float64[np.ndarray, " state"]:
        return self.automaton.start_prior if start == "sentence" else self.automaton.stationary_prior

    def _beliefs(
        self, words: Sequence[str], start: Start
    ) -> Iterator[tuple[Int64[np.ndarray, " state"], Float64[np.ndarray, " state"]]]:
        """The states that each word may come from, and how probable each is after the words up to it."""
        for step in self.automaton.forward(self._ids(words)[None, :], self._prior(start)):
            states = self.automaton.class_states[int(step.classes[0])]
            yield states, step.belief[0, : len(states)]

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def _ids(self, words: Sequence[str]) -> Int64[np.ndarray, " pos"]:
        try:
            return np.array([self._id_of[word] for word in words], dtype=np.int64)
        except KeyError as missing:
            raise CorpusError(
                f"grammar: {missing.args[0]!r} is no word of the {self.size} {self.language} grammar; it has "
                f"{len(self.words)} words, see `words`. Split the text at its spaces"
            ) from None


def grammar(language: str, size: str = "mini") -> Grammar:
    """Makes the grammar of a language ("es", "en", "ko") in a size: "mini", at most 62 words, or "large", about 1,000.

    Raises: CorpusError for another language or size.
    """
    makers = {"es": spanish.automaton, "en": english.automaton, "ko": korean.automaton}
    if language not in makers or size not in SIZES:
        raise CorpusError(
            f"grammar: no grammar {language!r} of size {size!r}; languages are {', '.join(LANGUAGES)}, sizes "
            f"{' and '.join(SIZES)}"
        )
    return Grammar(language=language, size=size, automaton=makers[language](size))
