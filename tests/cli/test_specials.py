"""Names of special tokens in a text: letters unless --parse-specials is given, and never letters without a word."""

import importlib
import json

import pytest

import unembed
from commands import run
from unembed.cli import main
from unembed.errors import InputError, UsageError
from unembed.lenses.prompts import text_ids
from unembed.model.presets import PRESETS
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import load, save
from unembed.tokenizers.words import WordTokenizer

TEXTS = {
    "attention": ("the <end> dog",),
    "attribute": ("the <end> dog",),
    "lens": ("the <end> dog",),
    "patch": ("the <end> dog", "dog <end> the", "--target", "dog", "--against", "the"),
    "sample": ("--tokens", "1", "--prompt", "the <end> dog"),
    "stream": ("the <end> dog",),
}
NOTE = "'<end>' is the name of a special token, read as the letters that stand there; --parse-specials reads it as that token"


@pytest.fixture
def words(tmp_path):
    return save(WordTokenizer(["the", "dog", "barks", "."]), tmp_path / "words.json")


@pytest.fixture
def bert(tmp_path):
    """The files of a WordPiece tokenizer as transformers writes them: marks in front of a text and behind it."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*names, "to", "be", "or"]
    marked = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name} | plain for i, name in enumerate(names)],
        "normalizer": None,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": marked,
            "pair": [*marked, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [names.index(name)], "tokens": [name]} for name in names[2:4]},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(tokens)},
        },
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    return path


def test_every_command_that_takes_a_text_for_a_model_has_the_option():
    commands = {
        name: importlib.import_module(f"unembed.cli.{name.replace('-', '_')}").command for name in main.COMMANDS
    }
    taking = {
        name
        for name, found in commands.items()
        if {"model", "tokenizer"} <= {one.name for one in found.params}
        and {"text", "clean", "prompt"} & {one.name for one in found.params}
    }
    assert taking == set(TEXTS)
    offering = {name for name, found in commands.items() if any("--parse-specials" in one.opts for one in found.params)}
    assert offering == {*TEXTS, "tokenize"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_spelt_special_is_said_once_and_read_on_demand(name, words):
    line = (name, "mini-gpt", "--tokenizer", words, *TEXTS[name])
    spelt = run(*line)
    assert spelt.code == 0, spelt
    assert spelt.err.count(NOTE) == (2 if name == "patch" else 1)
    assert "<unk>" in spelt.err, "the letters of <end> are no word"
    read = run(*line, "--parse-specials")
    assert read.code == 0, read
    assert "<unk>" not in read.err
    assert "special token" not in read.err


def test_the_ids_are_those_of_the_tokenizer(words):
    line = ("sample", "mini-gpt", "--tokenizer", words, *TEXTS["sample"], "--format", "json")
    tokenizer = load(words)
    end = tokenizer.specials["<end>"]
    assert run(*line, "--parse-specials").json["prompt_ids"] == [0, end, 1]
    assert end not in run(*line).json["prompt_ids"]
    assert run(*line, "--quiet").err == ""


def test_many_prompts_are_told_together_and_all_are_read(words, here):
    (here / "lines.txt").write_text("the dog\ndog <end>\nthe <end>\n")
    line = ("sample", "mini-gpt", "--tokenizer", words, "--prompts", "lines.txt", "--tokens", "1", "--format", "json")
    assert run(*line).err.count("a prompt: '<end>' is the name of a special token") == 1
    rows = run(*line, "--parse-specials").json["samples"]
    assert [ids[-1] for ids in rows["prompt_ids"]] == [1, load(words).specials["<end>"], load(words).specials["<end>"]]


def test_tokenize_has_the_same_option_under_its_old_name_too(words):
    found = run("tokenize", words, "the <end>", "--format", "json")
    assert NOTE in found.err
    for option in ("--parse-specials", "--specials"):
        read = run("tokenize", words, "the <end>", option, "--format", "json")
        assert (read.json["tokens"], read.err) == (["the", "<end>"], "")


def test_python_has_the_switch_where_it_takes_texts(words):
    model = unembed.load("mini-gpt", tokenizer=words)
    end = model.tokenizer.specials["<end>"]
    text, read = "the <end> dog", [0, model.tokenizer.specials["<end>"], 1]
    assert unembed.generate(model, text, tokens=1, parse_specials=True).values["prompt_ids"] == read
    many = unembed.generate_many(model, [text], tokens=1, parse_specials=True)
    assert list(many.tables["samples"]["prompt_ids"][0]) == read
    assert unembed.candidates(model, text, parse_specials=True).values["prompt_ids"] == read
    assert unembed.lens(model, text, parse_specials=True).values["tokens"] == ["the", "<end>", "dog"]
    for look in (unembed.attribute, unembed.attention, unembed.stream):
        assert look(model, text, parse_specials=True).to_dict() == look(model, ids=read).to_dict()
        assert look(model, text).to_dict() != look(model, ids=read).to_dict()
    pair = {"target": "dog", "against": "the"}
    patched = unembed.patch(model, text, "dog <end> the", parse_specials=True, **pair)
    assert patched.to_dict() == unembed.patch(model, read, [1, end, 0], **pair).to_dict()


@pytest.mark.parametrize("name", ["generate", "candidates", "lens", "attribute", "attention", "stream"])
def test_the_switch_is_true_or_false(name, words, unchecked):
    model = unembed.load("mini-gpt", tokenizer=words)
    with pytest.raises(UsageError, match=f"{name}: parse_specials is 'no', expected True or False"):
        getattr(unembed, name)(model, "the dog", parse_specials="no")


def test_a_masked_model_gets_both_marks_of_its_tokenizer(bert):
    masked = next(name for name in PRESETS if name == "esm2-8m")
    line = ("lens", masked, "--tokenizer", bert, "--format", "json")
    read = run(*line, "to be [MASK]", "--parse-specials")
    assert read.json["tokens"] == ["[CLS]", "to", "be", "[MASK]", "[SEP]"]
    letters = run(*line, "to be [MASK]")
    assert "'[MASK]' is the name of a special token" in letters.err
    assert run(*line, "[CLS] to be [SEP]", "--parse-specials").json["tokens"] == ["[CLS]", "to", "be", "[SEP]"]
    one_sided = unembed.load("mini-gpt", tokenizer=bert)
    assert text_ids(one_sided, "to be") == [2, 5, 6]


@pytest.mark.parametrize("preset", ["mini-gpt", "microgpt"])
def test_a_preset_says_that_its_numbers_are_random(preset, words):
    told = f"preset {preset}: random weights (seed 0); nothing is downloaded. For trained ones name a folder or a file"
    for line in (("sample", preset, "--prompt", "the dog", "--tokens", "1"), ("lens", preset, "the dog")):
        done = run(*line, "--tokenizer", words)
        assert (done.code, done.err.count(told)) == (0, 1), done
        assert told not in run(*line, "--tokenizer", words, "--quiet").err


def test_a_trained_run_says_nothing_of_it(trained):
    assert run("sample", trained, "--prompt", "to", "--tokens", "1").err == ""


def test_a_tokenizer_of_another_size_is_told(words):
    done = run("sample", "mini-gpt", "--tokenizer", words, "--prompt", "the dog", "--tokens", "1")
    rows = unembed.load("mini-gpt").spec.embedding.vocab_size
    assert f"the tokenizer has 6 tokens and the model's table {rows} rows: is it another model's tokenizer?" in done.err


@pytest.fixture
def large(tmp_path):
    """Four thousand words, so that most ids have no row in a small table."""
    return save(WordTokenizer([f"w{n}" for n in range(4000)]), tmp_path / "large.json")


@pytest.mark.parametrize("name", ["sample", "lens"])
def test_an_id_without_a_row_names_both_sizes_before_anything_is_shown(name, large):
    text = ("--prompt", "w1 w3000") if name == "sample" else ("w1 w3000",)
    done = run(name, "mini-gpt", *text, "--tokenizer", large)
    assert (done.code, done.out) == (3, "")
    what = "generate" if name == "sample" else name
    assert (
        f"error: {what}: 'w3000' is id 3000 of the words tokenizer, which has 4,002 tokens; the model's table"
        in done.err
    )
    assert (
        "so this is another model's tokenizer. Name the one that belongs to the model with --tokenizer FILE" in done.err
    )


def test_an_error_in_the_middle_of_a_text_begins_on_a_line_of_its_own(trained, monkeypatch):
    def broken(*arguments, **options):
        yield ["ab"]
        raise InputError("generate: broke")

    monkeypatch.setattr("unembed.generation.texts.write", broken)
    line = ("sample", trained, "--prompt", "to")
    assert run(*line, is_terminal=True).out == "toab\n"
    assert run(*line).out == "toab", "a pipe gets the text to the last byte"
    monkeypatch.setattr("unembed.cli.sample._notes_follow_the_text", lambda: True)
    assert run(*line, "--quiet").out == "toab\n"


def test_only_specials_that_encoding_does_not_read_are_spelt():
    from unembed.tokenizers.notes import spelt_specials

    words = WordTokenizer(["the"])
    assert spelt_specials(words, "the <unk> the") == []
    letters = CharacterTokenizer.from_text("<end>unk")
    assert [name for name in letters.specials if spelt_specials(letters, name)] == list(letters.specials)


def test_a_target_may_be_a_special_by_its_name(words):
    model = unembed.load("mini-gpt", tokenizer=words)
    end = model.tokenizer.specials["<end>"]
    assert unembed.lens(model, "the dog", target="<end>").values["target"] == {"id": end, "text": "<end>"}
    with pytest.raises(UsageError, match="the target '<ende>' is no token of this model"):
        unembed.lens(model, "the dog", target="<ende>")


def test_a_converted_run_says_what_it_was_written_from(here, trained):
    assert run("convert", trained, "made", "--to", "native").code == 0
    told = f"made: written by unembed convert from {trained}"
    assert told in run("sample", "made", "--prompt", "to", "--tokens", "1").err
    assert told not in run("sample", "made", "--prompt", "to", "--tokens", "1", "--quiet").err


def test_a_tokenizer_that_the_format_cannot_hold_is_read_from_the_source(here, trained, words):
    made = run("convert", trained, "made", "--tokenizer", words)
    assert "read it from the source with --tokenizer SOURCE" in made.err
    line = ("sample", "made", "--prompt", "the dog", "--tokens", "1")
    alone = run(*line)
    assert alone.code == 3
    assert "Name one with --tokenizer FILE: a tokenizer's file, or a run or folder that has one" in alone.err
    assert run(*line, "--tokenizer", words).code == 0
