"""Our tokenizers as other programs read them: the library's tokenizer.json and GGUF keys, equal or not given at all."""

import json

import pytest

import tokenizers
from oracles.odd_strings import odd_strings
from unembed.tokenizers import files, foreign
from unembed.tokenizers.base import Encoding
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.gguf_keys import gguf_keys
from unembed.tokenizers.gguf_vocabulary import read_vocabulary
from unembed.tokenizers.library import config_of, to_library
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.tokenizers.training import train_bpe
from unembed.tokenizers.words import WordTokenizer

TEXT = "the cat sat on the mat, the dog too. 나는 학교에 갑니다. El niño comió. " * 20


@pytest.fixture(scope="module")
def bpe():
    return train_bpe([TEXT], vocab_size=300)


def opened(tokenizer):
    engine = tokenizers.Tokenizer.from_str(json.dumps(to_library(tokenizer)))
    engine.encode_special_tokens = True
    return engine


def test_characters_and_bpe_give_the_same_ids_and_texts_in_the_library(bpe):
    alphabet = CharacterTokenizer.from_text(TEXT + "\n\r\t")
    for tokenizer, texts in ((alphabet, ["the cat\n\r\tsat", "나는 niño"]), (bpe, odd_strings(200, seed=3))):
        engine = opened(tokenizer)
        for text in texts:
            ids = list(tokenizer.encode(text).ids)
            assert engine.encode(text, add_special_tokens=False).ids == ids, repr(text)
            assert engine.decode(ids) == tokenizer.decode(ids), repr(text)


def test_words_have_no_exact_form_in_the_library():
    assert to_library(WordTokenizer.from_text(TEXT)) is None


def test_config_names_the_marks(bpe):
    config = config_of(bpe, 64)
    assert config["model_max_length"] == 64
    assert config["eos_token"] == bpe.token_text(bpe.end_id)


def test_bpe_comes_back_from_gguf_keys_with_padded_rows_as_unused(bpe):
    keys = gguf_keys(bpe, bpe.vocab_size + 5)
    assert keys is not None
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert len(keys["tokenizer.ggml.tokens"]) == bpe.vocab_size + 5
    back = read_vocabulary(keys, where="test").tokenizer
    for text in odd_strings(200, seed=4):
        assert back.encode(text).ids == bpe.encode(text).ids, repr(text)
        assert back.decode(back.encode(text).ids) == text


def test_llama2c_pieces_come_back_from_gguf_keys_and_from_the_library(data):
    tokenizer = files.load(data / "weights" / "tok512.bin")
    keys = gguf_keys(tokenizer, 512)
    assert keys["tokenizer.ggml.model"] == "llama"
    back = read_vocabulary(keys, where="test").tokenizer
    engine = opened(tokenizer)
    texts = ["Once upon a time, there was a little girl.", "  two  spaces ", "깰 ñ 👩‍👩‍👧", *odd_strings(100, seed=5)]
    for text in texts:
        ids = list(tokenizer.encode(text).ids)
        assert list(back.encode(text).ids) == ids, repr(text)
        assert engine.encode(text, add_special_tokens=False).ids == ids, repr(text)


def test_start_token_goes_before_a_text_where_the_model_was_taught_with_one(data, bpe):
    tokenizer = files.load(data / "weights" / "tok512.bin")
    assert tokenizer.adds_start
    assert opened(tokenizer).encode("Once").ids == [1, *tokenizer.encode("Once").ids]
    assert foreign.from_library_json(to_library(tokenizer), {}, where="x").adds_start
    assert gguf_keys(tokenizer, 512)["tokenizer.ggml.add_bos_token"] is True
    assert not bpe.adds_start
    assert to_library(bpe)["post_processor"] is None


def test_characters_have_no_form_in_gguf():
    assert gguf_keys(CharacterTokenizer.from_text("abc"), 3) is None


def test_an_engine_that_differs_on_one_text_is_not_given(data, monkeypatch):
    tokenizer = files.load(data / "weights" / "tok512.bin")
    real = foreign.PieceTokenizer.encode

    def odd(self, text, **more):
        found = real(self, text, **more)
        return Encoding(found.ids[::-1], found.spans) if text.startswith("The capital") else found

    monkeypatch.setattr(foreign.PieceTokenizer, "encode", odd)
    assert to_library(tokenizer) is None


def test_a_vocabulary_without_some_bytes_goes_to_gguf_unless_it_has_an_unknown_token(bpe):
    """SmolLM2's lacks 21: llama.cpp leaves such a byte out, as this tokenizer does, and nothing becomes unknown there."""
    values = bpe.to_dict()["engine"]
    names = [name for name in bpe.tokens if name != "\u0123"]  # byte 1, which stands in no merge
    vocabulary = {name: i for i, name in enumerate(names)}
    model = values["model"] | {"vocab": vocabulary}
    added = [token | {"id": vocabulary[token["content"]]} for token in values["added_tokens"]]

    def made(**changes):
        plain = values | {"model": model | changes, "added_tokens": added}
        return SubwordTokenizer.from_values(plain, start=None, end=None, adds_start=False)

    assert len(vocabulary) < len(bpe.tokens)
    back = read_vocabulary(gguf_keys(made(), len(names)), where="test").tokenizer
    assert back.encode("the \x01cat").ids == made().encode("the \x01cat").ids
    assert gguf_keys(made(unk_token="t"), len(names)) is None
