"""Float32 numbers one after the other in a file, as named tensors: for formats that have neither names nor lengths.

The two readers of such formats, llama2c.py and microgpt.py, know the shapes and check the file's size against what its
first whole numbers say. Of the tensors nothing is read here: the file is mapped, and pages are read when first touched.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unembed.errors import CheckpointError


def read_integers(path: Path, count: int, program: str) -> tuple[tuple[int, ...], int]:
    """The whole numbers (int32) that a file of this program begins with, and the file's size in bytes.

    Raises: CheckpointError where it cannot be read or is shorter.
    """
    n_bytes = 4 * count
    try:
        with path.open("rb") as file:
            start = file.read(n_bytes)
            size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    if len(start) < n_bytes:
        raise CheckpointError(f"{path}: has {size} bytes; a {program} file begins with {n_bytes} bytes of numbers.")
    return struct.unpack(f"<{count}i", start), size


def map_float32(path: Path, shapes: Mapping[str, tuple[int, ...]], *, start: int) -> dict[str, Tensor]:
    """Maps tensors that follow each other from byte `start` (a multiple of 4), privately: writing changes no file.

    Raises: CheckpointError if the file cannot be mapped, or became shorter than the tensors since it was measured.
    """
    counts = {name: math.prod(shape) for name, shape in shapes.items()}
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be mapped into memory: {error}") from error
    if len(data) < start + 4 * sum(counts.values()):
        raise CheckpointError(f"{path}: became shorter while it was read; is another program writing it?")
    tensors: dict[str, Tensor] = {}
    at = start
    for name, shape in shapes.items():
        # torch.frombuffer takes no empty slice
        numbers = np.frombuffer(data, dtype=np.float32, count=counts[name], offset=at)
        tensors[name] = torch.from_numpy(numbers).reshape(shape)
        at += numbers.nbytes
    return tensors
