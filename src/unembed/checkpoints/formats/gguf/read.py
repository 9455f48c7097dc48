"""Reads .gguf files: a list of keys and values, a list of tensors, and the tensors' bytes, each at its aligned place.

Everything the file says about itself is held against the file's size before anything is allocated by it: counts, the
lengths of texts and arrays, shapes, offsets. Tensors come out as float32. Next to read: values.py, which walks over the
bytes of keys and values; quants.py, which dequantises; write.py, which writes such files.

Source: docs/gguf.md in github.com/ggml-org/ggml.
"""

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor

from unembed.checkpoints.formats.gguf.quants import BY_NAME, OTHER_NAMES, TYPES, dequantise
from unembed.checkpoints.formats.gguf.values import Walk
from unembed.checkpoints.formats.pickles import refuse_pickle
from unembed.checkpoints.formats.safetensors import short
from unembed.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
# What a tensor's entry takes as Python objects, counted like the texts (OBJECT_LIMIT_BYTES).
_TENSOR_COST = 1024
_MAX_DIMENSIONS = 4


def is_gguf(path: Path) -> bool:
    """Whether a file is named as a GGUF file or begins as one."""
    if not path.is_file():
        return False
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """What a file says of one tensor, found to be true: shape in PyTorch's order, bytes [offset, offset + nbytes)."""

    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A checked file: its keys and values, its tensors by name in the file's order, and its bytes, mapped.

    A value is a bool, int, float or str; an array is a list of str, a list of such lists, or a NumPy array of numbers.
    """

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    _bytes: memoryview = field(repr=False)

    def tensor(self, name: str) -> Float32[Tensor, "..."]:
        """Gives a tensor as float32; F32 ones are the mapped bytes themselves (privately: writing changes no file).

        Raises: CheckpointError if the file has no such tensor.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: there is no tensor {short(name)} among its {len(self.tensors)}.")
        info = self.tensors[name]
        data, kind = self._bytes[info.offset : info.offset + info.nbytes], BY_NAME[info.type]
        made = dequantise(data, kind, math.prod(info.shape)).reshape(info.shape)
        if kind.dtype is not torch.float32:
            self._let_go(info)
        return made

    def _let_go(self, info: GgufTensor) -> None:
        """Gives back the memory of a tensor's pages: its numbers lie elsewhere now, and the file can be read again."""
        mapped = self._bytes.obj
        begin = -(-info.offset // mmap.PAGESIZE) * mmap.PAGESIZE  # pages that it shares with a neighbour are kept
        length = (info.offset + info.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - begin
        if isinstance(mapped, mmap.mmap) and length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED, begin, length)


def read_gguf(path: Path) -> GgufFile:
    """Maps a file and checks all that it says about itself; no tensor's bytes are read.

    True of a file that is returned: names and keys are there once, each tensor's bytes lie inside the file at their aligned
    place, none overlap, and nothing but padding lies between or after them.

    Raises: CheckpointError naming file, tensor or key, and reason; UnsafeError if it is a pickle under another name.
    """
    refuse_pickle(path)
    try:
        with path.open("rb") as file:
            # private, so that tensors can be views that a caller may write to
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except ValueError as error:
        raise CheckpointError(f"{path}: is empty (0 bytes). Copy or download it again.") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    reader = Walk(path, data)
    version, n_tensors, n_keys = _read_start(reader)
    metadata = _read_metadata(reader, n_keys)
    infos = _read_infos(reader, n_tensors)
    tensors = _place(reader, infos, metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT))
    return GgufFile(path, version, metadata, tensors, data)


def _read_start(reader: Walk) -> tuple[int, int, int]:
    if (magic := bytes(reader.data[:4])) != MAGIC:
        reader.fail(f"its first bytes are {magic!r}, not {MAGIC!r}. It is no GGUF file.")
    reader.at = 4
    version = reader.number("I")
    if version and version & 0xFFFF == 0:
        reader.fail(
            "it is written big-endian; only little-endian files are read. Convert the model again for such machines."
        )
    if version not in VERSIONS:
        reader.fail(f"its version is {version}; versions 2 and 3 are read. Convert the model again with a recent tool.")
    n_tensors, n_keys = reader.numbers("QQ")
    # the least that a key and a tensor take: their lengths, types and offsets
    reader.need(n_keys * 13 + n_tensors * 24, f"a list of {n_keys:,} keys and {n_tensors:,} tensors")
    return version, n_tensors, n_keys


