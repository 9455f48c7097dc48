"""Reads .safetensors files: a length, a JSON header, and the tensors' bytes one after the other.

A header is a promise by whoever made the file, so `read_header` checks all of it against the file's size before the
safetensors library maps the file and before anything is allocated. Next to read: safetensors_write.py, which writes such
files.

Source: format description in github.com/huggingface/safetensors, README, section "Format".
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unembed.checkpoints.formats.pickles import refuse_pickle
from unembed.errors import CheckpointError
from unembed.places import refuse_special

T = TypeVar("T")

# In the order in which tensors stand in a file: wide ones first, so that each starts at a multiple of its width. The
# order among equally wide ones is the library's, so that both write the same bytes.
DTYPES = {
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F32": torch.float32,
    "U32": torch.uint32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

# Room for 35,000 tensors; a header of this size is checked in under a second and 100 MB. The library stops at 100 MB.
HEADER_LIMIT_BYTES = 4 * 2**20
_ENTRY_LIMIT_BYTES = 4096
METADATA = "__metadata__"

# Names that wrappers put before a parameter's own: torch.compile, FSDP and activation checkpointing at any depth,
# DataParallel around the whole model.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

# A JSON string, and the colon behind it if it is a key; every string is matched, so that one inside another cannot be.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?', re.DOTALL)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=64)]
    data_offsets: tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a header says of one tensor, found to be true: its bytes are [begin, end) of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: its tensors by name, its metadata, and where the data begins in the file."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    data_start: int


def read_header(path: Path, *, limit_bytes: int = HEADER_LIMIT_BYTES) -> Header:
    """Reads a file's header and holds every promise in it against the file's size, allocating nothing for the data.

    True of a header that is returned: each tensor's bytes lie inside the file, number shape x type, and together cover
    the data once: no overlap, no gap, no trailing bytes.

    Raises: CheckpointError naming file, tensor and reason; UnsafeError if the file is a pickle under another name.
    """
    tensors, metadata, data_start, size = _read_promises(path, limit_bytes)
    _check_ranges(path, tensors, size - data_start)
    return Header(tensors=tensors, metadata=metadata, data_start=data_start)


def read_promises(path: Path, *, limit_bytes: int = HEADER_LIMIT_BYTES) -> Header:
    """A file's header as it stands, its promises not held against the data: for looking into a file that is cut short.

    Nothing may be read by it. Raises: CheckpointError where not even the header can be read; UnsafeError.
    """
    tensors, metadata, data_start, _ = _read_promises(path, limit_bytes)
    return Header(tensors=tensors, metadata=metadata, data_start=data_start)


def _read_promises(path: Path, limit_bytes: int) -> tuple[dict[str, TensorInfo], dict[str, str], int, int]:
    refuse_special(path, CheckpointError)
    refuse_pickle(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(9)
            length = int.from_bytes(start[:8], "little")
            if (reason := _why_no_header(start, length, size, limit_bytes)) is not None:
                raise CheckpointError(f"{path}: {reason}")
            file.seek(8)
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    if len(raw) < length:
        raise CheckpointError(f"{path}: became shorter while it was read; is another program writing it?")
    tensors, metadata = _parse(path, raw)
    return tensors, metadata, 8 + length, size


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Maps a file's tensors into memory, by name in sorted order; pages are read when they are first touched.

    The mapping is private: writing into a tensor does not change the file. Names are as in the file (`clean_names`).

    Raises: as `read_header`.
    """
    header = read_header(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in sorted(header.tensors)}
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointError(f"{path}: the safetensors library cannot read it: {error}") from error


def clean_names(tensors: Mapping[str, T]) -> dict[str, T]:
    """Removes what torch.compile, data-parallel and FSDP wrappers put into parameter names.

    `_orig_mod.` and FSDP's names go wherever they stand, `module.` where the name begins with it.

    Raises: CheckpointError if two names become one.

    >>> list(clean_names({"_orig_mod.module.blocks.0._orig_mod.attn.q_proj.weight": torch.ones(1)}))
    ['blocks.0.attn.q_proj.weight']
    """
    cleaned: dict[str, T] = {}
    source: dict[str, str] = {}
    for name, tensor in tensors.items():
        parts = [part for part in name.split(".") if part not in _WRAPPERS]
        while len(parts) > 1 and parts[0] == "module":
            parts = parts[1:]
        clean = ".".join(parts)
        if clean in cleaned:
            raise CheckpointError(
                f"{short(source[clean])} and {short(name)} are both {short(clean)} once their wrappers' names are "
                "removed. Keep one of the two."
            )
        cleaned[clean], source[clean] = tensor, name
    return cleaned


