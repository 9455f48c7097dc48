"""Where the names of points can stand without lying on each other.

The drawing library has no such thing for a description in Vega-Lite, so it is done here, for a small plot; in a larger
one there is only more room. A name that finds no place is left out of the picture: pointing at its mark, or the table
beside it, still tells it. Before it: rows.py. The next file to read is kinds.py.
"""

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

Side = Literal["above", "right", "left", "below"]
SIDES: tuple[Side, ...] = ("above", "right", "left", "below")

# Pixels: a plot on a phone, a mark's half width, the gap to its name, and letters of 11 px.
PLOT = (220.0, 350.0)
MARK, GAP, LINE = 5.0, 3.0, 11.0
NARROW, WIDE = 6.4, 11.5


class Box(NamedTuple):
    """A rectangle in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two share a point of their insides."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def sides(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[Side | None]:
    """The side of its point on which each name stands, earlier points first; None where none is free.

    No name meets another name, nor the mark of another point, nor the left or right end of the plot.

    >>> sides([(0.0, 0.0), (1.0, 1.0)], ["a", "b"])
    ['above', 'above']
    >>> sides([(0.0, 0.0), (0.0, 0.0), (1.0, 1.0)], ["one", "two", "far"])
    [None, None, 'above']
    """
    places = _pixels(points)
    marks = [Box(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in places]
    taken: list[Box] = []
    chosen: list[Side | None] = []
    for index, ((x, y), name) in enumerate(zip(places, names, strict=True)):
        # A mark under this one would be named by mistake, so it counts as in the way on every side.
        hidden = any(i != index and mark == marks[index] for i, mark in enumerate(marks))
        others = marks[:index] + marks[index + 1 :]
        free = [
            (side, box)
            for side in SIDES
            if not hidden
            and (box := _box(x, y, _width(name), side)).left >= -20
            and box.right <= PLOT[0] + 20
            and not any(box.meets(other) for other in [*others, *taken])
        ]
        chosen.append(free[0][0] if free else None)
        taken.extend([free[0][1]] if free else [])
    return chosen


def _box(x: float, y: float, width: float, side: Side) -> Box:
    reach = MARK + GAP
    if side in ("above", "below"):
        top = y - reach - LINE if side == "above" else y + reach
        return Box(x - width / 2, top, x + width / 2, top + LINE)
    left = x + reach if side == "right" else x - reach - width
    return Box(left, y - LINE / 2, left + width, y + LINE / 2)


def _pixels(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if not points:
        return []
    xs, ys = zip(*points, strict=True)
    wide, high = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    return [((x - min(xs)) / wide * PLOT[0], (max(ys) - y) / high * PLOT[1]) for x, y in points]


def _width(name: str) -> float:
    return sum(WIDE if unicodedata.east_asian_width(c) in "WF" else NARROW for c in name)
