"""Text cannot become markup, neither in HTML nor in JSON inside a script."""

import html
import json
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed.pictures.markup import Html, element, escaped, join, script_json
from unembed.visible import visible

hostile = st.text(st.sampled_from("<>&\"'/!-=` \n\t\x00\u202e\u2028\ud800scriptonclb")) | st.text(st.characters())


class Reader(HTMLParser):
    """Collects the elements, attributes and text that a browser would find."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@settings(deadline=None)
@given(hostile, hostile)
def test_property_text_and_attributes_stay_text(text, attribute):
    found = read(element("p", text, title=attribute))
    assert found.tags == ["p"]
    assert found.attributes == [("title", visible(attribute))]
    assert found.text == visible(text)


@settings(deadline=None)
@given(hostile)
def test_property_json_in_a_script_cannot_end_it_and_reads_back(text):
    made = script_json({"token": text, "list": [text]})
    assert not set(made) & set("<>&\u2028\u2029")
    made.encode()  # a lone surrogate has no UTF-8 form
    assert json.loads(made) == {"token": text, "list": [text]}


def test_numbers_that_are_not_finite_are_null():
    assert json.loads(script_json({"x": float("nan")})) == {"x": None, "not_finite": "nan"}


def test_worked_examples():
    assert element("br") == "<br>"
    assert element("a", "x", href=None, hidden=True, inert=False, tabindex=0) == '<a hidden tabindex="0">x</a>'
    assert escaped("a\nb", keeps_lines=True) == "a\nb"
    assert escaped("a\nb") == "a\\nb"
    assert join([Html("<i></i>"), element("b", "<i>")]) == "<i></i>\n<b>&lt;i&gt;</b>"


@pytest.mark.parametrize("text", ['"><b>x</b>', "it's", "&amp;", "</script>", "<!--"])
def test_plain_text_is_escaped_once(text):
    assert escaped(text) == html.escape(text)
    assert escaped(escaped(text)) == html.escape(text)
