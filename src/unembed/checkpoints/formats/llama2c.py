"""Reads llama2.c's .bin files, version 0: seven whole numbers, then float32 tensors in run.c's order, and nothing else.

The file has no names and no lengths: its size must be exactly what the seven numbers imply, which is also how it is told
from other .bin files. Names given here are those of run.c's struct. Next to read: microgpt.py, a file with even less.

Source: github.com/karpathy/llama2.c, run.c (struct Config, memory_map_weights) and export.py (legacy_export).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from unembed.checkpoints.formats.raw_numbers import map_float32, read_integers
from unembed.errors import CheckpointError

HEADER_BYTES = 28
# Tables of cosines and sines that run.c no longer reads: they follow from the other numbers.
EXCUSED = ("freq_cis_real", "freq_cis_imag")
# Far above any model of this format, and small enough that no product of them takes long to compute.
_LIMIT = 2**24


@dataclass(frozen=True, slots=True)
class Llama2cConfig:
    """The seven numbers. `is_untied` says that the file holds a head of its own (a negative vocabulary size)."""

    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    seq_len: int
    is_untied: bool

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each tensor in the file's order; the first axis of most is the layer."""
        layers, dim, hidden, head = self.n_layers, self.dim, self.hidden_dim, self.dim // self.n_heads
        kv = self.n_kv_heads * head
        shapes: dict[str, tuple[int, ...]] = {
            "token_embedding_table": (self.vocab_size, dim),
            "rms_att_weight": (layers, dim),
            "wq": (layers, dim, dim),
            "wk": (layers, kv, dim),
            "wv": (layers, kv, dim),
            "wo": (layers, dim, dim),
            "rms_ffn_weight": (layers, dim),
            "w1": (layers, hidden, dim),
            "w2": (layers, dim, hidden),
            "w3": (layers, hidden, dim),
            "rms_final_weight": (dim,),
            "freq_cis_real": (self.seq_len, head // 2),
            "freq_cis_imag": (self.seq_len, head // 2),
        }
        return shapes | ({"wcls": (self.vocab_size, dim)} if self.is_untied else {})

    @property
    def file_bytes(self) -> int:
        """How large a file with these numbers is."""
        return HEADER_BYTES + 4 * sum(math.prod(shape) for shape in self.shapes().values())


@dataclass(frozen=True, slots=True)
class Llama2cFile:
    """A checked file: its numbers and its tensors by name, which are views of the mapped bytes."""

    path: Path
    config: Llama2cConfig
    tensors: Mapping[str, Tensor]


def read_config(path: Path) -> Llama2cConfig:
    """Reads the seven numbers and holds them against the file's size.

    Raises: CheckpointError naming what is impossible, or the size that the numbers imply and the size that was found.
    """
    numbers, size = read_integers(path, HEADER_BYTES // 4, "llama2.c")
    dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len = numbers
    config = Llama2cConfig(
        dim, hidden_dim, n_layers, n_heads, n_kv_heads, abs(vocab_size), seq_len, is_untied=vocab_size < 0
    )
    if (reason := _why_impossible(config)) is not None:
        raise CheckpointError(f"{path}: {reason} It is no llama2.c file of version 0.")
    if size != config.file_bytes:
        raise CheckpointError(
            f"{path}: its first numbers (dim {dim}, hidden_dim {hidden_dim}, n_layers {n_layers}, n_heads {n_heads}, "
            f"n_kv_heads {n_kv_heads}, vocab_size {vocab_size}, seq_len {seq_len}) imply {config.file_bytes:,} bytes, but it "
            f"has {size:,}. It was cut short, or is no llama2.c file of version 0."
        )
    return config


def read_llama2c(path: Path) -> Llama2cFile:
    """Maps a file's tensors by name; pages are read when they are first touched, and writing changes no file.

    Raises: as `read_config`.
    """
    config = read_config(path)
    return Llama2cFile(path, config, map_float32(path, config.shapes(), start=HEADER_BYTES))


def _why_impossible(config: Llama2cConfig) -> str | None:
    numbers = {
        "dim": config.dim,
        "hidden_dim": config.hidden_dim,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "vocab_size": config.vocab_size,
        "seq_len": config.seq_len,
    }
    for name, number in numbers.items():
        if not 0 < number <= _LIMIT:
            return f"its {name} is {number}, expected 1 to {_LIMIT:,}."
    if config.dim % config.n_heads or config.n_heads % config.n_kv_heads:
        return f"{config.n_heads} heads do not divide dim {config.dim}, or {config.n_kv_heads} key heads do not divide them."
    if config.dim // config.n_heads % 2:
        return f"its heads are {config.dim // config.n_heads} wide; rotary positions need an even width."
    return None
