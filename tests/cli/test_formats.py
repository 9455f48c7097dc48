"""What leaves a command: the five formats, numbers that are not finite, and text that would harm a terminal or a page."""

import csv
import io
import json
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import Screen, run, screens
from unembed.cli.render import say, write_result
from unembed.results import Result, Table, to_json_value
from unembed.visible import visible

HOSTILE = [
    '"><b>x</b>',
    "it's &amp; </script>",
    "line\nbreak\r\n\ttab",
    "\u202eevil\u202c\u200f\u2066",
    "\x1b[31mred\x1b[0m\x07\x9b31m\x7f\x00",
    "half \ud800 pair",
    "\u2028\u2029\ufeff\U000e0001",
    "안녕 ñandú 🙂",
    "=1+1",
]


def written(result, output_format, *, is_terminal=False, encoding="utf-8"):
    with screens(is_terminal=is_terminal, encoding=encoding) as (out, _):
        write_result(result, output_format)
        return out.bytes.decode("utf-8")


def texts(values):
    return Result(name="t", tables={"t": Table(columns={"id": list(range(len(values))), "text": list(values)})})


def harmless(shown: str, allowed: str = "\n") -> bool:
    """Nothing in it but what can be seen, spaces and the allowed."""
    return all(c in allowed or visible(c) == c for c in shown)


MIXED = Result(
    name="mixed",
    values={"loss": 0.1 + 0.2, "bad": math.nan, "flag": True, "none": None, "names": ["a", "b"], "by": {"x": 1}},
    tables={"rows": Table(columns={"step": [1, 2], "loss_nats": [0.5, math.inf]}, units={"loss_nats": "nats"})},
)


def test_json_is_one_object_unrounded():
    text = written(MIXED, "json")
    assert text.count("\n") == 1
    found = json.loads(text)
    assert found["loss"] == 0.1 + 0.2
    assert found["flag"] is True
    assert found["none"] is None
    assert found["names"] == ["a", "b"]
    assert found["by"] == {"x": 1}
    assert found["rows"]["step"] == [1, 2]


def test_of_several_numbers_that_are_not_finite_each_is_named():
    values = {"loss": math.nan, "norm": -math.inf, "best": None, "step": 3}
    found = json.loads(written(Result(name="t", values=values), "json"), parse_constant=pytest.fail)
    assert found == {
        "loss": None,
        "norm": None,
        "best": None,
        "step": 3,
        "not_finite": "nan",
        "not_finite_of": {"loss": "nan", "norm": "-inf"},
    }
    assert to_json_value({"a": math.nan, "b": None})["not_finite_of"] == {"a": "nan"}


