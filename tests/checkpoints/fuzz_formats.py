"""The formats that are fuzzed: small valid files of each, and what reads such a file to the last number."""

import io
import json
import struct
from pathlib import Path

import numpy as np
import torch

from checkpoints import gguf_bytes as raw
from checkpoints.fuzz import Format
from unembed.checkpoints.foreign.huggingface import INDEX, read_weights
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.llama2c import read_llama2c
from unembed.checkpoints.formats.microgpt import MicroGptShape, read_microgpt
from unembed.checkpoints.formats.safetensors import read_tensors
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.formats.torch_files import read_torch
from unembed.errors import TokenizerError
from unembed.tokenizers import files, proto
from unembed.tokenizers.gguf_vocabulary import read_vocabulary
from unembed.tokenizers.training import train_bpe, train_unigram

TEXT = "the cat sat on the mat. el niño comió año tras año. 깰 때 깨다 " * 4
SHAPE = MicroGptShape(vocab_size=3, d_model=2, context_length=4, n_layers=1, d_mlp=8)


def _tensors() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "embed.table": torch.randn(8, 4, generator=draw),
        "blocks.0.w": torch.randn(4, 4, generator=draw).half(),
        "ids": torch.arange(5),
        "empty": torch.zeros(0, 3),
    }


def _touch(tensors: dict[str, torch.Tensor]) -> None:
    for tensor in tensors.values():
        tensor.double().sum() if tensor.numel() else None


def _read_gguf(path: Path) -> None:
    found = read_gguf(path)
    _touch({name: found.tensor(name) for name in found.tensors})


def _gguf(folder: Path) -> list[bytes]:
    keys = [raw.key("general.architecture", raw.STRING, "llama"), raw.key("general.alignment", raw.U32, 32)]
    keys += [
        raw.key("a", raw.ARRAY, (raw.STRING, ["the", "cat", "깰"])),
        raw.key("b", raw.ARRAY, (raw.F32, [1.0, 2.0])),
    ]
    keys += [raw.key("c", raw.BOOL, True), raw.key("d", raw.ARRAY, (raw.ARRAY, [(raw.U8, [1, 2]), (raw.I64, [3])]))]
    blocks = np.random.default_rng(0).integers(0, 256, 352, dtype=np.uint8).tobytes()
    infos = [
        raw.info("x", [4, 2], 0, 0),
        raw.info("q", [64], 3, 32),
        raw.info("k", [256], 14, 96),
        raw.info("h", [5], 1, 320),
    ]
    return [
        raw.whole(keys, infos, blocks[:330]),
        raw.whole(keys[:1], infos[:1], blocks[:32], version=2),
        raw.whole(keys, []),
    ]


def _read_gguf_vocabulary(path: Path) -> None:
    tokenizer = read_vocabulary(read_gguf(path).metadata, where=str(path)).tokenizer
    _use(tokenizer)


def _use(tokenizer: object) -> None:
    """Encodes and decodes; a text that a broken vocabulary cannot write is its right to refuse."""
    try:
        ids = tokenizer.encode("the cat 깰 12 </s>").ids
        tokenizer.decode(ids)
    except TokenizerError:
        pass
    tokenizer.token_text(0)


def _gguf_vocabularies(folder: Path) -> list[bytes]:
    def keys(values: dict[str, tuple[int, object]]) -> list[bytes]:
        return [raw.key(f"tokenizer.ggml.{name}", kind, value) for name, (kind, value) in values.items()]

    model = train_bpe(TEXT, vocab_size=270).to_dict()["engine"]["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), "<end>"]
    byte_level = {
        "model": (raw.STRING, "gpt2"),
        "pre": (raw.STRING, "gpt-2"),
        "eos_token_id": (raw.U32, len(tokens) - 1),
        "add_bos_token": (raw.BOOL, False),
        "merges": (raw.ARRAY, (raw.STRING, [" ".join(pair) for pair in model["merges"]])),
        "token_type": (raw.ARRAY, (raw.I32, [1] * (len(tokens) - 1) + [3])),
        "tokens": (raw.ARRAY, (raw.STRING, tokens)),
    }
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "t",
        "h",
        "e",
        "th",
        "the",
        "▁the",
    ]
    pieces = {
        "model": (raw.STRING, "llama"),
        "bos_token_id": (raw.U32, 1),
        "unknown_token_id": (raw.U32, 0),
        "scores": (raw.ARRAY, (raw.F32, [float(-i) for i in range(len(texts))])),
        "token_type": (raw.ARRAY, (raw.I32, [2, 3, 3, *[6] * 256, *[1] * (len(texts) - 259)])),
        "tokens": (raw.ARRAY, (raw.STRING, texts)),
    }
    return [raw.whole(keys(byte_level), []), raw.whole(keys(pieces), [])]


