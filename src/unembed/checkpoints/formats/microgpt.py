"""Reads the .bin files of microGPT's family (ANDREA among them): a step, a count, weights, and Adam's two moments.

The file says how many numbers it holds and not what they are, so the shape has to be given (`--like PRESET`). Order of the
tensors: token table, position table, head, then per layer q, k, v, o, up, down; no norms have weights, nothing has a bias.
That ANDREA's engine keeps microGPT's order is an assumption; whoever loads such a file says so (`ORDER_NOTE`). Next to
read: raw_numbers.py, which maps the numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from unembed.checkpoints.formats.raw_numbers import map_float32, read_integers
from unembed.errors import CheckpointError

HEADER_BYTES = 8
ORDER_NOTE = "the order of its tensors is assumed to be microGPT's: the file itself does not name them"
_KINDS = ("q", "k", "v", "o", "up", "down")


@dataclass(frozen=True, slots=True)
class MicroGptShape:
    """What has to be known beside the file. The MLP is `d_mlp` wide."""

    vocab_size: int
    d_model: int
    context_length: int
    n_layers: int
    d_mlp: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape [out, in] of each tensor in the file's order."""
        d, wide = self.d_model, self.d_mlp
        of_layer = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "up": (wide, d), "down": (d, wide)}
        tables: dict[str, tuple[int, ...]] = {
            "token_table": (self.vocab_size, d),
            "position_table": (self.context_length, d),
            "head": (self.vocab_size, d),
        }
        return tables | {f"layers.{layer}.{kind}": of_layer[kind] for layer in range(self.n_layers) for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class MicroGptFile:
    """A checked file: the training step it was written at, its tensors by name, and whether Adam's moments follow them."""

    path: Path
    step: int
    tensors: Mapping[str, Tensor]
    has_moments: bool


def read_count(path: Path) -> tuple[int, int]:
    """Reads the step and the number of weights, and holds the number against the file's size.

    The size is that of the weights alone, or of the weights with both moments. Raises: CheckpointError otherwise.
    """
    (step, count), size = read_integers(path, HEADER_BYTES // 4, "microGPT")
    alone, with_moments = HEADER_BYTES + 4 * count, HEADER_BYTES + 12 * count
    if step < 0 or count <= 0 or size not in (alone, with_moments):
        raise CheckpointError(
            f"{path}: its first numbers are step {step:,} and {count:,} weights, which imply {with_moments:,} bytes with "
            f"Adam's moments or {alone:,} without, but it has {size:,}. It was cut short, or is no microGPT file."
        )
    return step, count


def read_microgpt(path: Path, shape: MicroGptShape) -> MicroGptFile:
    """Maps a file's weights by name; pages are read when they are first touched, and writing changes no file.

    Raises: CheckpointError if the file's size and count contradict each other, or the shape has another count.
    """
    step, count = read_count(path)
    shapes = shape.shapes()
    expected = sum(math.prod(one) for one in shapes.values())
    if count != expected:
        raise CheckpointError(
            f"{path}: holds {count:,} weights, but the shape given ({shape.n_layers} layers of width {shape.d_model}, MLP "
            f"{shape.d_mlp}, vocabulary {shape.vocab_size:,}, context {shape.context_length:,}) has {expected:,}. Name "
            "another preset."
        )
    has_moments = path.stat().st_size > HEADER_BYTES + 4 * count
    return MicroGptFile(path, step, map_float32(path, shapes, start=HEADER_BYTES), has_moments)