@pytest.mark.parametrize(("number", "name"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_what_is_not_finite_is_null_and_named(number, name):
    text = written(Result(name="t", values={"loss": number}), "json")
    assert json.loads(text, parse_constant=pytest.fail) == {"loss": None, "not_finite": name}
    listed = json.loads(written(Result(name="t", values={"losses": [1.0, number]}), "json"))
    assert listed["losses"] == [1.0, {"value": None, "not_finite": name}]


def test_json_lines_have_an_object_for_each_row():
    lines = written(MIXED, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss_nats": 0.5},
        {"step": 2, "loss_nats": None, "not_finite": "inf"},
    ]


def test_values_alone_are_one_row():
    result = Result(name="t", values={"a": 1, "b": {"x": [1, 2]}})
    assert json.loads(written(result, "jsonl")) == {"a": 1, "b": {"x": [1, 2]}}
    assert list(csv.reader(io.StringIO(written(result, "csv")))) == [["a", "b.x"], ["1", "[1, 2]"]]


def test_csv_of_a_table_without_rows_has_its_columns():
    assert written(texts([]), "csv") == "id,text\n"


def test_csv_writes_what_pandas_reads():
    rows = Table(columns={"x": [math.nan, math.inf, -math.inf, None], "ok": [True, False, True, None]})
    assert written(Result(name="t", tables={"t": rows}), "csv").splitlines() == [
        "x,ok",
        "nan,true",
        "inf,false",
        "-inf,true",
        ",",
    ]


def test_table_names_units_and_aligns():
    lines = written(MIXED, "table").splitlines()
    assert "loss                     0.3" in lines
    assert "flag                     yes" in lines
    assert "none                     -" in lines
    start = lines.index("rows")
    assert lines[start + 1 :] == ["step  loss_nats [nats]", "1     0.5", "2     inf"]


def test_arrays_are_shown_by_their_shape():
    result = Result(name="t", values={"entropy_nats": [[1.0] * 5] * 3})
    assert written(result, "table") == "entropy_nats             3 x 5 numbers\n"


def test_parquet_round_trip():
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra: pip install 'unembed[data]'")
    with screens() as (out, _):
        write_result(MIXED, "parquet")
        data = out.bytes
    assert parquet.read_table(io.BytesIO(data)).to_pylist() == [
        {"step": 1, "loss_nats": 0.5},
        {"step": 2, "loss_nats": math.inf},
    ]


def test_parquet_without_its_library_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("unembed.counting.spec_of_model", pytest.fail)
    done = run("count", "gpt2", "--format", "parquet")
    assert done.code == 2
    assert "pip install 'unembed[data]'" in done.err


def test_parquet_is_never_written_to_a_terminal(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    done = run("count", "gpt2", "--format", "parquet", is_terminal=True)
    assert done.code == 2
    assert "> result.parquet" in done.err


# --- hostile text (A34a) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("output_format", ["json", "jsonl"])
def test_json_loses_nothing_and_shows_nothing_unseen(output_format, is_terminal):
    text = written(texts(HOSTILE), output_format, is_terminal=is_terminal)
    assert harmless(text)
    found = [json.loads(line) for line in text.splitlines()]
    values = found[0]["t"]["text"] if output_format == "json" else [row["text"] for row in found]
    assert values == HOSTILE
    assert "안녕 ñandú 🙂" in text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=20))
def test_property_json_comes_back_as_it_was(text):
    shown = written(Result(name="t", values={"text": text}), "json")
    assert harmless(shown)
    # a written pair of halves is read as the one character that it spells
    assert json.loads(shown)["text"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def test_csv_quotes_and_spells_out():
    text = written(texts(HOSTILE), "csv")
    assert harmless(text, "\n\r\t")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["id", "text"]
    assert rows[1][1] == '"><b>x</b>'
    assert '"""><b>x</b>"' in text
    assert rows[3][1] == "line\nbreak\r\n\ttab"
    assert rows[4][1] == "\\u202eevil\\u202c\\u200f\\u2066"


@pytest.mark.parametrize("output_format", ["table", "csv", "json", "jsonl"])
def test_nothing_unseen_reaches_a_terminal(output_format):
    result = Result(
        name="t",
        values={"text": "a\x1b[2Jb", "samples": HOSTILE, "by": {"\x1b]0;title\x07": "\u202e"}, "long": "a\nb\x9bc"},
        tables={"t": Table(columns={"te\x1bxt": HOSTILE})},
    )
    shown = written(result, output_format, is_terminal=True)
    for ours in ("\x1b[1m", "\x1b[0m"):  # the bold of headings, and nothing that came with the data
        shown = shown.replace(ours, "")
    assert harmless(shown)


def test_data_is_utf8_whatever_the_terminal_knows():
    text = written(texts(["안녕"]), "json", encoding="ascii")
    assert json.loads(text)["t"]["text"] == ["안녕"]


def test_a_table_on_a_terminal_that_knows_no_korean(monkeypatch):
    from unembed.cli import main

    narrow = Screen(False, "latin-1")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr(main, "_invoke", lambda arguments: write_result(texts(["안녕"]), "table") or 0)
    assert main.run([]) == 0
    assert "\\uc548\\ub155" in narrow.text


def test_sentences_keep_their_lines_and_nothing_else_unseen():
    with screens(is_terminal=True) as (out, err):
        say("one\ntwo \x1b[31m \u202e")
        say("not said", quiet=True)
    assert out.text == ""
    assert err.text == "\r\x1b[2Kone\ntwo \\x1b[31m \\u202e\n"


def test_a_gone_reader_of_sentences_stops_nobody(monkeypatch):
    def gone(*arguments, **options):
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", gone)
    say("hello")


def test_a_result_tells_what_it_holds_in_a_few_lines():
    import numpy as np

    result = Result(
        name="lens",
        values={"entropy_nats": np.zeros((3, 5)), "identity_error": 0.5, "ids": list(range(40)), "bad": "a\x1b[2J"},
        tables={"top": Table(columns={"layer": [0, 1], "text": ["a", "b"]})},
    )
    assert repr(result).splitlines() == [
        "Result lens",
        "  entropy_nats: 3 x 5 numbers",
        "  identity_error: 0.5",
        "  ids: 40 entries",
        "  bad: a\\x1b[2J",
        "  table top: 2 rows of layer, text",
    ]
