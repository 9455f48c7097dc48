"""The descriptions of a page's pictures, and the windows of the grids that are too large for one drawing.

A page has a budget of bytes. A small description stands in it as it is; a large grid stands there compressed, window by
window, and draw.js unpacks the one that is looked at. Where the budget ends, windows are left out, and the page says how
many rows it shows. Before it: ../pictures/windows.py. The next file to read is parts.py.
"""

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from unembed.catalogue import Words
from unembed.pictures import Window, choice, draw, label, shades, windows
from unembed.pictures.markup import Html, element
from unembed.pictures.rows import Tables
from unembed.results import Picture, to_json_value

MOST_PACKED_BYTES = 700_000  # of all windows together; with the drawing library and the tables that is less than 2 MB
MOST_PLAIN_BYTES = 150_000  # of a grid that stands as it is


@dataclass
class Drawings:
    """The descriptions of all pictures of a page, by the id of the box that each is drawn into."""

    specs: dict[str, Any] = field(default_factory=dict)
    windows: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    bytes_left: int = MOST_PACKED_BYTES

    @property
    def is_used(self) -> bool:
        """Whether anything is drawn at all."""
        return bool(self.specs or self.windows)

    def add(self, spec: dict[str, Any]) -> str:
        """Keeps a description without its colours, which the page holds once for all, and returns its box's id."""
        box = self.next_box()
        self.specs[box] = _without_colours(spec)
        return box

    def next_box(self) -> str:
        """The id of the next box: they are counted through, whichever way their pictures are kept."""
        return f"chart-{len(self.specs) + len(self.windows) + 1}"


def stepped(
    picture: Picture, tables: Tables, panel: object, words: Words, drawings: Drawings, *, n_more: int
) -> tuple[str, int, Html]:
    """A grid's box, how many rows it can show, and, if it has several windows, the buttons that go from one to the next.

    `n_more` panels come after it, to which their share of the budget is left. No row at all is shown where it has run out.
    """
    found = windows(picture, tables, panel)
    ends = shades(picture, tables, panel) if len(found) > 1 else None
    share = drawings.bytes_left // (n_more + 1)
    kept: list[dict[str, str]] = []
    n_rows = 0
    box = drawings.next_box()
    for window in found:
        one = {**tables, picture.table: window.table}
        spec = draw(picture, one, lang=words.lang, panel=panel, fills_its_box=True, shades=ends)
        text = json.dumps(to_json_value(_without_colours(spec)), separators=(",", ":"))
        if len(found) == 1 and len(text) <= MOST_PLAIN_BYTES:
            return drawings.add(spec), window.table.n_rows, Html()
        packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        if len(packed) > share:
            break
        share -= len(packed)
        drawings.bytes_left -= len(packed)
        kept.append({"label": _told(picture, tables, window, words), "packed": packed})
        n_rows += window.table.n_rows
    if not kept:
        return box, 0, Html()
    for number, one_kept in enumerate(kept, start=1):
        one_kept["label"] = words.text("page.window", number=number, windows=len(kept), what=one_kept["label"])
    drawings.windows[box] = kept
    return box, n_rows, _controls(box, kept, words) if len(kept) > 1 else Html()


def _controls(box: str, kept: list[dict[str, str]], words: Words) -> Html:
    """The buttons show themselves when the script that they need runs."""
    return element(
        "div",
        element("button", "←", type="button", class_="before", aria_label=words.text("page.window_before")),
        element("button", "→", type="button", class_="after", aria_label=words.text("page.window_after")),
        element("span", kept[0]["label"], class_="small"),
        class_="windows",
        role="group",
        hidden=True,
        id=f"{box}-windows",
        aria_label=words.text("page.windows"),
    )


def _told(picture: Picture, tables: Tables, window: Window, words: Words) -> str:
    """Which columns and rows a window holds."""

    def span(column: str, ends: tuple[Any, Any]) -> str:
        first, last = (choice(column, value, words) for value in ends)
        name = label(column, picture.table, tables[picture.table], words)
        return f"{name} {first}" if first == last else f"{name} {first}–{last}"

    return f"{span(picture.x, window.columns)}; {span(picture.y, window.lines)}"


def _without_colours(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in ("config", "$schema")}
