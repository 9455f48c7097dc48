"""`unembed tokenize`: what a text becomes, what a comparison says of itself, and what is refused with a next step."""

import pytest

from commands import run
from unembed.tokenizers.files import save
from unembed.tokenizers.words import WordTokenizer


@pytest.fixture
def words(tmp_path):
    return save(WordTokenizer(["the", "dog", "barks", "."]), tmp_path / "words.json")


def test_json_has_the_keys_of_the_contract(words):
    done = run("tokenize", words, "the dog  barks", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["ids"] == [0, 1, 2]
    assert done.json["tokens"] == ["the", "dog", "barks"]
    assert done.json["spans"] == [[0, 3], [4, 7], [9, 14]]
    assert done.json["lossless"] is False, "one of two spaces is lost"


def test_unknown_words_are_said_with_their_number(words):
    done = run("tokenize", words, "the cat and the owl and a fox .", "--format", "json")
    assert done.code == 0
    assert done.json["ids"] == [0, 4, 4, 0, 4, 4, 4, 4, 3]
    assert done.err == (
        "6 of 9 tokens are <unk>, for the words tokenizer does not know 'cat', 'and', 'owl' and 2 more\n"
    )
    assert run("tokenize", words, "the cat", "--quiet", "--format", "json").err == ""
    assert run("tokenize", words, "the dog", "--format", "json").err == ""


def test_a_run_and_its_checkpoints_have_one_tokenizer(trained):
    want = run("tokenize", trained, "to be", "--format", "json")
    assert want.code == 0
    checkpoint = next((trained / "checkpoints").iterdir())
    assert run("tokenize", checkpoint, "to be", "--format", "json").json == want.json


def test_a_preset_has_no_tokenizer():
    done = run("tokenize", "gpt2", "to be")
    assert done.code == 3
    assert "gpt2: a preset is a shape with random weights and has no tokenizer. Name a run folder" in done.err


def test_a_comparison_says_what_it_measured_and_what_came_out_smaller(here):
    text = "".join(f"the dog number {i % 7} barks at cat {i % 5} and runs .\n" for i in range(200))
    (here / "text.txt").write_text(text)
    done = run("tokenize", "--compare", "text.txt", "--vocab-size", "600", "--format", "json")
    assert done.code == 0
    rows = dict(zip(done.json["tokenizers"]["tokenizer"], done.json["tokenizers"]["vocabulary"], strict=True))
    assert f"the last 10% of the text ({done.json['words']:,} words, {done.json['bytes']:,} bytes)" in done.err
    assert "which no vocabulary has seen; all were learnt from what stands before it" in done.err
    assert (
        f"bpe {rows['bpe']} and unigram {rows['unigram']} entries, not the 600 asked for: no other piece occurs"
        in done.err
    )
    full = run("tokenize", "--compare", "text.txt", "--vocab-size", "257", "--format", "json")
    assert "entries, not the" not in full.err
    assert run("tokenize", "--compare", "text.txt", "--quiet", "--format", "json").err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "tokenize: give MODEL and TEXT, or --compare FILE"),
        (("--compare", "a.txt", "gpt2"), 2, "--compare takes one FILE and no MODEL or TEXT"),
        (("nowhere", "text"), 3, "nowhere: there is no such file"),
        (("--compare", "nowhere.txt"), 3, "nowhere.txt: there is no such file or folder"),
    ],
)
def test_messages(here, arguments, code, message):
    done = run("tokenize", *arguments)
    assert done.code == code
    assert message in done.err
