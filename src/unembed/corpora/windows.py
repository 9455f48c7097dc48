"""Windows of token ids as a pure function of seed and index: no position to save, none to lose.

Before it: shards.py, which puts the ids on disk. Next: ../training, which asks for batches.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, Integer, UInt64

from unembed.errors import CorpusError


@dataclass(frozen=True, eq=False)
class TokenSplit:
    """The ids of one split, in memory or mapped from disk, and the windows that training and evaluation see."""

    name: str
    ids: Integer[np.ndarray, " pos"]
    n_characters: int = 0
    n_bytes: int = 0
    n_documents: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice) -> Int64[np.ndarray, " pos"]:
        return self.ids[index].astype(np.int64)

    def bits_per_byte(self, loss_nats: float) -> float | None:
        """Gives a mean loss per token as bits per byte of the text, which compares across tokenizers; None without text.

        loss / ln 2 * tokens / bytes. End tokens count as tokens and spell no byte: they have to be predicted as well.

        >>> TokenSplit("val", np.zeros(4, dtype=np.uint16), n_bytes=8).bits_per_byte(math.log(2) * 3)
        1.5
        """
        return loss_nats / math.log(2) * len(self.ids) / self.n_bytes if self.n_bytes else None

    def sample(
        self, seed: int, index: int | Integer[np.ndarray, "*batch"], context_length: int
    ) -> Int64[np.ndarray, "*batch"]:
        """Gives where window `index` of a seed starts: uniform over 0 .. n - context_length - 1, with replacement.

        start = floor(u(seed, index) * (n - context_length)), where u is 53 bits of a mixed counter. The same whatever
        the batch size, the accumulation, the worker or the resume: index = step * batch_size + row.
        Raises: CorpusError if the split has no window of this length.
        """
        n_starts = len(self.ids) - context_length
        if n_starts < 1:
            raise CorpusError(
                f"{self.name} split: {len(self.ids)} tokens, but a window of context_length {context_length} needs "
                f"{context_length + 1}. Give more text, or lower context_length"
            )
        return np.asarray(uniform(seed, index) * n_starts, dtype=np.int64)

    def batch(
        self, seed: int, step: int, batch_size: int, context_length: int
    ) -> tuple[Int64[np.ndarray, "batch pos"], Int64[np.ndarray, "batch pos"]]:
        """Gives inputs and targets of one step, int64 [batch, pos]; targets are the inputs one token later.

        Raises: CorpusError as `sample` does.
        """
        first = step * batch_size
        starts = self.sample(seed, np.arange(first, first + batch_size, dtype=np.uint64), context_length)
        windows = self.ids[starts[:, None] + np.arange(context_length + 1)].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]

    def windows(
        self, context_length: int, batch_size: int = 1
    ) -> Iterator[tuple[Int64[np.ndarray, "batch pos"], Int64[np.ndarray, "batch pos"]]]:
        """Gives all windows side by side, int64 [batch, pos]: each token after the first is a target exactly once.

        Window k predicts tokens k T + 1 .. (k + 1) T from tokens k T .. (k + 1) T - 1; the last one is as short as it
        must be and comes alone. Raises: CorpusError if there is nothing to predict.
        """
        n_targets = len(self.ids) - 1
        if n_targets < 1:
            raise CorpusError(f"{self.name} split: {len(self.ids)} tokens, nothing to predict. Give more text")
        n_full = n_targets // context_length
        for first in range(0, n_full, batch_size):
            here = min(batch_size, n_full - first)
            flat = self[first * context_length : (first + here) * context_length + 1]
            yield flat[:-1].reshape(here, context_length), flat[1:].reshape(here, context_length)
        if n_targets > n_full * context_length:
            rest = self[n_full * context_length :]
            yield rest[None, :-1], rest[None, 1:]


def uniform(seed: int, index: int | Integer[np.ndarray, "*batch"]) -> Float64[np.ndarray, "*batch"]:
    """Gives a number in [0, 1) for each index of a seed: a mixed counter, not a sequence, so no state exists.

    u = mix(mix(seed) + (index + 1) * 0x9E3779B97F4A7C15) / 2^64, to 53 bits; mix is the finaliser of SplitMix64.
    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", section 3 (variant 13 constants).

    >>> bool(uniform(1, 5) == uniform(1, np.arange(10))[5])
    True
    """
    with np.errstate(over="ignore"):
        step = np.asarray(index, dtype=np.uint64) + np.uint64(1)
        state = _mix(np.uint64(seed % (1 << 64))) + step * np.uint64(0x9E3779B97F4A7C15)
        return np.asarray((_mix(state) >> np.uint64(11)) * 2.0**-53)


def _mix(x: UInt64[np.ndarray, "*batch"] | np.uint64) -> UInt64[np.ndarray, "*batch"]:
    x = np.asarray(x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
