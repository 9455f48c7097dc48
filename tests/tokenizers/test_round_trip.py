"""Every lossless tokenizer gives every string back, after saving and loading in another process."""

import subprocess
import sys
from pathlib import Path

import pytest

from oracles.odd_strings import ALPHABET, failures
from unembed.errors import TokenizerError
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import save
from unembed.tokenizers.training import train_bpe, train_bytes, train_unigram
from unembed.tokenizers.words import WordTokenizer


@pytest.fixture(scope="module")
def lossless(data) -> dict[str, Tokenizer]:
    text = "".join((data / "text" / f"udhr_{language}.txt").read_text() for language in ("en", "es", "ko"))
    return {
        "characters": CharacterTokenizer.from_text(ALPHABET, has_end=True),
        "bytes": train_bytes(),
        "bpe": train_bpe(text, vocab_size=1500),
        "unigram": train_unigram(text, vocab_size=600),
    }


def run_in_another_process(lossless: dict[str, Tokenizer], n: int, tmp_path: Path) -> str:
    for name, tokenizer in lossless.items():
        (tmp_path / name).mkdir()
        save(tokenizer, tmp_path / name)
    script = Path(__file__).parents[1] / "oracles" / "odd_strings.py"
    command = [sys.executable, str(script), str(n), *(str(tmp_path / name) for name in lossless)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_property_here(lossless):
    for tokenizer in lossless.values():
        assert tokenizer.is_lossless
        assert failures(tokenizer, 2_000, seed=11) == []


@pytest.mark.slow
def test_property_a_hundred_thousand_strings_in_another_process(lossless, tmp_path):
    assert run_in_another_process(lossless, 100_000, tmp_path) == ""


@pytest.mark.long
def test_property_a_million_strings_in_another_process(lossless, tmp_path):
    assert run_in_another_process(lossless, 1_000_000, tmp_path) == ""


def test_lone_surrogates_are_refused_by_all_in_the_same_words(lossless):
    tokenizers = [*lossless.values(), WordTokenizer(["a"])]
    for text in ("a\ud800", "a\udfff", "a\udc80b"):
        said = set()
        for tokenizer in tokenizers:
            for encode in (tokenizer.encode, tokenizer.encode_ids):
                with pytest.raises(TokenizerError) as caught:
                    encode(text)
                said.add(str(caught.value))
            with pytest.raises(TokenizerError):
                tokenizer.encode(text, parse_specials=True)
        assert said == {
            f"text: character 1 is U+{ord(text[1]):04X}, half of a surrogate pair, which is no character and has no UTF-8 "
            "form. Remove it, or read the text again in its right encoding"
        }
