"""Numbers of layers that a file does not hold (A32): refused before anything is made for each of them, in every format."""

import json
import resource

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


@pytest.mark.parametrize("name", FILES)
def test_one_layer_too_many_names_the_tensors_that_are_missing(tmp_path, name):
    make, _ = FILES[name]
    with pytest.raises(CheckpointError, match=r"\d+ tensors? (is|are) missing"):
        load(make(tmp_path, 3))
