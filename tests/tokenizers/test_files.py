"""Saving and loading: equal tokenizers come back, and nothing is read that is not understood."""

import json

import pytest

from unembed.errors import TokenizerError
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import fingerprint, from_dict, load, save
from unembed.tokenizers.words import WordTokenizer

TOKENIZERS = [
    CharacterTokenizer.from_text("ab\x00\u2028ñ깰🙂"),
    CharacterTokenizer.from_text("ab", has_unknown=True, has_end=True),
    WordTokenizer(["el", "perro", "."]),
    WordTokenizer(["hacía"], lowercases=True, strips_accents=False),
]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: t.kind)
def test_property_load_gives_back_what_save_was_given(tokenizer, tmp_path):
    path = save(tokenizer, tmp_path)
    assert path == tmp_path / "tokenizer.json"
    for place in (tmp_path, path):
        loaded = load(place)
        assert type(loaded) is type(tokenizer)
        assert loaded.to_dict() == tokenizer.to_dict()
        assert loaded.tokens == tokenizer.tokens
        assert fingerprint(loaded) == fingerprint(tokenizer)


def test_property_fingerprints_tell_tokenizers_apart():
    assert len({fingerprint(tokenizer) for tokenizer in TOKENIZERS}) == len(TOKENIZERS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "the tokenizer's type is None; this version reads characters"),
        (
            {"type": {"vocab": ["a"] * 9_999}},
            r"type is \{'vocab': \['a', .{20,60}\.\.\.; this version reads characters",
        ),
        ({"type": "words", "z" * 9_999: 1}, r"unknown field `z{300,390}\. Write the file again"),
        ({"type": "runes"}, "type is 'runes'; this version reads characters"),
        ({"type": "characters", "characters": "ab", "unknown": None}, "missing required field `end`"),
        ({"type": "characters", "characters": "ab", "unknown": None, "end": None, "x": 1}, "unknown field `x`"),
        ({"type": "characters", "characters": 5, "unknown": None, "end": None}, "Expected `str`, got `int`"),
        ({"type": "characters", "characters": "aa", "unknown": None, "end": None}, "'a' is both id 0 and id 1"),
        (
            {"type": "subword", "engine": {}, "start": None, "end": None},
            r"not as the .* writes it \(.*`model`",
        ),
        ({"type": "words", "words": ["a", "a"], "lowercases": False, "strips_accents": False}, "'a' is both id 0"),
    ],
)
def test_message_names_what_is_not_understood(values, message):
    with pytest.raises(TokenizerError, match=message):
        from_dict(values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"type": "words", "type": "words"}', "the key 'type' appears twice in one object"),
        (b"{", "not readable as JSON"),
        (b"[]", "holds a list; a tokenizer's file holds one object"),
        (b"\xff", "byte 0 is not UTF-8"),
    ],
)
def test_message_names_the_broken_file(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        load(tmp_path)


def test_message_for_an_absent_file(tmp_path):
    with pytest.raises(TokenizerError, match=r"no such file. A run folder keeps its tokenizer in tokenizer\.json"):
        load(tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match="there is no tokenizer in this folder"):
        load(tmp_path)


def test_file_is_readable_json_in_utf8(tmp_path):
    save(TOKENIZERS[0], tmp_path)
    text = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    assert "깰" in text
    assert json.loads(text)["type"] == "characters"
