"""Every lossless tokenizer gives every string back, after saving and loading in another process.

SentencePiece's kind says that it loses one character (`▁` comes back as a space): it must lose nothing else, so it is
held to that here. Half a surrogate pair has one result everywhere, which is at the end of this file.
"""

import io
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from oracles.odd_strings import (
    ALPHABET,
    TYPES,
    expected,
    failures,
    long_strings,
    odd_strings,
    why_spans_are_wrong,
    write_ids,
)
from unembed.errors import TokenizerError
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import load, save
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.training import END, train_bpe, train_bytes, train_unigram
from unembed.tokenizers.words import WordTokenizer

ONLY_LOSS = "the character \u2581, which comes back as a space"
SPANS_EVERY = 20


def sentence_pieces(text: str, kind: str) -> PieceTokenizer:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()), model_writer=out, vocab_size=700, minloglevel=2, num_threads=1,
        model_type=kind, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        hard_vocab_limit=False,
    )  # fmt: skip
    return PieceTokenizer(out.getvalue())


def gpt2_pair(text: str, folder: Path) -> Tokenizer:
    """A vocabulary in GPT-2's two files, its end token last."""
    engine = train_bpe(text, vocab_size=900).to_dict()["engine"]
    vocabulary = engine["model"]["vocab"] | {END: len(engine["model"]["vocab"])}
    (folder / "encoder.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    merges = "".join(f"{a} {b}\n" for a, b in engine["model"]["merges"])
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return load(folder)


@pytest.fixture(scope="module")
def lossless(data, tmp_path_factory) -> dict[str, Tokenizer]:
    text = "".join((data / "text" / f"udhr_{language}.txt").read_text() for language in ("en", "es", "ko"))
    return {
        "bytes": train_bytes(),
        "bpe": train_bpe(text, vocab_size=1500),
        "unigram": train_unigram(text, vocab_size=600),
        "gpt2": gpt2_pair(text, tmp_path_factory.mktemp("gpt2")),
        "sentencepiece_bpe": sentence_pieces(text, "bpe"),
        "sentencepiece_unigram": sentence_pieces(text, "unigram"),
        "llama2c": load(data / "weights" / "tok512.bin"),
    }


def with_every_character(lossless: dict[str, Tokenizer]) -> dict[str, Tokenizer]:
    every = "".join(map(chr, itertools.chain(range(0xD800), range(0xE000, 0x110000))))
    return {"characters": CharacterTokenizer.from_text(every, has_end=True), **lossless}


def differences_in_another_process(lossless: dict[str, Tokenizer], n: int, folder: Path) -> str:
    """Encodes here, decodes and encodes again there."""
    for name, tokenizer in lossless.items():
        (folder / name).mkdir()
        save(tokenizer, folder / name)
    write_ids(lossless, n, 7, folder)
    return differences_there(list(lossless), n, folder)


def differences_there(names: list[str], n: int, folder: Path) -> str:
    script = Path(__file__).parents[1] / "oracles" / "odd_strings.py"
    command = [sys.executable, str(script), str(n), "7", str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wrong_spans(lossless: dict[str, Tokenizer], n: int) -> list[str]:
    return [
        f"{name}: {text[:80]!a}: {reason}"
        for name, tokenizer in lossless.items()
        for text in odd_strings(n, seed=8)
        if (reason := why_spans_are_wrong(tokenizer, text))
    ]


def test_what_is_lost_is_declared(lossless):
    for name, tokenizer in lossless.items():
        assert tokenizer.loses == (ONLY_LOSS if "sentencepiece" in name or name == "llama2c" else "")
        assert tokenizer.is_lossless == (tokenizer.loses == "")


def test_property_here(lossless):
    texts = list(odd_strings(300, seed=11))
    characters = CharacterTokenizer.from_text(ALPHABET + "".join(texts))
    for name, tokenizer in {"characters": characters, **lossless}.items():
        assert failures(tokenizer, texts) == [], name
        assert [text for text in texts[:40] if why_spans_are_wrong(tokenizer, text)] == [], name


def test_property_in_another_process_and_the_check_can_fail(lossless, tmp_path):
    """Ids that are not those of the strings are noticed."""
    assert differences_in_another_process({"gpt2": lossless["gpt2"]}, 300, tmp_path) == ""
    path = tmp_path / "gpt2.ids"
    np.fromfile(path, TYPES[".ids"])[::-1].tofile(path)
    said = differences_there(["gpt2"], 300, tmp_path)
    for found in ("has other ids here", "does not come back\n", "does not come back as a stream"):
        assert found in said


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_property_a_hundred_thousand_strings_in_another_process(lossless, tmp_path):
    everyone = with_every_character(lossless)
    assert differences_in_another_process(everyone, 100_000, tmp_path) == ""
    assert wrong_spans(everyone, 100_000 // SPANS_EVERY) == []


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_property_a_million_strings_in_another_process(lossless, tmp_path):
    everyone = with_every_character(lossless)
    assert differences_in_another_process(everyone, 1_000_000, tmp_path) == ""
    assert wrong_spans(everyone, 1_000_000 // SPANS_EVERY) == []


def test_oracle_strings_hold_what_they_are_said_to_hold():
    texts = list(odd_strings(5_000, seed=1))
    whole = "".join(texts)
    assert set(whole) >= set(ALPHABET)
    assert not any("\ud800" <= character <= "\udfff" for character in whole)
    assert "" in texts
    assert long_strings()[0] == "^" * 10**6
    assert expected(CharacterTokenizer("a"), "\u2581") == "\u2581"


# --- half a surrogate pair: refused, in the same words, wherever a text comes in -------------------------------


def said_of(code: int, at: int) -> str:
    return (
        f"text: character {at} is U+{code:04X}, half of a surrogate pair, which is no character and has no UTF-8 "
        "form. Remove it, or read the text again in its right encoding"
    )


def test_lone_surrogates_are_refused_by_all_in_the_same_words(lossless):
    tokenizers = [*lossless.values(), WordTokenizer(["a"]), CharacterTokenizer("a", unknown="<unk>")]
    for text in ("a\ud800", "a\udfff", "a\udc80b", "a\udc00\ud800"):
        said = set()
        for tokenizer in tokenizers:
            for encode in (
                tokenizer.encode,
                tokenizer.encode_ids,
                lambda t, tokenizer=tokenizer: tokenizer.encode(t, parse_specials=True),
                lambda t, tokenizer=tokenizer: tokenizer.encode_ids(t, is_continuation=True),
                lambda t, tokenizer=tokenizer: tokenizer.encode_many(["a", t], [False, True]),
            ):
                with pytest.raises(TokenizerError) as caught:
                    encode(text)
                said.add(str(caught.value))
        assert said == {said_of(ord(text[1]), 1)}


@pytest.mark.parametrize("train", [train_bpe, train_unigram])
def test_lone_surrogates_are_refused_by_trainers(train):
    with pytest.raises(TokenizerError, match=r"character 1 is U\+D83D, half of a surrogate pair"):
        train(["a\ud83d"], vocab_size=300)
    for build in (CharacterTokenizer.from_text, WordTokenizer.from_text):
        with pytest.raises(TokenizerError, match=r"character 1 is U\+D83D, half of a surrogate pair"):
            build("a\ud83d")


@pytest.mark.parametrize(
    "values",
    [
        {"type": "characters", "characters": "a\ud800", "unknown": None, "end": None},
        {"type": "characters", "characters": "a", "unknown": "\ud800", "end": None},
        {"type": "words", "words": ["a\ud800"], "lowercases": False, "strips_accents": False},
        {"type": "subword", "engine": {"model": {"type": "BPE", "vocab": {"a\ud800": 0}, "merges": []}}, "start": None},
        {"model": {"type": "BPE", "vocab": {"a\ud800": 0}, "merges": []}},
    ],
)
def test_lone_surrogates_are_refused_in_a_tokenizers_file(values, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: holds U\+D800, half of a surrogate pair") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
