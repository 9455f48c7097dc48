"""`unembed lens`: the grid in a terminal with and without colours, and the same numbers as data."""

import csv
import io
import json
import re
import subprocess

import numpy as np
import pytest

import unembed
from commands import command, environment, run
from unembed.catalogue import load
from unembed.cli.lens import parsed_layers
from unembed.cli.lens_grid import RAMP, color_of, lines_of_grid
from unembed.cli.tables import columns
from unembed.errors import UsageError
from unembed.lenses.tables import MATRICES
from unembed.results import Result, Table

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def made(tokens, guesses, probabilities, layers=(0, 1), **values):
    """A lens result of one text, of numbers as they are given, [layer][pos]."""
    n = len(tokens)
    return Result(
        name="lens",
        values={"layers": list(layers), "tokens": list(tokens), **values},
        tables={
            "lens": Table(
                columns={
                    "layer": [layer for layer in layers for _ in range(n)],
                    "position": list(range(n)) * len(layers),
                    "token": list(tokens) * len(layers),
                    "text": [text for row in guesses for text in row],
                    "probability": [p for row in probabilities for p in row],
                }
            )
        },
    )


def plain(result, width=None, lang="en"):
    return lines_of_grid(result, load(lang), width=width, paint=lambda text, probability: text)


def test_grid_stands_with_the_last_layer_on_top_and_percent_in_each_cell():
    grid = plain(made(["to", " be"], [["a", " be"], ["or", " not"]], [[0.5, 0.25], [0.999, 0.004]]))
    assert grid == [
        "layer  to        ␣be",
        "    1  or   100  ␣not   0",
        "    0  a     50  ␣be   25",
    ]


def test_a_long_text_goes_on_below_with_its_positions():
    n = 23
    result = made([f"t{i}" for i in range(n)], [["x"] * n] * 2, [[0.5] * n] * 2)
    grid = plain(result, width=40)
    assert max(map(columns, grid)) <= 40
    heads = [line.split() for line in grid if re.match(r"\s+\d+\s+\d", line) and "x" not in line]
    assert [int(p) for line in heads for p in line] == list(range(n))
    assert [word for line in grid if line.startswith("layer") for word in line.split()[1:]] == [
        f"t{i}" for i in range(n)
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n", "\\n"),
        ("  ", "␣␣"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e", "\\u202e"),
        ("\u0301", "◌\u0301"),
        ("שלום", "\u2068שלום\u2069"),
        ("a" * 40, "a" * 13 + "…"),
        ("한국어한국어한국어", "한국어한국어…"),
    ],
)
def test_texts_of_any_kind_are_legible_and_keep_their_columns(text, shown):
    grid = plain(made([text, "z"], [[text, "z"]], [[0.5, 0.5]], layers=(0,)))
    assert shown in grid[1]
    seen = re.sub("[\u2068\u2069]", "", shown)
    before, after = re.sub("[\u2068\u2069]", "", grid[1]).split("  z")
    assert after.split() == ["50"]
    assert columns(before) == len("layer  ") + columns(seen) + len(" 50")


def test_a_number_that_is_none_is_said():
    assert "nan" in plain(made(["a"], [["b"]], [[float("nan")]], layers=(0,)))[1]
    assert color_of(float("nan")) == RAMP[0]


