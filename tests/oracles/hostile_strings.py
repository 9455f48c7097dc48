"""Five hundred texts made to break out of wherever they are shown, from a fixed list of parts; it imports nothing of ours.

Each part is a known way out: of markup, of an attribute, of a script's data, of a style, of a line, of a table's cell, of a
terminal, of a reader's trust in what stands where. HARMLESS_MARKS are the code points that may reach a page or a terminal.
"""

import unicodedata
from itertools import product

PARTS = (
    "</script>", "<script>alert(1)</script>", "<b>x</b>", "<img src=x onerror=alert(1)>", "<!--", "-->", "]]>", "<![CDATA[",
    '"', "'", "`", '"><b>x</b>', "' onload='alert(1)", "&amp;", "&lt;b&gt;", "&#0;", "${alert(1)}", "{{7*7}}",
    "javascript:alert(1)", "</style>", "</textarea>", "</title>", "<svg onload=alert(1)>", "\u202e", "\u2066", "\u200f",
    "\n", "\r\n", "\r", "\t", "\x0b", "\x0c", "\u0085", "\u2028", "\u2029", "\x00", "\x07", "\x08", "\x1b[31m", "\x1b]0;t\x07",
    "\x1b[2J", "\x9b31m", "\x7f", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u034f", "\u3164", "\ud800", "\U000e0041",
    "a" + "\u0301" * 60, "\u0338", "=1+1", "+1", "-1", "@SUM(1)", "=cmd|' /C calc'!A0", "|", "**x**", "[x](y)", "# x", "<!-- x",
    "\\", "\\u003c", "%3Cb%3E", "../../x", "\ue000", "\uffff", "x" * 5_000,
)  # fmt: skip
# Spelled out wherever they are shown: controls, formats, surrogates, private and unassigned ones, line and paragraph ends.
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def hostile_strings(n: int = 500) -> tuple[str, ...]:
    """The parts alone, then pairs of them in a fixed order, each once."""
    pairs = (a + b for a, b in product(PARTS, PARTS[::7] + PARTS[3::11]))
    return tuple(dict.fromkeys([*PARTS, *pairs]))[:n]


def unseen(text: str) -> set[str]:
    """The code points of a text that nobody can see, but for its line breaks."""
    return {f"U+{ord(c):04X}" for c in text if unicodedata.category(c) in UNSEEN and c != "\n"}


def tallest_pile(text: str) -> int:
    """The most combining marks that stand on one letter."""
    best = now = 0
    for character in text:
        now = now + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        best = max(best, now)
    return best
