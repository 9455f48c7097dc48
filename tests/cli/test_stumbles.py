"""Where a newcomer stumbles: what a command says of what it did not read, did not write, or cannot go on with."""

from pathlib import Path

import pytest

from commands import run
from unembed.checkpoints.load import load
from unembed.corpora.reading import Reading, ReadReport
from unembed.recipes.small import _minutes
from unembed.tokenizers.words import WordTokenizer
from unembed.visible import counted


def test_an_unknown_model_or_preset_names_the_page_of_presets(here):
    for arguments in (("count", "smollm2-135x"), ("sample", "zzzzqqqq")):
        done = run(*arguments)
        assert done.code == 3, done
        assert "docs/presets.md" in done.err


def test_resume_without_run_and_data_says_first_that_there_is_no_run(here):
    done = run("train", "--resume", "--out", "runs/nothere")
    assert done.code == 2
    assert "runs/nothere: there is no run to go on with. To begin one there, recipe small needs text" in done.err


def test_resume_on_a_converted_folder_says_what_it_lacks(here, trained):
    assert run("convert", trained, "made", "--to", "native").code == 0
    done = run("train", "--resume", "--out", "made")
    assert done.code == 3
    assert (
        "made: was made by convert; it has weights and no recipe or data, so there is nothing to go on with" in done.err
    )


def test_fewer_steps_than_are_done_are_said_to_be_ignored(trained):
    done = run("train", "--resume", "--out", trained, "--steps", "5")
    assert done.code == 0, done
    assert "steps=5 is below the 6 that are done, so it is ignored" in done.err


def test_a_prompt_longer_than_the_context_is_told_with_the_number_of_tokens_not_read(trained):
    """The context holds 16; of 40 tokens the last 12 are read."""
    done = run("sample", trained, "--prompt", "to be or " * 4 + "that", "--tokens", "1")
    assert done.code == 0, done
    assert "the prompt has 40 tokens and the context holds 16: its first 28 tokens were not read" in done.err
    short = run("sample", trained, "--prompt", "to be", "--tokens", "1")
    assert "not read" not in short.err


@pytest.fixture
def of_words(trained, monkeypatch):
    """The trained model with a tokenizer of words, some of which a prompt will not have."""
    model = load(trained)
    model.tokenizer, model.start_ids = WordTokenizer(["the", "dog", "."]), None
    monkeypatch.setattr("unembed.cli.sample.open_model", lambda *a, **b: model)
    return model


def test_unknown_words_of_a_prompt_are_told(of_words, here):
    done = run("sample", "any", "--prompt", "the elephants", "--tokens", "1")
    assert "the prompt: 1 of 2 tokens is <unk>, for the words tokenizer does not know 'elephants'" in done.err
    assert "unk" not in run("sample", "any", "--prompt", "the dog", "--tokens", "1").err
    (here / "two.txt").write_text("the elephants\nthe dog\nthe lions\n")
    many = run("sample", "any", "--prompts", "two.txt", "--tokens", "1")
    assert "a prompt: 1 of 2 tokens is <unk>" in many.err
    assert "1 more prompt with unknown tokens" in many.err


def test_a_text_that_ends_at_once_is_told(trained, monkeypatch):
    model = load(trained)
    monkeypatch.setattr("unembed.cli.sample.open_model", lambda *a, **b: model)
    prompt = ("--prompt", "to be", "--greedy", "--tokens", "3")
    first = run("sample", "any", *prompt, "--format", "json").json["ids"][0]
    assert "at once" not in run("sample", "any", *prompt).err
    monkeypatch.setattr(model.tokenizer, "end_id", first)
    assert "the model ended the text at once (stopped: end)" in run("sample", "any", *prompt).err


def test_a_model_without_tokenizer_names_the_option():
    assert "--tokenizer FILE" in run("sample", "mini-gpt", "--prompt", "a").err


def test_one_is_not_many_and_thousands_are_grouped():
    assert (counted(1, "file"), counted(37673, "byte")) == ("1 file", "37,673 bytes")
    assert (_minutes(1.0), _minutes(5.0)) == ("1 minute", "5 minutes")
    one = ReadReport(n_crlf=1, n_invalid_bytes=1, first_invalid="a: 3", n_empty=1, crlf_files=[Path("a")])
    assert one.notes(Reading()) == (
        "a: 1 line end is CRLF and was kept; --newlines lf makes it LF",
        "1 byte is no UTF-8 and was skipped, the first at a: 3",
        "1 empty document was left out",
    )
    many = ReadReport(n_crlf=37673, n_empty=2, crlf_files=[Path("a")])
    assert many.notes(Reading(newlines="lf")) == (
        "a: 37,673 line ends were CRLF and are now LF",
        "2 empty documents were left out",
    )
