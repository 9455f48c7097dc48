"""Makes text from anywhere safe to look at: what has no visible form, or changes the form of its neighbours, is spelled out.

A vocabulary holds whatever bytes a tokenizer was trained on: line breaks, control characters, bidirectional marks that
turn the rest of a line around, halves of surrogate pairs. Shown as they are they break a table, hide text or reach a
terminal as commands. This file spells them out; escaping for HTML or JSON is a second, separate step that belongs to
whoever writes HTML or JSON. The next file to read is catalogue/, the words that stand around such text.
"""

import unicodedata
from collections.abc import Iterator

# Control, format (bidirectional marks, zero width, soft hyphen), surrogate, private use, unassigned, line, paragraph.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters, marks and symbols by their category, of which nothing is seen: joiners, fillers of Hangul and Khmer, empty braille.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Writing needs a few marks on a letter (Hebrew, Vietnamese, Tibetan); piles of dozens are made to cover the lines around.
MOST_MARKS = 8
_MARKS = frozenset({"Mn", "Me"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
OPEN_BOX = "␣"


def counted(n: int, noun: str) -> str:
    """A number and what it counts, as a person writes them.

    >>> counted(1, "file"), counted(37673, "byte")
    ('1 file', '37,673 bytes')
    """
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def quoted(value: object, limit: int = 60) -> str:
    """A value of a file as messages quote it: of a long one the beginning, since a broken file may hold anything.

    >>> quoted("abc"), quoted("a" * 99, 8)
    ("'abc'", "'aaaaaaa...")
    """
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def visible(text: str, *, keeps_lines: bool = False, marks_edges: bool = False) -> str:
    r"""Spells out each character that cannot be seen, as Python would in a string; all others stay as they are.

    `keeps_lines` leaves line breaks in place, for running text. `marks_edges` shows spaces at the two ends as an open
    box, for tokens, where " the" and "the" are two words. Of a pile of marks on one letter the first MOST_MARKS
    stay. The result is for reading: a backslash stays one backslash, so it cannot be turned back. Nothing is escaped for
    HTML here.

    >>> visible("a\u202eb\n")
    'a\\u202eb\\n'
    >>> visible(" the", marks_edges=True)
    '␣the'
    """
    # most texts are harmless, and one look tells
    shown = text if text.isascii() and text.isprintable() else "".join(_spelled_out(text, keeps_lines))
    if not marks_edges:
        return shown
    inner = shown.strip(" ")
    if not inner:
        return OPEN_BOX * len(shown)
    n_before = len(shown) - len(shown.lstrip(" "))
    return OPEN_BOX * n_before + inner + OPEN_BOX * (len(shown) - n_before - len(inner))


def cell(text: str) -> str:
    """A text for a cell of CSV that a spreadsheet will not take for a formula: one that begins like it gets an apostrophe.

    A sign alone and a number are no formulas and stay as they are. Quoting a cell does not help: it is taken off first.

    >>> [cell(text) for text in ("=1+1", "@SUM(A1)", "-1.5", "-", "a=b")]
    ["'=1+1", "'@SUM(A1)", '-1.5', '-', 'a=b']
    """
    if len(text) < 2 or text[0] not in "=+-@\t\r":
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def in_markdown(text: str) -> str:
    r"""A text that stands in Markdown as it is: on one line, nothing in it a link, a heading, an emphasis or a tag.

    >>> in_markdown("a*b</td>|")
    'a\\*b\\</td\\>\\|'
    """
    return "".join("\\" + c if c in "\\`*_{}[]<>()#+-!|&~" else c for c in visible(text))


def _spelled_out(text: str, keeps_lines: bool) -> Iterator[str]:
    n_marks = 0
    for character in text:
        category = unicodedata.category(character)
        n_marks = n_marks + 1 if category in _MARKS else 0
        if category in _UNSEEN or character in _BLANK or n_marks > MOST_MARKS:
            yield _spelled(character, keeps_lines)
        else:
            yield character


def _spelled(character: str, keeps_lines: bool) -> str:
    if character == "\n" and keeps_lines:
        return character
    if character in _SHORT:
        return _SHORT[character]
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
