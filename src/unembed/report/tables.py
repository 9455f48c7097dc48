"""A Result's tables as HTML: the plain form, and the two that have a form of their own, samples and neighbours.

None of these functions knows which analysis it shows; the two forms go by a table's name and columns (FORMS). Before it:
../pictures/markup.py. The next file to read is parts.py, the other pieces of a section.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from unembed.catalogue import Words
from unembed.pictures import choice, label
from unembed.pictures.markup import Html, element, escaped, join
from unembed.pictures.rows import MOST_LETTERS, is_share, shorten
from unembed.results import Result, Table, to_plain
from unembed.visible import visible

MOST_TABLE_ROWS = 200
MOST_BLOCKS = 8
MOST_ON_THE_WAY = 12
MOST_SAMPLE_LETTERS = 2000


def tables(result: Result, words: Words) -> Iterator[Html]:
    """The tables that no picture shows, each in its own form or as it is."""
    drawn = {name for p in result.pictures for name in (p.table, p.rules_table)}
    for name, data in result.tables.items():
        needs, form = FORMS.get(name, (None, None))
        if name in drawn:
            continue
        if needs is not None and form is not None and needs <= set(data.columns):
            yield form(result, words)
        else:
            yield table(result, name, words)


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
    decimals = {c: _decimals(data[c][:MOST_TABLE_ROWS]) for c in columns}
    # what was written is read here; everywhere else a text is a token or a name
    most = MOST_SAMPLE_LETTERS if name == "samples" else MOST_LETTERS
    rows = [
        element("tr", *(_cell(c, value, words, numeric[c], decimals[c], most) for c, value in row.items()))
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


def samples(result: Result, words: Words) -> Html:
    """Texts by step: the last ones as blocks, one of each earlier step on the way to them, evenly chosen where many."""
    data = result.tables["samples"]
    if not data.n_rows:
        return Html()
    steps = sorted(_unique(data["step"]))
    at: dict[Any, list[str]] = {step: [] for step in steps}
    for step, text in zip(data["step"], data["text"], strict=True):
        at[to_plain(step)].append(shorten(str(text).strip(" "), words, MOST_SAMPLE_LETTERS))
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
            for step in _spread(steps[:-1], MOST_ON_THE_WAY)
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


FORMS: Mapping[str, tuple[frozenset[str], Callable[[Result, Words], Html]]] = {
    "samples": (frozenset({"step", "text"}), samples),
    "neighbours": (frozenset({"text", "when", "neighbour", "cosine"}), neighbours),
}


def _cell(column: str, value: Any, words: Words, is_numeric: bool, decimals: int | None, most: int) -> Html:
    if is_share(column) and isinstance(value, int | float):
        return element("td", words.percent(value), class_="number")
    if isinstance(value, float):
        is_ordinary = math.isfinite(value) and (decimals is not None or 1e-3 <= abs(value) < 1e5)
        shown = words.fixed(value, 4 if decimals is None else decimals) if is_ordinary else words.number(value, 6)
        return element("td", shown, class_="number")
    if isinstance(value, int) and not isinstance(value, bool):
        return element("td", words.number(value), class_="number")
    if isinstance(value, str) and most > MOST_LETTERS:
        return element("td", shorten(visible(value, marks_edges=True), words, most))
    shown = choice(column, value, words)
    return element("td", shown, class_="number" if is_numeric else "sum" if column == "sha256" else None)


def _decimals(values: Any) -> int | None:
    """How many decimals all of a column's numbers get; None where four are right for most of them.

    Whole numbers and large ones need none; where all are small, as many as leave the largest five digits.

    >>> _decimals([65536.0, 131072.0]), _decimals([19298.1923, 870.5]), _decimals([0.01, 0.000945696]), _decimals([2.5, 0.1])
    (0, 0, 6, None)
    """
    plain = [to_plain(value) for value in values]
    sizes = [abs(v) for v in plain if isinstance(v, int | float) and math.isfinite(v)]
    largest = max(sizes, default=0.0)
    if all(size == int(size) for size in sizes) or min(sizes) >= 100:
        return 0
    if 1e-8 < largest < 0.05:
        return 4 - math.floor(math.log10(largest))
    return None


def _first_rows(data: Table, most: int) -> list[dict[str, Any]]:
    return Table(columns={name: values[:most] for name, values in data.columns.items()}).rows()


def _rows_told(data: Table, words: Words, title: str) -> str:
    if data.n_rows > MOST_TABLE_ROWS:
        told = words.text("page.table_cut", name=title, shown=MOST_TABLE_ROWS, rows=data.n_rows)
    else:
        told = words.text("page.table", name=title, rows=data.n_rows)
    return told


def _spread(items: list[Any], most: int) -> list[Any]:
    """So many of the items, both ends among them, at even distances."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(to_plain(value) for value in values))
