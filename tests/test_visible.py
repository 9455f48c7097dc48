"""Spelling out what cannot be seen: nothing unseen is left, and what can be seen is untouched."""

import unicodedata

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracles.hostile_strings import hostile_strings, tallest_pile, unseen
from unembed.visible import _BLANK, MOST_MARKS, cell, in_markdown, visible

anything = st.text(st.characters())  # with surrogates and all categories


@settings(deadline=None)
@given(anything, st.booleans())
def test_property_nothing_unseen_is_left(text, marks_edges):
    shown = visible(text, marks_edges=marks_edges)
    assert {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} == set()


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"], exclude_characters="".join(_BLANK))))
def test_property_what_can_be_seen_stays(text):
    assume(tallest_pile(text) <= MOST_MARKS)
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


def test_of_five_hundred_hostile_texts_nothing_unseen_is_left():
    texts = hostile_strings()
    assert len(texts) == 500
    shown = [visible(text, marks_edges=True) for text in texts]
    assert set().union(*map(unseen, shown)) == set()
    assert max(map(tallest_pile, shown)) == MOST_MARKS
    assert not any("\n" in text or set(text) & _BLANK for text in shown)


def test_a_pile_of_marks_is_cut_and_what_writing_needs_is_not():
    assert visible("a" + "\u0301" * 60) == "a" + "\u0301" * 8 + "\\u0301" * 52
    for written in ("Việt", "שָׁלוֹם", "བོད་སྐད", "ประเทศไทย", "할머니", "niñas e\u0301"):
        assert visible(written) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("=1+1", "'=1+1"), ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"), ("-2+3", "'-2+3"), ("-1e5", "-1e5"), ("+", "+")],
)
def test_formulas_of_a_spreadsheet_become_text(text, written):
    assert cell(text) == written


def test_markdown_keeps_no_mark_of_its_own():
    assert in_markdown("# [x](javascript:a)\n<b>") == "\\# \\[x\\]\\(javascript:a\\)\\\\n\\<b\\>"