def _index(folder: Path) -> list[bytes]:
    tensors = _tensors()
    weight_map = {}
    for number, name in enumerate(tensors):
        file = f"model-{number % 2}.safetensors"
        weight_map[name] = file
    for file in set(weight_map.values()):
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        (folder / file).write_bytes(b"".join(encode_tensors(part, label="seed")))
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=1).encode()]


def _torch(folder: Path) -> list[bytes]:
    found = []
    for given in (_tensors(), {"model": _tensors(), "model_args": {"n_layer": 2, "bias": False}, "iter_num": 3}):
        buffer = io.BytesIO()
        torch.save(given, buffer)
        found.append(buffer.getvalue())
    return found


def _read_torch(path: Path) -> None:
    found = read_torch(path)
    _touch(dict(found.tensors))
    str(found.others)


def _llama2c(folder: Path) -> list[bytes]:
    floats = np.arange(5 * 8 + 2 * (16 + 128 + 64 + 36 * 8) + 8 + 12, dtype="<f4").tobytes()
    untied = np.arange(5 * 8, dtype="<f4").tobytes()
    return [
        struct.pack("<7i", 8, 12, 2, 2, 1, 5, 3) + floats,
        struct.pack("<7i", 8, 12, 2, 2, 1, -5, 3) + floats + untied,
    ]


def _microgpt(folder: Path) -> list[bytes]:
    n = 3 * 2 * 2 + 4 * 2 + 4 * 4 + 2 * 16
    return [struct.pack("<2i", 7, n) + np.arange(times * n, dtype="<f4").tobytes() for times in (1, 3)]


def _llama2c_vocabulary(folder: Path) -> list[bytes]:
    texts = [
        "<unk>",
        "\n<s>\n",
        "\n</s>\n",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        " ",
        "t",
        "h",
        "e",
        "th",
        "the",
        " the",
    ]
    entries = [struct.pack("<fi", float(-i), len(text.encode())) + text.encode() for i, text in enumerate(texts)]
    return [struct.pack("<i", 8) + b"".join(entries)]


def _piece_model(folder: Path) -> list[bytes]:
    pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    ]
    pieces += [(text, -float(i), 1) for i, text in enumerate(["▁", "t", "h", "e", "th", "the", "▁the", "c", "a"])]
    kinds = (proto.BPE, proto.UNIGRAM)
    return [
        proto.write_model(proto.PieceModel(pieces=pieces, model_type=kind, removes_extra_spaces=False))
        for kind in kinds
    ]


def _tokenizer_json(folder: Path) -> list[bytes]:
    ours = [train_bpe(TEXT, vocab_size=265), train_unigram(TEXT, vocab_size=275)]
    dumped = [tokenizer.to_dict() for tokenizer in ours]
    # our own form, and the tokenizers library's
    return [json.dumps(one, ensure_ascii=False).encode() for values in dumped for one in (values, values["engine"])]


FORMATS = {
    "gguf": Format("m.gguf", _gguf, _read_gguf),
    "gguf vocabulary": Format("m.gguf", _gguf_vocabularies, _read_gguf_vocabulary),
    "safetensors": Format(
        "m.safetensors",
        lambda folder: [b"".join(encode_tensors(_tensors(), label="seed"))],
        lambda path: _touch(read_tensors(path)),
    ),
    "safetensors index": Format(INDEX, _index, lambda path: _touch(read_weights(path.parent)), is_text=True),
    "torch": Format("m.pt", _torch, _read_torch),
    "llama2c": Format("m.bin", _llama2c, lambda path: _touch(dict(read_llama2c(path).tensors))),
    "microgpt": Format("m.bin", _microgpt, lambda path: _touch(dict(read_microgpt(path, SHAPE).tensors))),
    "llama2c vocabulary": Format("tok.bin", _llama2c_vocabulary, lambda path: _use(files.load(path))),
    "sentencepiece model": Format("tokenizer.model", _piece_model, lambda path: _use(files.load(path))),
    "tokenizer.json": Format("tokenizer.json", _tokenizer_json, lambda path: _use(files.load(path)), is_text=True),
}