def test_colours_are_darker_the_surer_and_each_can_be_read():
    shades = [color_of(p)[0] for p in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    assert shades == [background for background, _ in RAMP]
    assert all(contrast(*pair) >= 4.5 for pair in RAMP)


def contrast(background, ink):
    """The ratio of luminances after WCAG 2, of two of the 256 colours."""

    def luminance(index):
        steps = [0, 95, 135, 175, 215, 255]
        if index >= 232:
            rgb = [8 + 10 * (index - 232)] * 3
        else:
            rgb = [steps[(index - 16) // 36], steps[(index - 16) // 6 % 6], steps[(index - 16) % 6]]
        linear = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(background), luminance(ink)))
    return (high + 0.05) / (low + 0.05)


def test_terminal_has_colours_unless_they_are_not_wanted(trained, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = run("lens", trained, "to be", is_terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    bare = run("lens", trained, "to be", is_terminal=True).out
    assert "\x1b[" not in bare
    assert "48;5;" in coloured
    assert ESCAPE.sub("", coloured) == bare


def test_json_is_the_result_of_the_python_call(trained):
    done = run("lens", trained, "to be", "--top", "3", "--layers", "0,1", "--target", "b", "--format", "json")
    found = unembed.lens(unembed.load(trained), "to be", top=3, layers=[0, 1], target="b").to_dict()
    assert done.json == json.loads(json.dumps(found))
    assert {"layers", "tokens", "top", "entropy_nats", "kl_to_final_nats", "target_rank", "identity_error"} <= set(
        done.json
    )
    assert done.json["target"] == {"id": done.json["target"]["id"], "text": "b"}
    assert done.json["identity_error"] < 1e-5


@pytest.mark.parametrize("output_format", ["csv", "jsonl", "parquet"])
def test_rows_hold_what_json_holds(trained, output_format):
    if output_format == "parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet")
    whole = run("lens", trained, "to be", "--format", "json").json
    if output_format == "parquet":
        words = command("lens", trained, "to be", "--format", "parquet")
        out = subprocess.run(words, env=environment(), capture_output=True, check=True).stdout
        rows = pyarrow.read_table(io.BytesIO(out)).to_pylist()
    else:
        out = run("lens", trained, "to be", "--format", output_format).out
        rows = (
            list(csv.DictReader(io.StringIO(out))) if output_format == "csv" else [*map(json.loads, out.splitlines())]
        )
    layers, n_pos = whole["layers"], len(whole["tokens"])
    assert [(int(r["layer"]), int(r["position"])) for r in rows] == [(i, p) for i in layers for p in range(n_pos)]
    for name in set(MATRICES) - {"agrees", "target_rank"}:
        got = [None if row[name] in ("", None) else float(row[name]) for row in rows]
        assert got == [value for line in whole[name] for value in line], name
    best = [json.loads(row["top_ids"]) if output_format == "csv" else list(row["top_ids"]) for row in rows]
    assert best == whole["top"]["ids"]


def test_after_attention_adds_the_halves_and_the_end_of_the_text_is_told(trained):
    found = run("lens", trained, "to be", "--after-attention", "--format", "json").json
    n_layers = max(found["layers"])
    assert found["layers"] == [i / 2 if i % 2 else i // 2 for i in range(2 * n_layers + 1)]
    told = run("lens", trained, "to be", "--target", "b").out
    assert "lens_at_the_end" in told
    assert "target_rank" in told


def test_other_languages_have_their_words_and_the_note_goes_to_stderr(trained):
    done = run("lens", trained, "to be", "--lang", "ko")
    assert "글의 끝에서" in done.out
    assert "단서일 뿐" in done.err
    assert run("lens", trained, "to be", "--quiet").err == ""


@pytest.mark.parametrize("lang", ["es", "ko"])
def test_every_key_that_is_printed_has_its_words(lang):
    words = load(lang)
    keys = [f"column.{name}" for name in (*MATRICES, "layer", "position", "token", "text", "probability", "top")]
    keys += [f"value.{name}" for name in ("layers", "tokens", "target", "identity_error", "settled_layer")]
    keys += ["table.lens", "table.lens_at_the_end", "note.lens_post_norm", "note.lens_no_shortcut"]
    assert [key for key in keys if not words.find(key)] == []


def test_text_from_standard_input(trained, monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"to be")))
    assert run("lens", trained, "-", "--format", "json").json["tokens"] == list("to be")


def test_layers_are_numbers_and_ranges():
    assert parsed_layers("3") == [3]
    assert np.allclose(parsed_layers(" 0, 2.5 ,4-6"), [0, 2.5, 4, 5, 6])
    for wrong in ("", "1-", "-1", "a", "1,,2", "5-2", "1e3", "9999999"):
        with pytest.raises(UsageError, match="is no layer; give numbers and ranges"):
            parsed_layers(wrong)
