"""A result in a terminal: three languages, any width, colour or none, and letters that take two columns."""

import re

import pytest

from commands import run, screens
from unembed import catalogue
from unembed.cli.render import say, write_result
from unembed.cli.tables import columns, cut, lines_of
from unembed.results import Result, Table

TABLE = Result(
    name="t",
    values={"val_loss_nats": 1.25, "parameters": 1234567, "tied": True},
    tables={"loss": Table(columns={"step": [1, 20000], "loss_nats": [2.5, 0.125]}, units={"loss_nats": "nats"})},
)
WIDE = Result(
    name="t", tables={"t": Table(columns={"id": [1, 2], "text": ["a" * 300, "한국어" * 60], "more": ["x", "y" * 30]})}
)


def shown(result, lang, **options):
    return lines_of(result, catalogue.load(lang), **options)


def test_english_shows_the_names_of_the_json():
    assert shown(TABLE, "en") == [
        "val_loss_nats            1.25",
        "parameters               1,234,567",
        "tied                     yes",
        "",
        "loss",
        "step    loss_nats [nats]",
        "1       2.5",
        "20,000  0.125",
    ]


def test_bytes_are_shown_by_the_thousand_and_written_to_the_last_one():
    parts = Table(
        columns={"part": ["weights", "none"], "bytes_per_device": [1_500_000, 0]}, units={"bytes_per_device": "bytes"}
    )
    values = {"peak_bytes": 72_844_137_984, "bytes": {"int8": 999}, "weights": {"kind": "int8", "derived_bytes": 2048}}
    found = Result(name="t", values={**values, "bytes_per_token": 3.25}, tables={"memory": parts})
    assert shown(found, "en") == [
        "peak_bytes               72.84 GB",
        "bytes",
        "  int8                   999 bytes",
        "weights",
        "  kind                   int8",
        "  derived_bytes          2.048 kB",
        "bytes_per_token          3.25",
        "",
        "memory",
        "part     bytes_per_device",
        "weights  1.5 MB",
        "none     0 bytes",
    ]
    assert "72,84 GB" in shown(found, "es")[0]
    assert found.to_dict()["peak_bytes"] == 72_844_137_984


@pytest.mark.parametrize("lang", ["es", "ko"])
def test_other_languages_show_their_words_and_write_numbers_as_they_do(lang):
    words = catalogue.load(lang)
    lines = shown(TABLE, lang)
    assert lines[0].startswith(words.text("value.val_loss_nats"))
    assert lines[0].endswith({"es": "1,25", "ko": "1.25"}[lang])
    assert lines[1].endswith(words.number(1234567))
    assert lines[2].endswith(words.text("page.yes"))
    assert words.text("table.loss") in lines
    head = lines[lines.index(words.text("table.loss")) + 1]
    assert words.text("column.step") in head
    assert words.text("column.loss_nats") in head
    # the numbers of a column stand under each other, in columns of the terminal
    starts = {columns(line[: re.search(r"  \S", line).end() - 1]) for line in lines[-3:]}
    assert len(starts) == 1


def test_the_language_comes_from_the_option_or_the_environment(monkeypatch):
    word = catalogue.load("ko").text("value.parameters")
    assert word in run("count", "gpt2", "--lang", "ko").out
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    assert word in run("count", "gpt2").out
    assert "parameters  " in run("count", "gpt2", "--lang", "en").out
    assert (
        run("count", "gpt2", "--format", "json").json == run("count", "gpt2", "--format", "json", "--lang", "es").json
    )


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width):
    lines = shown(WIDE, "en", width=width)
    assert max(map(columns, lines)) <= width
    assert any(line.endswith("…") or "… " in line for line in lines)
    assert shown(WIDE, "en")[2].count("a") == 300  # a pipe gets all of it


def test_a_terminals_width_is_used(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    with screens(is_terminal=True) as (out, _):
        write_result(WIDE, "table")
    assert max(map(columns, out.text.splitlines())) == 50
    with screens() as (out, _):
        write_result(WIDE, "table")
    assert "a" * 300 in out.text


def test_widths_of_letters():
    assert [columns(text) for text in ("abc", "한", "é", "e\u0301", "ñ", "🙂")] == [3, 2, 1, 1, 1, 2]
    assert cut("한국어 문장", 5) == "한국…"
    assert cut("한국어", 6) == "한국어"


@pytest.mark.parametrize(
    ("environ", "is_terminal", "has_colour"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False), ({}, False, False)],
)
def test_colour_is_for_terminals_that_want_it(monkeypatch, environ, is_terminal, has_colour):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with screens(is_terminal=is_terminal) as (out, err):
        write_result(TABLE, "table")
        say("it is wrong", mark="error: ")
    assert ("\x1b[1m" in out.text) == has_colour
    assert ("\x1b[31m" in err.text) == has_colour
    assert ("\x1b" in err.text) == (is_terminal and "TERM" not in environ)  # a live line is cleared


def test_every_command_that_prints_a_result_takes_lang_quiet_and_format():
    import click

    from unembed.cli import main

    for name in main.COMMANDS:
        options = {option for one in main.cli.get_command(click.Context(main.cli), name).params for option in one.opts}
        assert {"--lang", "--quiet"} <= options, name
        assert "--format" in options or name == "completion"


def test_a_long_name_below_a_mapping_keeps_its_distance_from_its_value():
    name = "scale_attn_by_inverse_layer_idx"
    lines = shown(Result(name="t", values={"config": {name: False, "n": 1}}), "en")
    assert lines[1] == f"  {name} no"
    assert lines[2].index("1") == lines[1].index("no", len(name))
