"""A grid that is too large for one drawing, as windows of neighbouring columns and rows that can be drawn one after the other.

A lens over a long text has a column for each of a thousand tokens; the first 3,000 cells of its table would be a few layers
and no picture. A window holds whole columns where it can, and every cell lies in exactly one. Before it: rows.py. The next
file to read is draw.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unembed.pictures.rows import MOST_ROWS, Tables, in_order, is_share
from unembed.results import Picture, Table, to_plain

MOST_COLUMNS, MOST_LINES = 32, 64  # of a window of a grid that has several: more is scrolled more than read


@dataclass(frozen=True, kw_only=True)
class Window:
    """The rows of a table that fall into one window, and the first and last value on each axis."""

    table: Table
    columns: tuple[Any, Any]
    lines: tuple[Any, Any]


def windows(picture: Picture, tables: Tables, panel: object = None) -> list[Window]:
    """The windows of one panel of a grid in reading order, those without a cell left out; one where all can be drawn.

    >>> lens = Table(columns={"position": list(range(400)) * 10, "layer": [i // 400 for i in range(4000)]})
    >>> grid = Picture(key="lens", kind="grid", table="lens", x="position", y="layer")
    >>> found = windows(grid, {"lens": lens})
    >>> len(found), found[0].columns, found[-1].columns, found[0].lines, sum(window.table.n_rows for window in found)
    (13, (0, 31), (384, 399), (0, 9), 4000)
    """
    table = tables[picture.table]
    keep = np.arange(table.n_rows)
    if picture.facet and panel is not None:
        keep = keep[np.array([to_plain(value) == panel for value in table[picture.facet]], dtype=bool)]
    xs, ys = ([to_plain(value) for value in table[name][keep]] for name in (picture.x, picture.y))
    columns, lines = in_order(xs), in_order(ys)
    wide, high = len(columns), len(lines)
    if len(keep) > MOST_ROWS["grid"]:
        wide, high = min(wide, MOST_COLUMNS), min(high, MOST_LINES)
    across = {value: i // wide for i, value in enumerate(columns)}
    down = {value: i // high for i, value in enumerate(lines)}
    members: dict[tuple[int, int], list[int]] = {}
    for row, x, y in zip(keep.tolist(), xs, ys, strict=True):
        members.setdefault((down[y], across[x]), []).append(row)
    return [
        Window(
            table=Table(columns={name: values[rows] for name, values in table.columns.items()}, units=table.units),
            columns=_ends(columns, i * wide, wide),
            lines=_ends(lines, j * high, high),
        )
        for (j, i), rows in sorted(members.items())
    ]


def shades(picture: Picture, tables: Mapping[str, Table], panel: object = None) -> tuple[float, float] | None:
    """From where to where the colours of a panel's grid go, so that one means the same in all of its windows.

    None where no numbers are shaded; a share goes from 0 to 1.
    """
    if not picture.color:
        return None
    if is_share(picture.color):
        return 0.0, 1.0
    table = tables[picture.table]
    values: Sequence[Any] = [to_plain(value) for value in table[picture.color]]
    if picture.facet and panel is not None:
        facets = [to_plain(value) for value in table[picture.facet]]
        values = [value for value, facet in zip(values, facets, strict=True) if facet == panel]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and np.isfinite(v)]
    return min([0.0, *numbers]), max([*numbers, 1e-9])


def _ends(values: Sequence[Any], first: int, n: int) -> tuple[Any, Any]:
    return values[first], values[min(first + n, len(values)) - 1]
