"""A Result as a notebook shows it: pictures as SVG, tables beside them, without a script and without a request.

Columns and values keep the names that they have in Python, since that is where the reader is: `result.tables["lens"]
["entropy_nats"]`. A picture is an image by itself (`data:` in the page), so nothing in it can act on the notebook, and two
pictures cannot share an id. Before it: markup.py. The next folder to read is ../report/.
"""

import base64
from typing import Any

import numpy as np

from unembed import catalogue
from unembed.catalogue import Words
from unembed.pictures.draw import draw, to_svg
from unembed.pictures.markup import Html, element, escaped, join
from unembed.pictures.rows import MOST_LETTERS, caption, shorten
from unembed.results import Picture, Result, Table, to_plain
from unembed.visible import visible

MOST_ROWS = 60
# Notebooks are light or dark and do not say which; colours made for white need white behind them.
_PAPER = "background:#fff;padding:12px;border-radius:6px;max-width:100%"
_LEFT = "text-align:left"


def view(result: Result, lang: str) -> str:
    """The whole view as HTML, to be shown by `_repr_html_`; whatever is text in it is spelled out and escaped."""
    words = catalogue.load(lang)
    parts = [element("h4", result.name)]
    if result.values:
        rows = [
            element(
                "tr", element("th", name, scope="row", style=_LEFT), element("td", _shown(value, words), style=_LEFT)
            )
            for name, value in result.values.items()
        ]
        parts.append(element("table", *rows))
    parts += [_picture(result, picture, words) for picture in result.pictures]
    parts += [_table(name, table, words) for name, table in result.tables.items()]
    parts += [element("p", element("em", words.find(f"note.{key}") or key)) for key in result.notes]
    return element("div", join(parts), class_="unembed-result", lang=lang)


def _picture(result: Result, picture: Picture, words: Words) -> Html:
    name = caption(picture, words)
    if not result.tables[picture.table].n_rows:
        return element("p", f"{name}: {words.text('page.none')}")
    svg = to_svg(draw(picture, result.tables, lang=words.lang), lang=words.lang)
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    image = element("img", src=source, alt=name, style=_PAPER)
    return element("figure", element("figcaption", element("b", name)), image, style="margin:8px 0")


def _table(name: str, table: Table, words: Words) -> Html:
    """The first rows, folded up; its name is the one that `result.tables` knows it by."""
    title = f"{name} · {words.name('table', name)}"
    if table.n_rows > MOST_ROWS:
        told = words.text("page.table_cut", name=title, shown=MOST_ROWS, rows=table.n_rows)
    else:
        told = words.text("page.table", name=title, rows=table.n_rows)
    heads = [element("th", _with_unit(column, table), scope="col", style=_LEFT) for column in table.columns]
    first = Table(columns={column: values[:MOST_ROWS] for column, values in table.columns.items()}).rows()
    rows = [
        element("tr", *(element("td", _shown(value, words), style=_LEFT) for value in row.values())) for row in first
    ]
    body = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    is_small = table.n_rows <= 12
    return element("details", element("summary", told), body, open=is_small)


def _with_unit(name: str, table: Table) -> str:
    return f"{name} [{table.units[name]}]" if name in table.units else name


def _shown(value: Any, words: Words) -> Html:
    """A value in a cell. An array stands by its shape alone: nobody reads its numbers there, and a table holds them."""
    if isinstance(value, np.ndarray):
        return escaped(" x ".join(map(str, value.shape)))
    plain = to_plain(value)
    text = f"{plain:.6g}" if isinstance(plain, float) else visible(str(plain), marks_edges=isinstance(plain, str))
    return escaped(shorten(text, words, MOST_LETTERS))
