"""A lens's file: whose it is, what it is refused for, and that it comes back as it was."""

import json

import pytest
import torch

from oracles.specs import base
from small import small_model
from unembed.checkpoints.formats.safetensors import read_header
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.errors import CheckpointError, UnsafeError
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_file import fingerprint_of, load_lens, save_lens
from unembed.tokenizers.words import WordTokenizer

WORDS = tuple("abcdefghijkl")


@pytest.fixture
def model():
    made = small_model(base(2), dtype=torch.float32)
    made.tokenizer = WordTokenizer(WORDS)
    return made


@pytest.fixture
def lens(model, tmp_path, generator):
    translators = Translators(
        torch.randn(2, 12, 12, generator=generator), torch.randn(2, 12, generator=generator), {"a": [1, 2.5]}
    )
    save_lens(tmp_path / "lens.safetensors", translators, fingerprint_of(model))
    return tmp_path / "lens.safetensors", translators


def test_a_lens_comes_back_as_it_was_and_is_the_same_bytes_again(lens, model, tmp_path):
    path, translators = lens
    found = load_lens(path, model)
    assert torch.equal(found.weight, translators.weight)
    assert torch.equal(found.bias, translators.bias)
    assert found.about == {"a": [1, 2.5]}
    save_lens(tmp_path / "again", found, fingerprint_of(model))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    header = read_header(path)
    assert header.metadata["format"] == "pt"
    assert len(header.metadata["model_sha256"]) == len(header.metadata["tokenizer_sha256"]) == 64


def test_one_bit_of_one_weight_makes_another_model(lens, model):
    path, _ = lens
    weight = model.blocks[1].mlp.down.weight
    with torch.no_grad():
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    with pytest.raises(
        CheckpointError, match=r"lens.safetensors: was tuned for a model with other weights: theirs begin"
    ):
        load_lens(path, model)


def test_another_tokenizer_makes_another_model(lens, model):
    path, _ = lens
    model.tokenizer = WordTokenizer(WORDS[::-1])
    with pytest.raises(
        CheckpointError, match=r"with other tokenizer: theirs begin with \w{12}, this model's with \w{12}"
    ):
        load_lens(path, model)
    model.tokenizer = None
    with pytest.raises(CheckpointError, match=r"this model's with nothing"):
        load_lens(path, model)


def test_a_half_precision_model_is_the_same_model_in_float32():
    model = small_model(base(2), dtype=torch.bfloat16)
    before = fingerprint_of(model)
    assert fingerprint_of(model.float()) == before


def stored(path, model, tensors, **metadata):
    whose = {**fingerprint_of(model), "kind": "unembed tuned lens 1", "about": "{}"} | metadata
    path.write_bytes(b"".join(encode_tensors(tensors, label="x", metadata=whose)))
    return path


def test_what_is_no_lens_is_refused(model, tmp_path):
    good = {"weight": torch.zeros(2, 12, 12), "bias": torch.zeros(2, 12)}
    with pytest.raises(
        CheckpointError, match=r"nothing.safetensors: no such file; `unembed tune-lens MODEL TEXT --out"
    ):
        load_lens(tmp_path / "nothing.safetensors", model)
    for tensors, metadata, says in (
        (good, {"kind": "something"}, "is no tuned lens of this version: its header says 'something', expected"),
        (good, {"about": "{"}, "what its header says of its making is no JSON"),
        (good, {"about": "[]"}, "what its header says of its making is no object"),
        ({**good, "weight": torch.zeros(2, 12, 11)}, {}, r"tensor 'weight' is \(2, 12, 11\), expected \(2, 12, 12\)"),
        ({"bias": good["bias"]}, {}, r"tensor 'weight' is None, expected \(2, 12, 12\)"),
        ({**good, "more": torch.zeros(1)}, {}, r"tensor 'more' is \(1,\), expected None"),
        ({**good, "bias": torch.full((2, 12), torch.nan)}, {}, "tensor 'bias' holds what is no float32 number"),
        ({**good, "bias": torch.zeros(2, 12).double()}, {}, "tensor 'bias' holds what is no float32 number"),
    ):
        with pytest.raises(CheckpointError, match=says):
            load_lens(stored(tmp_path / "odd", model, tensors, **metadata), model)


def test_a_pickle_under_its_name_is_not_opened(model, tmp_path):
    torch.save({"weight": torch.zeros(1)}, tmp_path / "lens.safetensors")
    with pytest.raises(UnsafeError):
        load_lens(tmp_path / "lens.safetensors", model)


def test_metadata_stands_in_the_header_in_one_order():
    tensors = {"a": torch.zeros(2)}
    made = b"".join(encode_tensors(tensors, label="x", metadata={"z": "1", "b": "2"}))
    header = json.loads(made[8 : 8 + int.from_bytes(made[:8], "little")])
    assert list(header["__metadata__"].items()) == [("format", "pt"), ("b", "2"), ("z", "1")]
    assert b"".join(encode_tensors(tensors, label="x")) == b"".join(encode_tensors(tensors, label="x", metadata={}))
