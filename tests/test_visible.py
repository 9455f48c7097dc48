"""Spelling out what cannot be seen: nothing unseen is left, and what can be seen is untouched."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed.visible import visible

anything = st.text(st.characters())  # with surrogates and all categories


@settings(deadline=None)
@given(anything, st.booleans())
def test_property_nothing_unseen_is_left(text, marks_edges):
    shown = visible(text, marks_edges=marks_edges)
    assert {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} == set()


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_property_what_can_be_seen_stays(text):
    assert visible(text) == text
    assert visible(text, marks_edges=True) == text


@settings(deadline=None)
@given(anything)
def test_property_line_breaks_are_kept_on_request_and_nothing_else_changes(text):
    kept = visible(text, keeps_lines=True)
    assert kept.count("\n") == text.count("\n")
    assert kept.replace("\n", "\\n") == visible(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("left\u202eright\u2066", "left\\u202eright\\u2066"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("\u2028\u2029\u200b\ufeff\u00ad", "\\u2028\\u2029\\u200b\\ufeff\\xad"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("할머니 niñas 😀 e\u0301", "할머니 niñas 😀 e\u0301"),
    ],
)
def test_worked_examples(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [(" the", "␣the"), ("a b ", "a b␣"), ("   ", "␣␣␣"), ("", ""), (" \n", "␣\\n")]
)
def test_outer_spaces_of_tokens_are_marked(text, shown):
    assert visible(text, marks_edges=True) == shown
