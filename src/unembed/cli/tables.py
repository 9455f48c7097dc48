"""A result for people in a terminal: values under each other, tables in columns, no wider than the terminal.

English shows the names that JSON has, so that who reads a table knows what to ask a script for; Spanish and Korean show the
catalogue's words where it has some, and numbers as the language writes them. Whole numbers of bytes are shown in kB, MB, GB.
A text that is too wide is cut and ends in an ellipsis; data is never cut or rounded (formats.py). Letters of East Asian
scripts take two columns. Before it: render.py.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unembed.catalogue import Words
from unembed.results import Result, Table, to_plain
from unembed.visible import visible

NAME_WIDTH = 24
_NARROWEST = 8  # a column of texts is never cut to less than this
# Of a token a space at its edge is a part that counts.
_OF_TOKENS = frozenset({"token", "target", "against"})
Bold = Callable[[str], str]


def lines_of(result: Result, words: Words, *, width: int | None = None, bold: Bold = str) -> list[str]:
    """The lines of a result: its values, then its tables under their names; `width` is the terminal's, None for none."""
    shown = [_Shown.of(name, value, words) for name, value in result.values.items()]
    at = max([NAME_WIDTH, *(columns(one.name) for one in shown if one.cell is not None)]) + 1
    lines = [line for one in shown for line in one.lines(at)]
    for name, table in result.tables.items():
        if lines:
            lines.append("")
        lines += [bold(_label("table", name, words)), *_aligned(name, table, words, width, bold)]
    return lines


def columns(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns("the"), columns("한국어")
    (3, 6)
    """
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WF" else _one(c) for c in text)


def _one(character: str) -> int:
    return 0 if unicodedata.combining(character) else 1


def cut(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits with an ellipsis after it.

    >>> cut("a long sentence", 7), cut("short", 7)
    ('a long…', 'short')
    """
    if columns(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += columns(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"


def cell(value: Any, words: Words, name: str = "") -> str:
    """One value as a person reads it: numbers in groups of three, six significant digits, no control characters.

    >>> from unembed.catalogue import load
    >>> cell(497759232, load("en"), "memory_peak_bytes"), cell(497759232, load("en"), "tokens")
    ('497.8 MB', '497,759,232')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return words.text("page.yes" if value else "page.no")
    if isinstance(value, int) and _is_size(name):
        return words.size(value).replace("\N{NO-BREAK SPACE}", " ")
    if isinstance(value, int | float):
        return _number(f"{value:,}" if isinstance(value, int) else f"{value:.6g}", words)
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(key))} {cell(item, words, str(key))}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(cell(item, words) for item in value)
    return visible(str(value), marks_edges=name in _OF_TOKENS)


def _is_size(name: str) -> bool:
    """Whether a name says that its whole numbers are bytes."""
    return "bytes" in name.split("_")


def _number(shown: str, words: Words) -> str:
    swap = {",": words.text("number.group"), ".": words.text("number.decimal")}
    return "".join(swap.get(character, character) for character in shown)


def _label(kind: str, name: str, words: Words) -> str:
    """The name itself in English, the catalogue's word in other languages."""
    return visible(name if words.lang == "en" else words.name(kind, name))


def _chosen(name: str, value: Any, words: Words) -> Any:
    """The catalogue's word for one of a few values, such as `proved`, in other languages than English."""
    return words.find(f"choice.{name}.{value}") or value if isinstance(value, str) and words.lang != "en" else value


class _Shown:
    """One value under its name: in the same line, or, for mappings and texts of several lines, in lines below it."""

    def __init__(self, name: str, cell: str | None, below: Sequence[tuple[str, str]] = ()) -> None:
        self.name, self.cell, self.below = name, cell, below

    @staticmethod
    def of(name: str, value: Any, words: Words) -> "_Shown":
        label, plain = _label("value", name, words), to_plain(value)
        if isinstance(plain, Mapping) and plain:
            kind = f"choice.{name.removeprefix('by_')}"
            shown = {key: key if words.lang == "en" else words.find(f"{kind}.{key}") or key for key in plain}
            of = name if _is_size(name) else ""  # a mapping of sizes, or one whose own names say what is one
            below = [(visible(shown[key]), cell(item, words, of or str(key))) for key, item in plain.items()]
            return _Shown(label, None, below)
        if isinstance(plain, list) and plain and all(isinstance(item, str) for item in plain):
            return _Shown(label, None, [("", visible(item)) for item in plain])
        if isinstance(plain, list) and plain and isinstance(plain[0], list):
            return _Shown(label, f"{' x '.join(map(str, _shape(plain)))} numbers")
        if isinstance(plain, str) and "\n" in plain and name not in _OF_TOKENS:
            return _Shown(label, None, [("", visible(line)) for line in plain.split("\n")])
        return _Shown(label, cell(_chosen(name, plain, words), words, name))

    def lines(self, at: int) -> list[str]:
        if self.cell is not None:
            return [f"{_padded(self.name, at)}{self.cell}"]
        # a name that is longer than the column still keeps its distance from its value
        inner = max([at - 2, *(columns(key) + 1 for key, _ in self.below)])
        return [self.name, *(f"  {_padded(key, inner) if key else ''}{text}" for key, text in self.below)]


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - columns(text))


def _shape(value: Any) -> list[int]:
    return [len(value), *_shape(value[0])] if isinstance(value, list) and value else []


def _aligned(name: str, table: Table, words: Words, width: int | None, bold: Bold) -> list[str]:
    heads = [_head(name, column, table, words) for column in table.columns]
    rows = [
        [cell(_chosen(column, value, words), words, column) for column, value in row.items()] for row in table.rows()
    ]
    widths = [max(map(columns, column)) for column in zip(heads, *rows, strict=True)]
    widths = widths if width is None else _narrowed(widths, width)
    lines = [
        "  ".join(_padded(cut(text, w), w) for text, w in zip(line, widths, strict=True)).rstrip()
        for line in [heads, *rows]
    ]
    lines = lines if width is None else [cut(line, width) for line in lines]
    return [bold(lines[0]), *lines[1:]]


def _head(table_name: str, column: str, table: Table, words: Words) -> str:
    unit = None if _is_size(column) else table.units.get(column)
    if words.lang == "en":
        return visible(f"{column} [{unit}]" if unit else column)
    special = f"{table_name}.{column}"
    return visible(words.name("column", special if words.find(f"column.{special}") else column, unit))


def _narrowed(widths: list[int], width: int) -> list[int]:
    """The widths of columns that fit: the widest is cut first, none to less than eight."""
    widths = list(widths)
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths, default=0) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths
