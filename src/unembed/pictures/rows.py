"""Which rows of a table a picture draws, and what a person reads in them.

Everything that may come from a stranger's vocabulary passes through visible.py here, before a drawing library sees it.
Before it: theme.py. The next file to read is draw.py.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from unembed import catalogue
from unembed.catalogue import Words
from unembed.results import Picture, Table, to_plain
from unembed.visible import visible

Tables = Mapping[str, Table]

# Marks beyond these take longer to draw than to read; the table beside the picture has the other rows too.
MOST_ROWS = {"lines": 2_000, "grid": 3_000, "points": 2_000, "bars": 60}

# A vocabulary may hold texts of any length; nobody reads more than this in a cell, and a page has to stay small.
MOST_LETTERS = 80

_SHARES = frozenset({"share", "probability"})


def caption(picture: Picture, words: Words) -> str:
    """What stands beside the picture; a picture that no catalogue knows goes by its table's name."""
    return words.find(f"picture.{picture.key}") or words.name("table", picture.table)


def label(column: str, table_name: str, table: Table, words: Words) -> str:
    """What a person reads for a column: this table's own word for it, else the general one, and the unit."""
    own = f"{table_name}.{column}"
    name = own if words.find(f"column.{own}") else column
    return words.name("column", name, table.units.get(column) or catalogue.unit_of(column))


def choice(column: str, value: object, words: Words) -> str:
    """What a person reads for a value in a column, such as `val` in `split`; tokens show their outer spaces.

    >>> choice("split", "val", catalogue.load("es")), choice("token", " a\\n", catalogue.load("es"))
    ('validación', '␣a\\\\n')
    >>> choice("top", [["the", 0.5], [" a", 0.25]], catalogue.load("es"))
    'the 50\\xa0%; ␣a 25\\xa0%'
    """
    plain = to_plain(value)
    if isinstance(plain, str):
        return words.find(f"choice.{column}.{plain}") or shorten(visible(plain, marks_edges=True), words)
    if plain is None:
        return words.text("page.none")
    if isinstance(plain, list):
        return "; ".join(_item(column, item, words) for item in plain)
    return words.number(plain) if isinstance(plain, int | float) else shorten(visible(str(plain)), words)


def shorten(text: str, words: Words, most: int = MOST_LETTERS) -> str:
    """A text that is not longer than so many characters, or its beginning and how many were left out."""
    return text if len(text) <= most else words.text("page.cut", text=text[:most], n=len(text) - most)


def number(column: str, value: float, words: Words) -> str:
    """A number as it is written out: a percentage in a column of shares, else as the language writes numbers."""
    return words.percent(value) if is_share(column) else words.number(value)


def is_share(name: str) -> bool:
    """Whether a name promises a share of one: then it is written as a percentage, and shaded from 0 to 1."""
    return name in _SHARES or name.startswith("explained_") or name.endswith(("_share", "_probability"))


def panels(picture: Picture, tables: Tables) -> list[Any]:
    """The values of the facet column in the order in which they first appear; [None] for a picture without one."""
    return unique(tables[picture.table][picture.facet]) if picture.facet else [None]


def rows_drawn(picture: Picture, tables: Tables) -> int:
    """How many rows of its table the picture shows: all, or MOST_ROWS in each panel."""
    return sum(select(picture, tables, value).n_rows for value in panels(picture, tables))


def select(picture: Picture, tables: Tables, panel: object = None) -> Table:
    """The rows of one panel: the first MOST_ROWS, but for lines, which are thinned evenly and keep both their ends."""
    table = tables[picture.table]
    keep = np.arange(table.n_rows)
    if picture.facet and panel is not None:
        keep = keep[np.array([to_plain(value) == panel for value in table[picture.facet]], dtype=bool)]
    most = MOST_ROWS[picture.kind]
    if picture.kind != "lines":
        keep = keep[:most]
    elif len(keep) > most:
        colors = [table[picture.color][row] for row in keep] if picture.color else [None] * len(keep)
        keep = _thinned(keep, colors, most)
    return Table(columns={name: values[keep] for name, values in table.columns.items()}, units=table.units)


def drawable(table: Table, columns: list[str], words: Words) -> list[dict[str, Any]]:
    """The rows as a drawing library takes them: finite numbers stay numbers, others are None, all else is words.

    An absent value among numbers is None too: a word there would stand on a scale.
    """
    plain = {name: [_drawable(name, value, words) for value in table[name]] for name in columns}
    for name in columns:
        values = [to_plain(value) for value in table[name]]
        if any(map(_is_number, values)) or all(value is None for value in values):
            plain[name] = [value if _is_number(value) else None for value in plain[name]]
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def is_number(table: Table, column: str) -> bool:
    """Whether a column holds numbers and nothing else, so that it can lie on a scale."""
    values = table[column]
    return all(map(_is_number, map(to_plain, values))) and len(values) > 0


def unique(values: Any) -> list[Any]:
    """Each value once, in the order of its first appearance."""
    return list(dict.fromkeys(to_plain(value) for value in values))


def in_order(values: Any) -> list[Any]:
    """Each value once: numbers by size, all else as it first appears."""
    found = unique(values)
    return sorted(found) if all(isinstance(v, int | float) and math.isfinite(v) for v in found) else found


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _drawable(column: str, value: object, words: Words) -> Any:
    plain = to_plain(value)
    if _is_number(plain):
        return plain if math.isfinite(plain) else None
    return choice(column, plain, words)


def _item(column: str, item: Any, words: Words) -> str:
    """One of the things in a list; a text with its share, as the lens has them, is a pair."""
    match item:
        case [str() as text, float() as share]:
            return f"{choice(column, text, words)} {words.percent(share, 0)}"
        case _:
            return choice(column, item, words)


def _thinned(keep: np.ndarray, colors: list[Any], most: int) -> np.ndarray:
    groups: dict[Any, list[int]] = {}
    for row, color in zip(keep.tolist(), colors, strict=True):
        groups.setdefault(to_plain(color), []).append(row)
    share = max(2, most // len(groups))
    evenly = [np.asarray(g)[np.unique(np.linspace(0, len(g) - 1, share).round().astype(int))] for g in groups.values()]
    return np.sort(np.concatenate(evenly))
