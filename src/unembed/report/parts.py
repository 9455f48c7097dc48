"""The pieces of a report's section: values as tiles, pictures with their tables, samples, neighbours, notes.

Each is a function from results to markup; none knows which analysis it shows, but for the two that have a form of their
own (SPECIAL). Before it: markup.py. The next file to read is page.py, which puts sections together.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from unembed import catalogue
from unembed.catalogue import Words
from unembed.pictures import caption, choice, draw, label, panels, rows_drawn
from unembed.pictures.rows import is_share, number
from unembed.report.markup import Html, element, escaped, join
from unembed.results import Picture, Result, Table, to_plain
from unembed.visible import visible

MOST_TABLE_ROWS = 200
MOST_BLOCKS = 8


@dataclass
class Drawings:
    """The descriptions of all pictures of a page, by the id of the box that each is drawn into."""

    specs: dict[str, Any] = field(default_factory=dict)

    def add(self, spec: dict[str, Any]) -> str:
        """Keeps a description without its colours, which the page holds once for all, and returns its box's id."""
        box = f"chart-{len(self.specs) + 1}"
        self.specs[box] = {key: value for key, value in spec.items() if key not in ("config", "$schema")}
        return box


def tiles(values: Mapping[str, Any], words: Words) -> Html:
    """Single values, each with its name; a mapping becomes one tile for each of its entries."""
    made = [
        element("div", element("dt", name), element("dd", shown), class_="tile")
        for name, shown in _named_values(values, words)
    ]
    # Rows of equal length where they do not fit into one; few tiles do not grow wide.
    columns = max(4, len(made)) if len(made) <= 5 else max(3, -(-len(made) // 2))
    return element("dl", *made, class_="tiles", style=f"--columns:{min(columns, 5)}") if made else Html()


def figure(result: Result, picture: Picture, words: Words, drawings: Drawings) -> Html:
    """A picture, panel by panel, with the tables that it was drawn from folded up under it."""
    name = caption(picture, words)
    if not result.tables[picture.table].n_rows:
        return element("p", f"{name}: {words.text('page.none')}", class_="small")
    boxes = [_box(result, picture, panel, words, drawings) for panel in panels(picture, result.tables)]
    parts = [element("figcaption", name), element("div", *boxes, class_="panels" if len(boxes) > 1 else "panel")]
    shown, n_rows = rows_drawn(picture, result.tables), result.tables[picture.table].n_rows
    if shown < n_rows:
        parts.append(element("p", words.text("page.drawn", shown=shown, rows=n_rows), class_="small"))
    if picture.kind in ("grid", "points"):
        parts.append(element("p", words.text("page.point"), class_="small screen"))
    parts.append(folded(result, picture.table, words))
    if picture.rules_table:
        parts.append(folded(result, picture.rules_table, words))
    return element("figure", *parts, class_=f"figure {picture.kind}")


def folded(result: Result, name: str, words: Words) -> Html:
    """A table that opens on demand."""
    summary = element("summary", _rows_told(result.tables[name], words, words.name("table", name)))
    return element("details", summary, table(result, name, words))


def table(result: Result, name: str, words: Words) -> Html:
    """A table's first rows, in a box that scrolls by itself and can be reached by keyboard."""
    data, title = result.tables[name], words.name("table", name)
    columns = list(data.columns)
    numeric = {c: data[c].dtype.kind in "iuf" for c in columns}
    heads = [
        element("th", label(c, name, data, words), scope="col", class_="number" if numeric[c] else None)
        for c in columns
    ]
    rows = [
        element("tr", *(_cell(c, value, words, numeric[c]) for c, value in row.items()))
        for row in _first_rows(data, MOST_TABLE_ROWS)
    ]
    told = _rows_told(data, words, title)
    body = element(
        "table",
        element("caption", element("span", told if data.n_rows > MOST_TABLE_ROWS else title)),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
    )
    return scrolling(body, title, words)


def scrolling(content: Html, name: str, words: Words) -> Html:
    """A box as wide as the page whose content may be wider; a keyboard can move to it and scroll it."""
    told = words.text("page.scrolls", name=name)
    return element("div", content, class_="scroll", tabindex=0, role="group", aria_label=told)


def notes(keys: tuple[str, ...], words: Words) -> Html:
    """How far to trust what the section shows."""
    if not keys:
        return Html()
    items = [element("p", words.find(f"note.{key}") or key) for key in keys]
    return element("div", element("h3", words.text("page.notes")), *items, class_="note", role="note")


def samples(result: Result, words: Words) -> Html:
    """Texts by step: the last ones as blocks, one of each earlier step on the way to them."""
    data = result.tables["samples"]
    if not data.n_rows:
        return Html()
    steps = sorted(_unique(data["step"]))
    at: dict[Any, list[str]] = {step: [] for step in steps}
    for step, text in zip(data["step"], data["text"], strict=True):
        at[to_plain(step)].append(str(text).strip(" "))
    last = [
        element("li", element("blockquote", escaped(text, keeps_lines=True))) for text in at[steps[-1]][:MOST_BLOCKS]
    ]
    head = element(
        "h3",
        f"{words.text('page.final_samples')} ",
        element("span", words.text("page.step", step=steps[-1]), class_="small"),
    )
    parts = [head, element("ul", *last, class_="blocks")]
    if len(steps) > 1:
        way = [
            element(
                "li",
                element("span", words.text("page.step", step=step), class_="step"),
                element("p", escaped(at[step][0], keeps_lines=True)),
            )
            for step in steps[:-1]
        ]
        parts += [element("h3", words.text("page.earlier_samples")), element("ol", *way, class_="way")]
    return join([*parts, folded(result, "samples", words)])


def neighbours(result: Result, words: Words) -> Html:
    """The nearest neighbours of a few tokens: one row a token, one column a moment, the nearest first."""
    data = result.tables["neighbours"]
    rows: list[dict[str, Any]] = sorted(data.rows(), key=lambda row: -cast(float, row["cosine"]))
    moments, tokens = _unique(data["when"]), _unique(data["text"])
    heads = [label("text", "neighbours", data, words), *(choice("when", moment, words) for moment in moments)]
    body = []
    for token in tokens:
        cells = []
        for moment in moments:
            near = [row for row in rows if row["text"] == token and row["when"] == moment]
            chips = [
                element(
                    "li", choice("neighbour", row["neighbour"], words), element("small", words.fixed(row["cosine"], 2))
                )
                for row in near
            ]
            cells.append(element("td", element("ul", *chips, class_="chips")))
        body.append(element("tr", element("th", choice("text", token, words), scope="row"), *cells))
    title = words.name("table", "neighbours")
    made = element(
        "table",
        element("caption", element("span", title)),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *body),
        class_="wide",
    )
    return join([scrolling(made, title, words), folded(result, "neighbours", words)])


SPECIAL: Mapping[str, tuple[frozenset[str], Callable[[Result, Words], Html]]] = {
    "samples": (frozenset({"step", "text"}), samples),
    "neighbours": (frozenset({"text", "when", "neighbour", "cosine"}), neighbours),
}


def tables(result: Result, words: Words) -> Iterator[Html]:
    """The tables that no picture shows, each in its own form or as it is."""
    drawn = {name for p in result.pictures for name in (p.table, p.rules_table)}
    for name, data in result.tables.items():
        needs, special = SPECIAL.get(name, (None, None))
        if name in drawn:
            continue
        if needs is not None and special is not None and needs <= set(data.columns):
            yield special(result, words)
        else:
            yield table(result, name, words)


def _box(result: Result, picture: Picture, panel: Any, words: Words, drawings: Drawings) -> Html:
    spec = draw(picture, result.tables, lang=words.lang, panel=panel, fills_its_box=True)
    box = drawings.add(spec)
    name = caption(picture, words)
    parts = []
    if picture.facet and panel is not None:
        title = choice(picture.facet, panel, words)
        parts.append(element("p", title, class_="panel-title", id=f"{box}-title"))
        name = f"{name}, {title}"
    chart = element("div", class_="chart", id=box, role="img", aria_label=name)
    parts.append(scrolling(chart, name, words) if picture.kind == "grid" else chart)
    return element("div", *parts)


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
        return number(name, value, words) + (words.text("number.unit_space") + words.unit(unit) if unit else "")
    return choice(name, value, words)


def _cell(column: str, value: Any, words: Words, is_numeric: bool) -> Html:
    if is_share(column) and isinstance(value, int | float):
        return element("td", words.percent(value), class_="number")
    if isinstance(value, float):
        # One number of decimals down a column; very large and very small ones have no use for it.
        shown = words.fixed(value, 4) if 1e-3 <= abs(value) < 1e5 else words.number(value, 6)
        return element("td", shown, class_="number")
    if isinstance(value, int) and not isinstance(value, bool):
        return element("td", words.number(value), class_="number")
    text = choice(column, value, words) if not isinstance(value, list) else visible(", ".join(map(str, value)))
    return element("td", text, class_="number" if is_numeric else None)


def _first_rows(data: Table, most: int) -> list[dict[str, Any]]:
    return Table(columns={name: values[:most] for name, values in data.columns.items()}).rows()


def _rows_told(data: Table, words: Words, title: str) -> str:
    if data.n_rows > MOST_TABLE_ROWS:
        told = words.text("page.table_cut", name=title, shown=MOST_TABLE_ROWS, rows=data.n_rows)
    else:
        told = words.text("page.table", name=title, rows=data.n_rows)
    return told


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(to_plain(value) for value in values))
