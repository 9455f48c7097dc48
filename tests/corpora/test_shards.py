"""Shards: the ids come back, and damage is noticed."""

import json

import numpy as np
import pytest

from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.errors import CorpusError


def write(folder, **splits):
    with ShardWriter(folder, vocab_size=1000, tokenizer="f" * 64) as writer:
        for name, ids in splits.items():
            writer.append(name, np.array(ids))
    return TokenShards.open(folder)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_property_what_was_appended_is_read_in_the_narrowest_type(tmp_path, vocab_size, dtype):
    ids = np.array([0, 1, vocab_size - 1])
    with ShardWriter(tmp_path / "shards", vocab_size=vocab_size, tokenizer="abc") as writer:
        writer.append("train", ids[:1], n_characters=3, n_bytes=4)
        writer.append("train", ids[1:], n_characters=1, n_bytes=1, n_documents=1)
        writer.append("val", ids[:0])
    shards = TokenShards.open(tmp_path / "shards")
    assert shards.train.ids.dtype == dtype
    assert shards.train[:].tolist() == ids.tolist()
    assert (len(shards.train), len(shards.val)) == (3, 0)
    assert (shards.train.n_characters, shards.train.n_bytes, shards.train.n_documents) == (4, 5, 1)
    assert (shards.manifest.tokenizer, shards.manifest.vocab_size) == ("abc", vocab_size)
    assert [p.name for p in tmp_path.iterdir()] == ["shards"]


def test_an_error_while_writing_leaves_nothing(tmp_path):
    with pytest.raises(CorpusError), ShardWriter(tmp_path / "s", vocab_size=9, tokenizer="") as writer:
        writer.append("train", np.arange(10))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "train.bin").write_bytes(b"\0\0\0\0\1\0"), "sha256 is .* expected .* Encode the text again"),
        (lambda f: (f / "train.bin").write_bytes(b"\0"), "train.bin: 1 bytes, expected 6 bytes of 3 tokens in uint16"),
        (lambda f: (f / "train.bin").unlink(), "train.bin: absent, expected 6 bytes"),
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json there, so this is no folder of token shards"),
        (lambda f: (f / "manifest.json").write_text("{"), "not a manifest of token shards"),
    ],
)
def test_message_for_damaged_shards(tmp_path, damage, message):
    write(tmp_path / "s", train=[1, 2, 3])
    damage(tmp_path / "s")
    with pytest.raises(CorpusError, match=message):
        TokenShards.open(tmp_path / "s")


def test_a_manifest_cannot_name_files_elsewhere(tmp_path):
    write(tmp_path / "s", train=[1, 2, 3])
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    manifest["splits"]["train"]["file"] = "../other.bin"
    (tmp_path / "s" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorpusError, match="a manifest names files of its own folder"):
        TokenShards.open(tmp_path / "s")


def test_messages_of_the_writer_and_of_missing_splits(tmp_path):
    shards = write(tmp_path / "s", train=[1, 2, 3])
    with pytest.raises(CorpusError, match="there is no split 'val'; it has train"):
        shards.val  # noqa: B018
    with pytest.raises(CorpusError, match="exists already"):
        ShardWriter(tmp_path / "s", vocab_size=9, tokenizer="")
    with (
        pytest.raises(CorpusError, match="ids from 3 to 9 were to be written for a vocabulary of 9"),
        ShardWriter(tmp_path / "t", vocab_size=9, tokenizer="") as writer,
    ):
        writer.append("train", np.array([3, 9]))
