"""The pieces of a report's section: values as tiles, pictures with their tables under them, notes.

Each is a function from results to markup; none knows which analysis it shows. Before it: tables.py and
drawings.py. The next file to read is page.py, which puts sections together.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from unembed import catalogue
from unembed.catalogue import Words
from unembed.pictures import caption, choice, draw, panels, rows_drawn
from unembed.pictures.markup import Html, element
from unembed.pictures.rows import number
from unembed.report.drawings import Drawings, stepped
from unembed.report.tables import folded
from unembed.results import Picture, Result, to_plain


def tiles(values: Mapping[str, Any], words: Words) -> Html:
    """Single values, each with its name; a mapping becomes one tile for each of its entries."""
    made = [
        element("div", element("dt", name), element("dd", shown), class_="tile")
        for name, shown in _named_values(values, words)
    ]
    # Rows of equal length where they do not fit into one; few tiles do not grow wide.
    columns = max(4, len(made)) if len(made) <= 5 else max(3, -(-len(made) // 2))
    return element("dl", *made, class_="tiles", style=f"--columns:{min(columns, 5)}") if made else Html()


def figures(result: Result, words: Words, drawings: Drawings) -> Iterator[Html]:
    """Every picture of a result. Lines drawn from one table share a figure, and the table stands once."""

    def shared(picture: Picture) -> tuple[str, ...]:
        stands_alone = picture.kind != "lines" or picture.facet or picture.rules_table
        return (picture.table, picture.key) if stands_alone else (picture.table,)

    for _, group in groupby(result.pictures, key=shared):
        yield figure(result, list(group), words, drawings)


def figure(result: Result, pictures: Sequence[Picture], words: Words, drawings: Drawings) -> Html:
    """Pictures of one table, panel by panel, with the tables that they were drawn from folded up under them."""
    first = pictures[0]
    data = result.tables[first.table]
    name = caption(first, words) if len(pictures) == 1 else words.name("table", first.table)
    if not data.n_rows:
        return element("p", f"{name}: {words.text('page.none')}", class_="small")
    wanted = [(picture, panel) for picture in pictures for panel in panels(picture, result.tables)]
    boxes, n_drawn = [], 0
    for i, (picture, panel) in enumerate(wanted):
        box, n_rows = _box(
            result, picture, panel, words, drawings, is_titled=len(pictures) > 1, n_more=len(wanted) - i - 1
        )
        boxes.append(box)
        n_drawn += n_rows
    columns = ("panel", "panels", "panels three")[min(len(boxes), 3) - 1]
    parts = [element("figcaption", name), element("div", *boxes, class_=columns)]
    shown = n_drawn if first.kind == "grid" else rows_drawn(first, result.tables)
    if shown < data.n_rows:
        parts.append(element("p", words.text("page.drawn", shown=shown, rows=data.n_rows), class_="small"))
    if first.kind in ("grid", "points"):
        parts.append(element("p", words.text("page.point"), class_="small screen"))
    parts.append(folded(result, first.table, words))
    if first.rules_table:
        parts.append(folded(result, first.rules_table, words))
    return element("figure", *parts, class_=f"figure {first.kind}")


def notes(keys: tuple[str, ...], words: Words) -> Html:
    """How far to trust what the section shows."""
    if not keys:
        return Html()
    items = [element("p", words.find(f"note.{key}") or key) for key in keys]
    return element("div", element("h3", words.text("page.notes")), *items, class_="note", role="note")


def _box(
    result: Result, picture: Picture, panel: Any, words: Words, drawings: Drawings, *, is_titled: bool, n_more: int
) -> tuple[Html, int]:
    """One panel, and of a grid how many rows of the table it can show."""
    if picture.kind == "grid":
        drawn = stepped(picture, result.tables, panel, words, drawings, n_more=n_more)
    else:
        spec = draw(picture, result.tables, lang=words.lang, panel=panel, fills_its_box=True)
        if is_titled:  # the title over the panel says what the axis would say again, and takes no room from the lines
            for layer in spec["layer"]:
                layer["encoding"].get("y", {})["title"] = None
        drawn = drawings.add(spec), 0, Html()
    box, n_rows, controls = drawn
    name = title = caption(picture, words)
    if picture.facet and panel is not None:
        title = choice(picture.facet, panel, words)
        name = f"{name}, {title}"
    parts = []
    if is_titled or title != name:
        parts.append(element("p", title, class_="panel-title"))
    chart = element("div", class_="chart", id=box, role="img", aria_label=name)
    # What scrolls is reached through the picture in it, which takes the keyboard once it is drawn.
    parts.append(element("div", chart, class_="sideways") if picture.kind == "grid" else chart)
    if not n_rows and picture.kind == "grid":
        parts[-1] = element("p", words.text("page.none"), class_="small")
    return element("div", *parts, controls), n_rows


def _named_values(values: Mapping[str, Any], words: Words) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        plain = to_plain(value)
        if isinstance(plain, dict):
            for key, part in plain.items():
                known = words.find(f"value.{name}_{key}")
                yield known or f"{words.name('value', name)}: {key}", _value(name, part, words)
        else:
            # The unit stands by the number, so the name goes without.
            yield words.find(f"value.{name}") or name, _value(name, plain, words)


def _value(name: str, value: Any, words: Words) -> str:
    if isinstance(value, list):
        return ", ".join(_value(name, item, words) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = catalogue.unit_of(name)
        if unit == "bytes":
            return words.size(value)
        return number(name, value, words) + (words.text("number.unit_space") + words.unit(unit) if unit else "")
    return choice(name, value, words)
