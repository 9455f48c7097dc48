"""Turns tensors into the bytes of a .safetensors file, piece by piece.

Done here rather than by the safetensors library for two reasons: the bytes stream through a FileLayer without a second
copy of the model in memory, and equal tensors give equal bytes whatever the order of the mapping. The bytes are those
that the library writes. Next to read: ../run/native.py, which makes a checkpoint of two such files.

Source: format description in github.com/huggingface/safetensors, README, section "Format".
"""

import itertools
import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from unembed.checkpoints.formats.safetensors import DTYPES, HEADER_LIMIT_BYTES, METADATA, short
from unembed.errors import CheckpointError

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ORDER = {name: place for place, name in enumerate(DTYPES)}


def encode_tensors(
    tensors: Mapping[str, Tensor], *, label: str, metadata: Mapping[str, str] | None = None
) -> Iterator[memoryview]:
    """Gives a file's bytes piece by piece, the header first; equal tensors give equal bytes, in whatever order they come.

    Everything that can be refused is refused at the call, before the first piece. `label` names the file in messages.
    `metadata` stands in the header beside the format; weights have none, and a lens says there whose it is.

    Raises: CheckpointError for tensors that share memory (a tied table is stored once, under one name), that are sparse
    or without data, or whose type or name the format does not have.
    """
    for name, tensor in tensors.items():
        if (reason := _why_not_storable(name, tensor)) is not None:
            raise CheckpointError(f"{label}: tensor {short(name)} cannot be stored: {reason}")
    _refuse_shared(tensors, label)
    order = sorted(tensors, key=lambda name: (_ORDER[_NAMES[tensors[name].dtype]], name))
    entries: dict[str, object] = {METADATA: {"format": "pt", **dict(sorted((metadata or {}).items()))}}
    begin = 0
    for name in order:
        tensor = tensors[name]
        end = begin + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    header += b" " * (-len(header) % 8)
    if len(header) > HEADER_LIMIT_BYTES:  # what is written must be readable
        raise CheckpointError(
            f"{label}: {len(tensors):,} tensors need a header of {len(header):,} bytes; the limit is "
            f"{HEADER_LIMIT_BYTES:,}. Stack tensors of one kind, or give them shorter names."
        )
    return _pieces(header, [tensors[name] for name in order])


def _why_not_storable(name: str, tensor: Tensor) -> str | None:
    if name == METADATA:
        return "the format keeps this name for itself"
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "its name is not valid Unicode"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "it is sparse or quantised; make it dense first"
    if tensor.device.type == "meta":
        return "it has a shape but no data (device meta)"
    if tensor.dtype not in _NAMES:
        return f"the format has no {tensor.dtype}"
    return None


def _refuse_shared(tensors: Mapping[str, Tensor], label: str) -> None:
    """Two names over one memory would be two tables after loading, each trained by its own half of the gradient."""
    spans = []
    for name, tensor in tensors.items():
        if tensor.numel():
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            begin = tensor.data_ptr()
            spans.append((str(tensor.device), begin, begin + reach * tensor.element_size(), name))
    spans.sort()
    for (device, _, end, first), (other_device, begin, _, second) in itertools.pairwise(spans):
        if device == other_device and begin < end and not _are_columns(tensors[first], tensors[second]):
            raise CheckpointError(
                f"{label}: {short(first)} and {short(second)} share memory. Written under both names they would come "
                "back as two separate tensors: give a shared one under one name, or clone it if two are meant."
            )


def _are_columns(first: Tensor, second: Tensor) -> bool:
    """True of two matrices that lie side by side in the rows of one: q, k and v as GPT-2's files hold them."""
    pitch = max(first.stride(), default=0)
    if first.ndim != 2 or second.ndim != 2 or {*first.stride()} != {1, pitch} or {*second.stride()} != {1, pitch}:
        return False
    # counted from the earlier of the two, so that no matrix straddles the end of a row
    first, second = sorted((first, second), key=lambda tensor: tensor.data_ptr())
    width, next_width = (tensor.shape[tensor.stride().index(1)] for tensor in (first, second))
    begin = (second.data_ptr() - first.data_ptr()) // first.element_size() % pitch
    return first.dtype == second.dtype and width <= begin and begin + next_width <= pitch


def _pieces(header: bytes, tensors: list[Tensor]) -> Iterator[memoryview]:
    yield memoryview(len(header).to_bytes(8, "little") + header)
    for tensor in tensors:
        if tensor.numel():
            # a lazily conjugated or negated view has other bytes than values
            flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().data