def _read_metadata(reader: Walk, n_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(n_keys):
        reader.where = f"key {index + 1} of {n_keys}"
        key = reader.string()
        reader.where = f"key {short(key)}"
        if key in metadata:
            reader.fail("is given twice. The file is broken or made to deceive.")
        metadata[key] = reader.value(reader.number("I"))
        if key == ALIGNMENT_KEY:
            _check_alignment(reader, metadata[key])
    return metadata


def _check_alignment(reader: Walk, value: Any) -> None:
    if type(value) is not int or value <= 0 or value & (value - 1):
        reader.fail(f"is {str(value)[:40]}; tensors can only be aligned to a power of two. The file is broken.")


def _read_infos(reader: Walk, n_tensors: int) -> dict[str, GgufTensor]:
    """The list of tensors, with offsets that still count from the start of the data."""
    infos: dict[str, GgufTensor] = {}
    for index in range(n_tensors):
        reader.where = f"tensor {index + 1} of {n_tensors}"
        name = reader.string()
        reader.where = f"tensor {short(name)}"
        reader.charge(_TENSOR_COST)
        if name in infos:
            reader.fail("is listed twice. The file is broken or made to deceive.")
        if (n_dimensions := reader.number("I")) > _MAX_DIMENSIONS:
            reader.fail(
                f"has {n_dimensions:,} dimensions; the format has at most {_MAX_DIMENSIONS}. The file is broken."
            )
        *sizes, number, offset = reader.numbers(f"{n_dimensions}QIQ")  # the fastest dimension first
        if number not in TYPES:
            known = ", ".join(BY_NAME)
            reader.fail(
                f"its type is {OTHER_NAMES.get(number, f'number {number}, which the format does not have')}. Types that are "
                f"read: {known}. Convert the model to one of them."
            )
        kind = TYPES[number]
        # a dimension of 0 makes the product small, yet strides are still computed from the others
        if math.prod(max(size, 1) for size in sizes) * 4 >= 2**63:
            reader.fail(f"its shape {'x'.join(map(str, sizes))} is larger than any memory (2**63 bytes).")
        if (sizes[0] if sizes else 1) % kind.numbers:
            reader.fail(
                f"its rows have {sizes[0] if sizes else 1:,} numbers; {kind.name} has blocks of {kind.numbers}."
            )
        n_bytes = math.prod(sizes) // kind.numbers * kind.n_bytes
        infos[name] = GgufTensor(kind.name, tuple(reversed(sizes)), offset, n_bytes)
    return infos


def _place(reader: Walk, infos: dict[str, GgufTensor], alignment: int) -> dict[str, GgufTensor]:
    """The tensors with offsets in the file, after checking that they cover the data once."""

    def aligned(position: int) -> int:
        return -(-position // alignment) * alignment

    start = aligned(reader.at)
    n_data_bytes = max(len(reader.data) - start, 0)
    expected, previous = 0, ""
    for name, info in sorted(infos.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        reader.where = f"tensor {short(name)}"
        end = info.offset + info.nbytes
        if info.offset % alignment:
            reader.fail(f"its offset {info.offset:,} is no multiple of the file's alignment, {alignment:,}.")
        if end > n_data_bytes:
            reader.fail(
                f"its bytes [{info.offset:,}, {end:,}) lie beyond the data, which has {n_data_bytes:,} bytes. The file was "
                "cut short or made by hand; copy or download it again."
            )
        if info.offset < expected:
            reader.fail(f"overlaps with {short(previous)}. The file is broken or made to deceive.")
        if info.offset > aligned(expected):
            reader.fail(
                f"bytes {expected:,} to {info.offset:,} of the data, before it, belong to no tensor. The file is broken or "
                "made to deceive."
            )
        expected, previous = end, name
    if n_data_bytes > aligned(expected):
        reader.where = "the end"
        reader.fail(
            f"{n_data_bytes - expected:,} bytes follow the last tensor's. The file is broken, or two were joined together."
        )
    return {name: GgufTensor(info.type, info.shape, start + info.offset, info.nbytes) for name, info in infos.items()}