def _why_no_header(start: bytes, length: int, size: int, limit_bytes: int) -> str | None:
    if not size:
        return "is empty (0 bytes). Copy or download it again."
    if size < 9 or len(start) < 9:
        return f"has {size} bytes, too few for a safetensors header. Copy or download it again."
    if length > size - 8:
        return (
            f"its first 8 bytes announce a header of {length:,} bytes, but only {size - 8:,} follow. It was cut short, or "
            "is no safetensors file."
        )
    if length > limit_bytes:
        return (
            f"its header has {length:,} bytes; the limit is {limit_bytes:,}, so that a hostile file cannot fill the memory. "
            "Split a file with so many tensors, or raise limit_bytes of read_header if you trust it."
        )
    if length < 2 or start[8:9] != b"{":
        return f"its header of {length:,} bytes does not begin with '{{'. It is no safetensors file."
    return None


def _parse(path: Path, raw: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    try:
        items = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is not a JSON object of tensors: {error}") from error
    decode_entry = msgspec.json.Decoder(_Entry).decode
    n_keys = len(items)
    metadata: dict[str, str] = {}
    tensors: dict[str, TensorInfo] = {}
    for name, item in items.items():
        try:
            if name == METADATA:
                metadata = msgspec.json.decode(item, type=dict[str, str])
                n_keys += len(metadata)
                continue
            if len(memoryview(item)) > _ENTRY_LIMIT_BYTES:
                raise CheckpointError(
                    f"{path}: tensor {short(name)}: its entry in the header has {len(memoryview(item)):,} bytes; the "
                    f"limit is {_ENTRY_LIMIT_BYTES:,}."
                )
            entry = decode_entry(item)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CheckpointError(f"{path}: tensor {short(name)}: its entry is not understood: {error}") from error
        if entry.dtype not in DTYPES:
            raise CheckpointError(
                f"{path}: tensor {short(name)}: its type {short(entry.dtype)} is not one of {', '.join(DTYPES)}."
            )
        tensors[name] = TensorInfo(entry.dtype, tuple(entry.shape), *entry.data_offsets)
        n_keys += 3
    # A key that stands twice leaves one of its values unchecked; the decoder keeps the last and says nothing.
    if n_keys != (found := sum(map(bool, _STRING.findall(raw)))):
        raise CheckpointError(
            f"{path}: its header has {found:,} keys of which {n_keys:,} differ: a name is given twice."
        )
    return tensors, metadata


def _check_ranges(path: Path, tensors: Mapping[str, TensorInfo], n_data_bytes: int) -> None:
    expected, previous = 0, ""
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if (reason := _why_impossible(info, n_data_bytes)) is not None:
            raise CheckpointError(f"{path}: tensor {short(name)}: {reason}")
        if info.begin < expected:
            raise CheckpointError(
                f"{path}: tensors {short(previous)} and {short(name)} overlap: bytes {info.begin:,} to "
                f"{min(expected, info.end):,} of the data belong to both. The file is broken or made to deceive."
            )
        if info.begin > expected:
            raise CheckpointError(
                f"{path}: tensor {short(name)}: a gap lies before it: bytes {expected:,} to {info.begin:,} of the data "
                "belong to no tensor. The file is broken or made to deceive."
            )
        expected, previous = info.end, name
    if expected < n_data_bytes:
        last = f"tensor {short(previous)}, the last one" if tensors else "a header without tensors"
        raise CheckpointError(
            f"{path}: {n_data_bytes - expected:,} trailing bytes stand after {last}. The file is broken, or two were joined."
        )


def _why_impossible(info: TensorInfo, n_data_bytes: int) -> str | None:
    if info.end < info.begin:
        return f"its bytes end at {info.end:,}, before they begin at {info.begin:,}."
    if info.end > n_data_bytes:
        return (
            f"its bytes [{info.begin:,}, {info.end:,}) lie beyond the data, which has {n_data_bytes:,} bytes. The file was "
            "cut short or made by hand; copy or download it again."
        )
    width = DTYPES[info.dtype].itemsize
    n_elements = math.prod(info.shape)
    # A dimension of 0 makes the product small, yet strides are still computed from the others.
    reach = n_elements or math.prod(max(size, 1) for size in info.shape)
    if reach * width >= 2**63:
        return f"its shape {_times(info.shape)} of {info.dtype} is larger than any memory (2**63 bytes)."
    if n_elements * width != info.end - info.begin:
        return (
            f"its shape {_times(info.shape)} of {info.dtype} needs {n_elements * width:,} bytes, but the file gives it "
            f"{info.end - info.begin:,}."
        )
    return None


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))[:80] or "()"


def short(name: str) -> str:
    """A tensor's name as messages quote it: a hostile one may be megabytes long."""
    return repr(name if len(name) <= 80 else f"{name[:60]}...{name[-15:]}")
