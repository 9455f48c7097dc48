"""Where a long text may be cut so that no tokenizer here notices: the ids of the stretches are those of the whole.

A safe place is before a space or line feed that follows a letter or digit. A word, a subword's pre-token or a run of
white space never straddles such a place. Only a text that offers none in 16 million characters (DNA without lines, say)
is cut elsewhere, which for subwords may change the ids around the cut; characters do not mind. Before it: base.py.
"""

from collections.abc import Iterator

MOST_CHARACTERS = 1 << 24


def stretches(text: str, size: int, *, is_whole: bool = True) -> Iterator[str]:
    """Cuts as much of a text as has safe places into stretches of about `size` characters; all of it if nothing follows.

    >>> list(stretches("to be, or not to be", 6)), list(stretches("to be, or not to be", 6, is_whole=False))
    (['to', ' be, or', ' not', ' to be'], ['to', ' be, or', ' not'])
    """
    start = 0
    while len(text) - start > size:
        cut = _safe_cut(text, start, start + size)
        if cut is None and len(text) - start > MOST_CHARACTERS:
            cut = start + MOST_CHARACTERS
        if cut is None:
            break
        yield text[start:cut]
        start = cut
    if is_whole and start < len(text):
        yield text[start:]


def _safe_cut(buffer: str, start: int, goal: int) -> int | None:
    """Finds the last safe place in start..goal, or else the first one after goal; None if there is none."""
    at = goal
    while (at := max(buffer.rfind(" ", start + 1, at), buffer.rfind("\n", start + 1, at))) > 0:
        if buffer[at - 1].isalnum():
            return at
    at = goal
    while at < len(buffer):
        found = [place for mark in " \n" if (place := buffer.find(mark, at)) >= 0]
        if not found:
            return None
        at = min(found)
        if buffer[at - 1].isalnum():
            return at
        at += 1
    return None
