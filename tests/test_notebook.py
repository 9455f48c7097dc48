"""The notebook view: pictures and tables that need no script, no network and no trust in what they show."""

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib.util import find_spec

import numpy as np
import pytest

import example_results as example
from unembed import catalogue
from unembed.catalogue import LANGUAGES
from unembed.pictures.notebook import MOST_ROWS, view
from unembed.pictures.rows import MOST_LETTERS
from unembed.results import Picture, Result, Table

TAGS = {
    "div",
    "h4",
    "table",
    "tr",
    "th",
    "td",
    "thead",
    "tbody",
    "details",
    "summary",
    "figure",
    "figcaption",
    "b",
    "img",
}
TAGS |= {"p", "em"}


class Elements(HTMLParser):
    """All elements with their attributes, and all text."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def pictures(page):
    return [
        base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode()
        for image in Elements(page).all("img")
    ]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_pictures_stand_beside_their_tables_in_every_language(lang):
    page = Elements(view(example.loss(), lang))
    (svg,) = pictures(view(example.loss(), lang))
    assert ET.fromstring(svg).tag.endswith("svg")
    assert catalogue.text("choice.split.val", lang) in svg
    assert {tag for tag, _ in page.found} <= TAGS
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
    assert all(image["alt"] == catalogue.text("picture.loss", lang) for image in page.all("img"))
    assert len(page.all("details")) == 2, "the loss and the lines to compare with"
    assert "loss_nats [nats]" in page.text, "the name that Python knows"
    assert "http" not in view(example.loss(), lang)


def test_it_is_the_view_of_every_result_in_the_language_of_the_environment(monkeypatch):
    monkeypatch.setenv("LC_ALL", "es_MX.UTF-8")
    assert example.parameters()._repr_html_() == view(example.parameters(), "es")


@pytest.mark.parametrize("kind", ["lines", "grid", "points", "bars"])
def test_empty_tables_are_said_to_be_empty(kind):
    picture = Picture(key="loss", kind=kind, table="t", x="x", y="y")
    empty = Result(name="none", tables={"t": Table(columns={"x": [], "y": []})}, pictures=(picture,))
    page = Elements(view(empty, "en"))
    assert "Loss over training: none" in page.text
    assert page.all("img") == []
    assert view(Result(name="nothing"), "ko")
    assert view(Result(name="none", tables={"t": Table(columns={})}), "ko")


def test_long_tables_are_cut_and_say_so():
    n = MOST_ROWS + 7
    page = view(Result(name="long", tables={"t": Table(columns={"i": range(n)})}), "en")
    assert page.count("<td") == MOST_ROWS
    assert f"the first {MOST_ROWS} of {n} rows" in page


def test_long_texts_are_cut_and_say_so():
    page = view(
        Result(name="long", tables={"t": Table(columns={"text": ["x" * 100_000]})}, values={"v": "y" * 9_999}), "en"
    )
    assert len(page) < 2_000
    assert f"({100_000 - MOST_LETTERS:,} more characters)" in page


def test_arrays_stand_by_their_shape():
    page = Elements(view(Result(name="a", values={"entropy_nats": np.zeros((3, 500))}), "en"))
    assert "3 x 500" in page.text
    assert "0.0, 0.0" not in page.text


@pytest.mark.parametrize("result", [example.loss(), example.lens("ko"), example.token_map("es"), example.samples("en")])
def test_tables_are_ready_for_a_data_frame(result):
    """pandas.DataFrame takes a dict of lists of one length; so the shape is tested, and pandas where it is installed."""
    for table in result.tables.values():
        columns = table.to_dict()
        assert {len(values) for values in columns.values()} == {table.n_rows}
        assert all(type(values) is list for values in columns.values())
        assert not any(isinstance(v, np.generic | np.ndarray) for values in columns.values() for v in values)
        if find_spec("pandas"):
            import pandas

            frame = pandas.DataFrame(columns)
            assert frame.shape == (table.n_rows, len(columns))


def test_two_pictures_share_no_id():
    """Gradients and clips go by ids; as images by themselves, none can take another's."""
    page = view(example.token_map("en"), "en")
    assert page.count("<img") == 1
    assert not re.search(r"<svg|\sid=", page)
