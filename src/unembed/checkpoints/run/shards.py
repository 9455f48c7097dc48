"""Tensors that many processes hold in parts: what one of them has, and how all parts are read back as whole tensors.

    step-000123/  model/shard-00001-model-00001-of-00001.safetensors ...   optimizer/...   state.json  MANIFEST.json

Each process writes one file of its own; its header says at which row each part begins, in the words of PyTorch's distributed
checkpoints (`DCP_SHARDING_INFO`). The next file to read is distributed.py, which writes such files and reads them part by part.

Source of the header: torch/distributed/checkpoint/_hf_utils.py.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.formats.safetensors import (
    DTYPES,
    Header,
    TensorInfo,
    clean_names,
    read_header,
    read_tensors,
    short,
)
from unembed.errors import CheckpointError

MODEL, MOMENTS = "model", "optimizer"
SUFFIX = ".safetensors"
_INFO, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


class Whole(NamedTuple):
    """A tensor as it is when its parts are put together."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class _Part(NamedTuple):
    file: Path
    info: TensorInfo
    begin: int  # the first row that it holds


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is one of PyTorch's distributed ones, of which this process holds a part."""
    module = sys.modules.get("torch.distributed.tensor")  # where nobody has imported it, there can be none
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: the tensor itself unless it is sharded."""
    if not is_sharded(tensor):
        return tensor.detach()
    with torch.no_grad():
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part.detach()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; of a sharded one it is gathered, so every process of its mesh must call this."""
    found = tensor.detach()
    return found.full_tensor() if is_sharded(found) else found  # type: ignore[attr-defined]


def shard_files(folder: Path) -> list[Path]:
    """The files of a folder of shards, in order; none where there is no such folder (nothing was there to be saved)."""
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def wholes(folder: Path) -> dict[str, Whole]:
    """Name, shape and type of every tensor that a folder of shards holds, from its headers alone. Raises: CheckpointError."""
    return {name: _whole_of(folder, name, parts) for name, parts in _parts(folder).items()}


def read_shards(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder of shards, put together, by clean name. Raises: CheckpointError where parts lack or overlap."""
    parts = _parts(folder)
    files = {file: read_tensors(file) for file in shard_files(folder)}
    found: dict[str, Tensor] = {}
    for name in sorted(parts):
        shape, dtype = _whole_of(folder, name, parts[name])
        pieces = [files[part.file][name] for part in parts[name]]
        found[name] = pieces[0] if len(pieces) == 1 else torch.cat(pieces).reshape(shape)
        assert found[name].dtype == dtype
    return clean_names(found)


def _parts(folder: Path) -> dict[str, list[_Part]]:
    """Where the parts of each tensor are, in the order of their rows."""
    found: dict[str, list[_Part]] = {}
    for file in shard_files(folder):
        header = read_header(file)
        begins = _begins(file, header)
        for name, info in header.tensors.items():
            found.setdefault(name, []).append(_Part(file, info, begins[name]))
    return {name: sorted(parts, key=lambda part: part.begin) for name, parts in found.items()}


def _begins(file: Path, header: Header) -> dict[str, int]:
    """The row at which each part of a file begins; 0 for all where the file says nothing, as PyTorch reads it."""
    if _INFO not in header.metadata:
        return dict.fromkeys(header.tensors, 0)
    try:
        info = json.loads(header.metadata[_INFO])
        offsets = {name: info[name][_OFFSETS] for name in header.tensors}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{file}: its {_INFO} does not say where every tensor begins: {error}") from error
    return {name: _row(file, name, offset, header.tensors[name]) for name, offset in offsets.items()}


def _row(file: Path, name: str, offset: object, info: TensorInfo) -> int:
    is_offset = isinstance(offset, list) and len(offset) == len(info.shape) and all(type(one) is int for one in offset)
    if not is_offset or not isinstance(offset, list) or any(offset[1:]) or min(offset, default=0) < 0:
        raise CheckpointError(
            f"{file}: tensor {short(name)} {list(info.shape)} begins at {str(offset)[:40]}; expected a part that is cut "
            "between rows"
        )
    return offset[0] if offset else 0


def _whole_of(folder: Path, name: str, parts: list[_Part]) -> Whole:
    """What the parts of one tensor make together. Raises: CheckpointError."""
    first, rows = parts[0].info, 0
    for part in parts:
        here = part.info
        if here.dtype != first.dtype or here.shape[1:] != first.shape[1:] or len(here.shape) != len(first.shape):
            raise CheckpointError(
                f"{folder}: the parts of tensor {short(name)} do not fit together: {first.dtype} {list(first.shape)} and "
                f"{here.dtype} {list(here.shape)}"
            )
        if part.begin != rows:
            what = "is missing" if part.begin > rows else "stands there twice"
            raise CheckpointError(f"{folder}: row {min(rows, part.begin)} of tensor {short(name)} {what}")
        rows += here.shape[0] if here.shape else 1
    if not first.shape and len(parts) > 1:
        raise CheckpointError(f"{folder}: tensor {short(name)}, a single number, stands there {len(parts)} times")
    return Whole((rows, *first.shape[1:]) if first.shape else (), DTYPES[first.dtype])


def spread(value: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor, laid out as `like` is; nothing is sent, for every process has the whole.

    A value that is sharded already, or that goes to a tensor that is not, stays as it is.
    """
    if not is_sharded(like) or is_sharded(value) or value.ndim == 0:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    on_device = value.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
