"""`attribute`, `attention`, `patch` and `stream`: the command says what the Python call says, to people and to programs."""

import csv
import importlib
import io
import json
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest

import unembed
from commands import run, screens
from unembed import catalogue
from unembed.cli import main
from unembed.cli.looking import grid
from unembed.cli.models import model_options
from unembed.errors import UsageError
from unembed.results import Table
from unembed.tokenizers.files import save
from unembed.tokenizers.words import WordTokenizer

COMMANDS = {
    "attribute": ("to be or",),
    "attention": ("to be or", "--layer", "0", "--head", "1"),
    "patch": ("to be or", "to me or", "--target", "t", "--against", "n"),
    "stream": ("to be or",),
}
CALLS = {
    "attribute": lambda m: unembed.attribute(m, "to be or"),
    "attention": lambda m: unembed.attention(m, "to be or", layer=0, head=1),
    "patch": lambda m: unembed.patch(m, "to be or", "to me or", target="t", against="n"),
    "stream": lambda m: unembed.stream(m, "to be or"),
}


@pytest.fixture(scope="module")
def model(trained):
    return unembed.load(trained)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_the_python_call(name, trained, model):
    done = run(name, trained, *COMMANDS[name], "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json == json.loads(json.dumps(CALLS[name](model).to_dict()))


@pytest.mark.parametrize("name", COMMANDS)
def test_csv_is_the_first_table(name, trained, model):
    done = run(name, trained, *COMMANDS[name], "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    first = next(iter(CALLS[name](model).tables.values()))
    assert [list(row) for row in rows[:1]] == [list(first.columns)]
    assert len(rows) == first.n_rows


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("lang", ["es", "ko"])
def test_every_label_has_its_words(name, lang, model):
    words, found = catalogue.load(lang), CALLS[name](model)
    wanted = [f"value.{key}" for key in found.values if key not in ("patterns", "tokens")]
    wanted += [f"note.{key}" for key in found.notes]
    wanted += [f"picture.{picture.key}" for picture in found.pictures]
    for table, data in found.tables.items():
        wanted += [f"table.{table}", *(f"column.{column}" for column in data.columns)]
        wanted += [f"choice.part.{part}" for part in data.columns.get("part", [])]
        wanted += [f"choice.score.{score}" for score in data.columns.get("score", []) if isinstance(score, str)]
    assert [key for key in dict.fromkeys(wanted) if not words.find(key)] == []


def test_attribute_tells_people_the_largest_terms_and_how_far_to_trust_them(trained):
    done = run("attribute", trained, "to be or", "--target", "t", "--lang", "es")
    assert done.code == 0
    for text in ("Puntuación explicada", "Los términos mayores", "todo lo demás"):
        assert text in done.out
    assert catalogue.text("note.attribution_is_direct", "es") in done.err
    assert run("attribute", trained, "to be or", "--quiet").err == ""


def test_attention_without_a_layer_has_a_row_a_head_and_with_one_the_keys_looked_at(trained, model):
    n_heads = sum(block.attention.n_heads for block in model.spec.blocks)
    done = run("attention", trained, "to be or")
    assert len(done.out.strip().splitlines()) == n_heads + 2
    assert "attended" in run("attention", trained, "to be or", "--layer", "1").out


def test_patch_shows_a_grid_of_layers_by_positions(trained, model):
    done = run("patch", trained, *COMMANDS["patch"])
    head = next(line for line in done.out.splitlines() if line.startswith("layer"))
    assert [word for word in head.split() if word.isdigit()] == [str(i) for i in range(8)]
    by_head = run("patch", trained, *COMMANDS["patch"], "--tap", "z", "--by", "head")
    assert by_head.code == 0, by_head


def test_text_may_come_from_a_pipe(trained, monkeypatch):
    class Pipe:
        buffer = io.BytesIO(b"to be or\n")

    monkeypatch.setattr("sys.stdin", Pipe())
    done = run("stream", trained, "-", "--format", "json")
    assert done.json["by_position"]["token"][:8] == list("to be or")


def test_grid_turns_rows_into_cells_and_rounds_for_the_eye():
    table = Table(columns={"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "x": [0.12345, -0.0001, 1.0, None]})
    plain = grid(table, "layer", "head", "x", ["a", "b"]).to_dict()
    assert plain == {"layer": [0, 1], "0 a": [0.123, 1.0], "1 b": [0.0, None]}
    assert str(plain["1 b"][0]) == "0.0"


def test_ids_may_be_given_in_any_form_and_targets_as_ids(model):
    ids = [1, 2, 3, 4]
    plain = unembed.attribute(model, ids=ids, target=5).to_dict()
    assert unembed.attribute(model, ids=np.array(ids), target=5).to_dict() == plain
    assert plain["target_id"] == 5
    assert unembed.patch(model, ids, [1, 2, 4, 4], metric="logit").values["check_error"] < 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: unembed.attribute(m), "attribute: give either a text or ids"),
        (lambda m: unembed.attribute(m, "to", ids=[1]), "attribute: give either a text or ids"),
        (lambda m: unembed.attribute("runs/x", "to"), "attribute: got the name 'runs/x', expected a model"),
        (
            lambda m: unembed.attribute(m, "to", target=9999),
            "target is the id 9999; this model's table has the rows 0 to",
        ),
        (lambda m: unembed.attribute(m, "to", against=-1), "against is the id -1"),
        (lambda m: unembed.attribute(m, "to", target=1.5), "target is 1.5, expected a token's text or its id"),
        (lambda m: unembed.attribute(m, "to", position="2"), "attribute: position is '2', expected a whole number"),
        (lambda m: unembed.attention(m, ids=[]), r"attention: ids are \[\]; give at least one id"),
        (lambda m: unembed.attention(m, ids=[1.5]), "attention: ids hold 1.5; give whole numbers"),
        (lambda m: unembed.stream(m, ids="to"), "stream: ids are 'to'; give at least one id"),
        (lambda m: unembed.patch(m, 3, "to"), "patch: ids are 3; give at least one id"),
        (lambda m: unembed.patch(m, "to", "be", tap=3), "patch: tap is 3, expected a text"),
    ],
)
def test_wrong_arguments_are_answered_in_words(model, call, message, unchecked):
    with pytest.raises(UsageError, match=message):
        call(model)


def test_every_command_of_the_page_is_one_that_exists():
    page = (Path(__file__).parents[2] / "docs" / "lens.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [shlex.split(line) for line in re.findall(r"^\$ unembed (.*)$", page, flags=re.MULTILINE)]
    assert {line[0] for line in lines} >= set(COMMANDS)
    for name, *arguments in lines:
        group = click.Context(main.cli)
        found = main.cli.get_command(group, name)
        assert found is not None, name
        found.make_context(name, arguments, parent=group)


def test_the_keys_that_are_looked_at_have_their_positions(trained, model):
    asked = ("attention", trained, "to be or to be", "--layer", "0", "--head", "1")
    table = unembed.attention(model, "to be or to be", layer=0, head=1).tables
    tokens = unembed.attention(model, "to be or to be").values["tokens"]
    pattern = {(row["position"], row["key_position"]): row["share"] for row in table["weights"].rows()}
    for row in table["attended"].rows():
        assert len(row["looks_at"]) == len(row["looks_at_positions"])
        for at, (token, weight) in zip(row["looks_at_positions"], row["looks_at"], strict=True):
            assert (token, weight) == (tokens[at], pytest.approx(pattern[row["position"], at]))
    last = list(table["attended"].rows())[-1]
    best, (token, weight) = last["looks_at_positions"][0], last["looks_at"][0]
    assert f"{best} {token} {weight:.3f}; " in run(*asked).out


def test_the_keys_as_parquet_are_lists_of_one_kind_each(trained, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    asked = ("attention", trained, "to be or", "--layer", "0", "--head", "1", "--format", "parquet")
    with screens() as (out, err):
        code = main.run([str(one) for one in asked])
    assert code == 0, err.text
    found = parquet.read_table(io.BytesIO(out.bytes)).to_pylist()
    want = unembed.attention(model, "to be or", layer=0, head=1).tables["attended"].rows()
    for row, wanted in zip(found, want, strict=True):
        pairs = zip(row["looks_at_tokens"], row["looks_at_shares"], strict=True)
        assert [list(pair) for pair in pairs] == wanted["looks_at"]
        assert row["looks_at_positions"] == wanted["looks_at_positions"]


@pytest.mark.parametrize("name", ["lens", "attribute", "attention", "patch", "stream"])
def test_words_that_the_model_does_not_know_are_said(name, tmp_path):
    words = save(WordTokenizer(["the", "dog", "barks", "."]), tmp_path / "words.json")
    texts = ("the cat barks .", "the dog barks .") if name == "patch" else ("the cat barks .",)
    more = ("--target", "dog", "--against", "the") if name == "patch" else ()
    line = (name, "mini-gpt", *texts, *more, "--tokenizer", words)
    done = run(*line)
    told = "the text: 1 of 4 tokens is <unk>, for the words tokenizer does not know 'cat'"
    assert (done.code, done.err.count(told)) == (0, 1)
    assert told not in run(*line, "--quiet").err


LOOKING = {
    "attention": ["model", "text"],
    "attribute": ["model", "text"],
    "calibration": ["model", "data"],
    "flow": ["model", "data"],
    "lens": ["model", "text"],
    "patch": ["model", "clean", "corrupted"],
    "stream": ["model", "text"],
    "tune-lens": ["model", "data"],
    "verify": ["model"],
}


def model_names():
    """The names of the options that every command has that opens a MODEL."""
    return [one.name for one in click.command("any")(model_options(lambda: None)).params]


@pytest.mark.parametrize("name", LOOKING)
def test_every_look_has_its_texts_in_front_and_the_same_options_at_the_end(name):
    command = importlib.import_module(f"unembed.cli.{name.replace('-', '_')}").command
    assert command.name == name
    arguments = [one.name for one in command.params if isinstance(one, click.Argument)]
    assert arguments == LOOKING[name]
    assert command.params[0].required == (name != "flow")
    assert [one.name for one in command.params][: len(arguments)] == arguments
    names = [one.name for one in command.params]
    common = names[names.index("tokenizer") :]
    if {"text", "clean"} & set(arguments):
        assert names[names.index("tokenizer") - 1] == "parse_specials"
    assert common == [*model_names(), "html", "output_format", "lang", "quiet", "threads"]
    assert len({one.name for one in command.params}) == len(command.params)
