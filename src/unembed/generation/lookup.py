"""Guesses for the next tokens out of the text itself: what followed the last time that the text ended as it does now.

A forward over the newest token and a few guesses costs less than one forward for each, and each guess that was right saves
one. Wrong guesses cost time and never change the text: window.py keeps what the model itself would have said. Source of the
idea: Saxena 2023, "Prompt Lookup Decoding". The next file to read is window.py.
"""

from collections.abc import Sequence

from unembed.errors import UsageError

# Three tokens that stand together as before are rarely chance; one token often is, and costs a wasted forward.
_LONGEST, _SHORTEST = 3, 2
MOST = 64


def check_lookup(n_guesses: object) -> int:
    """Gives how many tokens to guess at once; 0 guesses none. Raises: UsageError."""
    if isinstance(n_guesses, bool) or not isinstance(n_guesses, int) or not 0 <= n_guesses <= MOST:
        raise UsageError(
            f"lookup is {repr(n_guesses)[:40]}; it must be a whole number from 0 to {MOST}: so many guesses"
        )
    return n_guesses


class Lookup:
    """A growing text and where each pair and triple of its tokens ended last.

    >>> lookup = Lookup()
    >>> lookup.guesses([5, 6, 7, 8, 9, 5, 6, 7], 3)
    [8, 9, 5]
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._n_indexed = 0

    def guesses(self, ids: Sequence[int], n_most: int) -> list[int]:
        """The n_most ids that followed the last earlier place that ends as `ids` does, or none; the longest match counts.

        `ids` must be the ids of the call before with others after them.
        """
        # what ends at the very end is entered by a later call, or it would find itself
        for end in range(self._n_indexed, len(ids) - 1):
            for length in range(_SHORTEST, _LONGEST + 1):
                if end + 1 >= length:
                    self._ends[tuple(ids[end + 1 - length : end + 1])] = end + 1
        self._n_indexed = max(self._n_indexed, len(ids) - 1)
        for length in range(_LONGEST, _SHORTEST - 1, -1):
            if len(ids) > length and (begin := self._ends.get(tuple(ids[-length:]))) is not None:
                return _copied(ids, begin, n_most)
        return []


def _copied(ids: Sequence[int], begin: int, n: int) -> list[int]:
    """n ids from `begin` on; past the end of the text what has been copied goes on, so a loop goes round."""
    out: list[int] = []
    for at in range(begin, begin + n):
        out.append(ids[at] if at < len(ids) else out[at - len(ids)])
    return out
