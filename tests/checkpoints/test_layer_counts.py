"""Numbers of layers that a file does not hold (A32), refused before anything is made for each of them, in every format;
and other numbers and words of a GGUF that once ended in a crash."""

import json
import resource
import struct
import tracemalloc

import pytest
import torch

from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.convert import write_model
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.inspect import inspect
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
    block__mlp__activation="gelu_tanh",
)
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
LLAMA = changed(
    base(),
    block__attention__position={
        "type": "rotary",
        "theta": 10_000.0,
        "pairing": "half",
        "fraction": 1.0,
        "scaling": None,
    },
    block__attention__score_scale=6**-0.5,
    block__attention__n_heads=4,
    block__attention__n_kv_heads=2,
    block__norm=RMS,
    block__mlp={"type": "gated", "d_mlp": 20, "activation": "silu", "has_bias": False},
    final_norm=RMS,
)


def gguf(folder, plain, n):
    gguf_export.write(small_model(plain, dtype=torch.float32), folder / "plain.gguf", name="m")
    file = read_gguf(folder / "plain.gguf")
    key = f"{file.metadata['general.architecture']}.block_count"
    write_gguf(folder / "m.gguf", dict(file.metadata) | {key: n}, {name: file.tensor(name) for name in file.tensors})
    return folder / "m.gguf"


def nanogpt(folder, n):
    args = {"n_layer": n, "n_head": 2, "n_embd": 12, "block_size": 12, "bias": False, "vocab_size": 17}
    names = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
    state = {f"transformer.h.0.{name}.weight": torch.ones(2) for name in names}
    torch.save({"model": state, "model_args": args}, folder / "ckpt.pt")
    return folder / "ckpt.pt"


def huggingface(folder, n):
    model = small_model(GPT2, dtype=torch.float32)
    write_model(model, folder / "hf", to="hf", source="m")
    config = json.loads((folder / "hf" / "config.json").read_text())
    (folder / "hf" / "config.json").write_text(json.dumps(config | {"n_layer": n}))
    return folder / "hf"


FILES = {
    "gguf llama": (lambda folder, n: gguf(folder, LLAMA, n), "block_count"),
    "gguf gpt2": (lambda folder, n: gguf(folder, GPT2, n), "block_count"),
    "nanogpt": (nanogpt, "n_layer"),
    "huggingface": (huggingface, "n_layer"),
}


@pytest.mark.parametrize("n", [10_000, 50_000, 2**32 - 1, 2**40])
@pytest.mark.parametrize("name", FILES)
def test_more_layers_than_a_file_holds_are_refused_at_once(tmp_path, name, n):
    make, key = FILES[name]
    path = make(tmp_path, n)
    message = (
        rf"{key} is 10000, but there are \d+ tensors, and each layer has some"
        if n == 10_000
        else (rf"{key} is {n}; models of more than 10,000 layers are not read")
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert inspect(path).problems == [str(caught.value)]
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 1  # 10,000 blocks take 4 s, more take gigabytes
    assert after.ru_maxrss - before.ru_maxrss < 200 * 1024


def test_a_llama2c_file_of_many_layers_of_one_number_is_refused_before_they_are_made(tmp_path):
    n = 30_000
    numbers = {"dim": 2, "hidden_dim": 1, "n_layers": n, "n_heads": 1, "n_kv_heads": 1, "vocab_size": 1, "seq_len": 1}
    (tmp_path / "m.bin").write_bytes(struct.pack("<7i", *numbers.values()) + bytes(4 * (2 + 26 * n + 2 + 1 + 1)))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="n_layers is 30000; models of more than 10,000 layers are not read"):
            load(tmp_path / "m.bin")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * 2**20  # 270,000 tensors are objects of 40 MB and more


@pytest.mark.parametrize("name", FILES)
def test_one_layer_too_many_names_the_tensors_that_are_missing(tmp_path, name):
    make, _ = FILES[name]
    with pytest.raises(CheckpointError, match=r"\d+ tensors? (is|are) missing"):
        load(make(tmp_path, 3))


@pytest.mark.parametrize(
    ("plain", "key", "value", "message"),
    [
        (GPT2, "gpt2.embedding_length", 1, "embedding_length is 1, which 2 heads .* cannot share equally"),
        (GPT2, "gpt2.attention.head_count", 2**32 - 1, "which 4294967295 heads .* cannot share equally"),
        (LLAMA, "llama.attention.head_count", 5, "embedding_length is 12, which 5 heads .* cannot share equally"),
    ],
)
def test_heads_that_cannot_share_the_width_are_refused(tmp_path, plain, key, value, message):
    path = gguf(tmp_path, plain, 2)
    file = read_gguf(path)
    metadata = dict(file.metadata) | {key: value}
    metadata.pop("llama.attention.key_length", None)
    write_gguf(tmp_path / "new.gguf", metadata, {name: file.tensor(name) for name in file.tensors})
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "new.gguf")


def test_a_kind_of_tokenizer_that_is_no_word_is_told_and_the_model_loads(tmp_path):
    file = read_gguf(gguf(tmp_path, GPT2, 2))
    metadata = dict(file.metadata) | {"tokenizer.ggml.model": [1, 2]}
    write_gguf(tmp_path / "new.gguf", metadata, {name: file.tensor(name) for name in file.tensors})
    model = load(tmp_path / "new.gguf")
    assert model.tokenizer is None
    assert "it holds no tokenizer" in model.load_report.warnings[0]
