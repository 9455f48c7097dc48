"""Where a text must stop: strings found in a text that arrives in pieces, and nothing shown that may belong to one.

A text ends at the first place where it ends with a stop string; if it ends with several there, the longest counts. That
rule looks at characters alone, so it does not matter where tokens begin and end. The next file to read is texts.py.
"""

from collections.abc import Sequence


class StopMatcher:
    """Looks for stop strings in a growing text; `found` is the one that ended it.

    What `feed` and `finish` give, joined, is the text up to the stop string, or all of it.

    >>> matcher = StopMatcher(["END"])
    >>> [matcher.feed(piece) for piece in ["one E", "N or the EN", "D, more"]], matcher.found
    (['one ', 'EN or the ', ''], 'END')
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._longest = len(self._stops[0]) if self._stops else 0
        self.found: str | None = None
        # The longest end of the text that begins a stop string: shown once it is known not to become one.
        self._held = ""

    def feed(self, piece: str) -> str:
        """Gives what may be shown after this piece of text; once a stop string is complete, nothing any more."""
        if not self._stops:
            return piece
        shown = []
        for character in piece:
            if self.found is not None:
                break
            self._held += character
            self.found = next((stop for stop in self._stops if self._held.endswith(stop)), None)
            kept = len(self.found) if self.found is not None else self._length_of_a_beginning()
            cut = len(self._held) - kept
            shown.append(self._held[:cut])
            self._held = self._held[cut:]
        return "".join(shown)

    def finish(self) -> str:
        """Gives what was held back, when the text has ended without a stop string; otherwise nothing."""
        rest = "" if self.found is not None else self._held
        self._held = ""
        return rest

    def _length_of_a_beginning(self) -> int:
        """The length of the longest end of what is held that begins a stop string."""
        for start in range(max(0, len(self._held) - self._longest + 1), len(self._held)):
            if any(stop.startswith(self._held[start:]) for stop in self._stops):
                return len(self._held) - start
        return 0
