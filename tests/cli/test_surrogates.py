"""Half a surrogate pair has one result on the command line too: the tokenizer's words and exit code 3, whatever it came by.

An argument that is not UTF-8 reaches Python as such halves (one for each byte), and JSON can spell one.
"""

import io
import json
import sys

import pytest

from commands import run

SAID = "half of a surrogate pair, which is no character and has no UTF-8 form. Remove it, or read the text again"


@pytest.mark.parametrize("text", ["to be\udcff", "to be\udfff or"])
@pytest.mark.parametrize(
    "words", [("tokenize", "MODEL", "TEXT"), ("sample", "MODEL", "--tokens", "1", "--prompt", "TEXT")]
)
def test_as_an_argument(trained, words, text):
    done = run(*[{"MODEL": trained, "TEXT": text}.get(word, word) for word in words])
    assert done.code == 3, done
    assert f"text: character 5 is U+{ord(text[5]):04X}, {SAID}" in done.err
    assert done.out == ""


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_bytes_on_standard_input_that_are_no_utf8(trained, monkeypatch, errors):
    """Python reads standard input strictly under some locales and not under others: the answer is the same."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"to be\xff"), encoding="utf-8", errors=errors))
    done = run("tokenize", trained, "-")
    assert done.code == 3, done
    assert f"text: character 5 is U+DCFF, {SAID}" in done.err


def test_in_a_column_and_in_a_text(trained, here):
    (here / "rows.jsonl").write_text(json.dumps({"t": "to be\ud800"}) + "\n")
    done = run("train", "rows.jsonl", "--column", "t", "--recipe", "nanogpt-cpu", "--out", "run")
    assert done.code == 3, done
    assert "rows.jsonl, line 1: column 't' holds U+D800, half of a surrogate pair, which is no character" in done.err
    (here / "cesu.txt").write_bytes(b"to be " + "\ud83d\ude42".encode("utf-8", "surrogatepass"))
    done = run("train", "cesu.txt", "--recipe", "nanogpt-cpu", "--out", "run")
    assert done.code == 3, done
    assert "cesu.txt, byte 6 (0xed): not UTF-8" in done.err
    assert not (here / "run").exists()
