"""Makes text from anywhere safe to look at: what has no visible form, or changes the form of its neighbours, is spelled out.

A vocabulary holds whatever bytes a tokenizer was trained on: line breaks, control characters, bidirectional marks that
turn the rest of a line around, halves of surrogate pairs. Shown as they are they break a table, hide text or reach a
terminal as commands. This file spells them out; escaping for HTML or JSON is a second, separate step that belongs to
whoever writes HTML or JSON. The next file to read is catalogue/, the words that stand around such text.
"""

import unicodedata

# Control, format (bidirectional marks, zero width, soft hyphen), surrogate, private use, unassigned, line, paragraph.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
OPEN_BOX = "␣"


def visible(text: str, *, keeps_lines: bool = False, marks_edges: bool = False) -> str:
    r"""Spells out each character that cannot be seen, as Python would in a string; all others stay as they are.

    `keeps_lines` leaves line breaks in place, for running text. `marks_edges` shows spaces at the two ends as an open
    box, for tokens, where " the" and "the" are two words. The result is for reading: a backslash stays one backslash,
    so it cannot be turned back. Nothing is escaped for HTML here.

    >>> visible("a\u202eb\n")
    'a\\u202eb\\n'
    >>> visible(" the", marks_edges=True)
    '␣the'
    """
    shown = "".join(_spelled(character, keeps_lines) for character in text)
    if not marks_edges:
        return shown
    inner = shown.strip(" ")
    if not inner:
        return OPEN_BOX * len(shown)
    n_before = len(shown) - len(shown.lstrip(" "))
    return OPEN_BOX * n_before + inner + OPEN_BOX * (len(shown) - n_before - len(inner))


def _spelled(character: str, keeps_lines: bool) -> str:
    if character == "\n" and keeps_lines:
        return character
    if unicodedata.category(character) not in _UNSEEN:
        return character
    if character in _SHORT:
        return _SHORT[character]
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
