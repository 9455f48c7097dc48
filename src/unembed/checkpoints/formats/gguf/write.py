"""Writes .gguf files, version 3: keys and values, then tensors as F32, F16 or BF16, each at a multiple of 32 bytes.

The counterpart of read.py, for models that leave for other programs. Tensors are stored in the type they come in and
stream to the disk one by one; the file appears under its name when it is whole. Before it: read.py. Next to read:
../../foreign/gguf.py, for which such a file is a model.

Source: docs/gguf.md in github.com/ggml-org/ggml.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unembed.checkpoints.files import DISK, FileLayer, replace_file
from unembed.checkpoints.formats.gguf.quants import NUMBER_OF, TYPES
from unembed.checkpoints.formats.gguf.read import DEFAULT_ALIGNMENT, MAGIC
from unembed.checkpoints.formats.gguf.values import ARRAY, BOOL, NUMBERS, STRING
from unembed.checkpoints.formats.safetensors import short
from unembed.errors import CheckpointError

VERSION = 3
_NUMBER_OF_DTYPE = {kind.dtype: NUMBER_OF[kind.name] for kind in TYPES.values() if kind.dtype is not None}
_NUMBER_OF_ARRAY = {np.dtype(letter): kind for kind, letter in NUMBERS.items() if kind != BOOL} | {np.dtype("?"): BOOL}
_UINT32, _INT32, _FLOAT32, _UINT64, _INT64 = 4, 5, 6, 10, 11
# llama.cpp keeps names in 64 bytes, the last one a zero.
_NAME_LIMIT_BYTES, _MAX_DIMENSIONS = 63, 4

Value = bool | int | float | str | Sequence[str] | Sequence[int] | Sequence[float] | np.ndarray[Any, Any]


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Tensor], *, files: FileLayer = DISK
) -> None:
    """Writes a file that `read_gguf` and llama.cpp's tools read, replacing one of the same name in one instant.

    An int is stored as uint32 (wider, or signed, where it must be), a float as float32; a list of them as int32 or float32;
    a NumPy array in its own type. Everything that can be refused is refused before the first byte is written.

    Raises: CheckpointError for a value, name or tensor that the format does not have; ResourceError when the disk is full.
    """
    chunks = _chunks(path, metadata, tensors)
    replace_file(path, chunks, files=files, kind=CheckpointError)


def _chunks(path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        head += [_text(path, key), _value(path, key, value)]
    offset = 0
    for name, tensor in tensors.items():
        if (reason := _why_not_storable(name, tensor)) is not None:
            raise CheckpointError(f"{path}: tensor {short(name)} cannot be stored: {reason}")
        sizes = tuple(reversed(tensor.shape))
        number = _NUMBER_OF_DTYPE[tensor.dtype]
        head += [_text(path, name), struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, offset)]
        offset += _padded(tensor.numel() * tensor.element_size())
    start = b"".join(head)
    return _pieces(start + bytes(_padded(len(start)) - len(start)), list(tensors.values()))


def _pieces(start: bytes, tensors: list[Tensor]) -> Iterator[bytes | memoryview]:
    yield start
    for tensor in tensors:
        if tensor.numel():
            # a lazily negated view has other bytes than values
            flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            yield flat.numpy().data
            yield bytes(_padded(flat.numel()) - flat.numel())


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _why_not_storable(name: str, tensor: Tensor) -> str | None:
    if len(name.encode("utf-8", "surrogatepass")) > _NAME_LIMIT_BYTES:
        return f"its name has more than {_NAME_LIMIT_BYTES} bytes"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "it is sparse or quantised; make it dense first"
    if tensor.device.type == "meta":
        return "it has a shape but no data (device meta)"
    if tensor.dtype not in _NUMBER_OF_DTYPE:
        return f"it is {tensor.dtype}; F32, F16 and BF16 are written. Convert it first"
    if tensor.ndim > _MAX_DIMENSIONS:
        return f"it has {tensor.ndim} dimensions; the format has at most {_MAX_DIMENSIONS}"
    return None


def _text(path: Path, text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{path}: {short(text)} cannot be stored: it is not valid Unicode") from error
    return struct.pack("<Q", len(data)) + data


def _value(path: Path, key: str, value: object) -> bytes:
    """A value with its type before it."""
    match value:
        case str():
            return struct.pack("<I", STRING) + _text(path, value)
        case bool() | int() | float():
            kind = _kind_of(path, key, value)
            return struct.pack(f"<I{NUMBERS[kind]}", kind, value)
        case np.ndarray():
            if value.ndim != 1 or value.dtype not in _NUMBER_OF_ARRAY:
                raise CheckpointError(
                    f"{path}: key {short(key)}: a {value.dtype} array of {value.ndim} dimensions is not stored"
                )
            kind = _NUMBER_OF_ARRAY[value.dtype]
            return struct.pack("<IIQ", ARRAY, kind, len(value)) + value.astype(value.dtype.newbyteorder("<")).tobytes()
        case list() | tuple() if all(isinstance(item, str) for item in value):
            return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(_text(path, str(item)) for item in value)
        case list() | tuple() if all(type(item) is int for item in value):
            if any(not -(2**31) <= item < 2**31 for item in value):
                raise CheckpointError(
                    f"{path}: key {short(key)}: a number of the list does not fit int32; give a NumPy array"
                )
            return _value(path, key, np.array(value, dtype=np.int32))
        case list() | tuple() if all(type(item) in (int, float) for item in value):
            return _value(path, key, np.array(value, dtype=np.float32))
    raise CheckpointError(
        f"{path}: key {short(key)}: a {type(value).__name__} (or what is in it) is no value of the format"
    )


def _kind_of(path: Path, key: str, value: int | float) -> int:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return _FLOAT32
    for kind, low, high in ((_UINT32, 0, 2**32), (_INT32, -(2**31), 0), (_UINT64, 0, 2**64), (_INT64, -(2**63), 0)):
        if low <= value < high:
            return kind
    raise CheckpointError(f"{path}: key {short(key)}: {value} has more than 64 bits")
