"""Do two tensors lie on the same numbers? Answered from addresses and strides alone, so for tensors without memory as well.

Two tensors in one storage need not share anything (a buffer cut into halves), and two that begin at one address need not
share in the same order (a reshape where a transposition was meant). So the addresses of all entries are compared, exactly.
The next file to read is relation.py, which compares the numbers of tensors that share nothing.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from unembed.tying.evidence import count_of, local

Sharing = Literal["none", "beside", "alias", "transposed", "rows", "overlap"]
_META_BASE = 2**20  # an address for tensors that have none: only distances matter


class Shared(NamedTuple):
    """How the memory of two tensors meets, and the words for it.

    none        nowhere               beside      in one storage, at different places of it
    alias       entry for entry       transposed  entry [i, j] of one is [j, i] of the other
    rows        entry for entry, where one of them has more rows than the other
    overlap     in part, or in another order
    """

    kind: Sharing
    detail: str = ""


def sharing(first: Tensor, second: Tensor) -> Shared:
    """Compares the places of all entries of two tensors; of sharded ones, those of this process's parts."""
    one, two = local(first), local(second)
    if one.layout != two.layout or one.is_sparse or one.device != two.device:
        return Shared("none")
    same_storage = _storage_of(one) == _storage_of(two)
    if one.is_meta and not same_storage:
        return Shared("none")
    if not (one.numel() and two.numel() and np.shares_memory(_places(one), _places(two))):
        return Shared("beside" if same_storage else "none")
    if one.dtype != two.dtype:
        return Shared("overlap", f"their bytes are read as {one.dtype} here and as {two.dtype} there")
    if _start(one) == _start(two):
        if one.shape == two.shape and _steps(one) == _steps(two):
            return Shared("alias")
        if one.ndim == 2 and one.shape == two.shape[::-1] and _steps(one) == _steps(two)[::-1]:
            return Shared("transposed")
        if one.shape[1:] == two.shape[1:] and one.stride() == two.stride():
            return Shared("rows", f"the first {count_of(min(len(one), len(two)), 'row')}")
    return Shared("overlap", _shift(one, two))


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _start(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size() if tensor.is_meta else tensor.data_ptr()


def _steps(tensor: Tensor) -> tuple[int, ...]:
    """Strides, 0 along an axis of one entry: there they mean nothing."""
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


class _Places:
    """An array at a tensor's addresses, which NumPy compares and never reads."""

    def __init__(self, tensor: Tensor) -> None:
        size = tensor.element_size()
        start = _start(tensor) + (_META_BASE if tensor.is_meta else 0)
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "strides": tuple(step * size for step in tensor.stride()),
            "typestr": f"|V{size}",
            "data": (start, False),
        }


def _places(tensor: Tensor) -> Any:
    return np.asarray(_Places(tensor))


def _shift(one: Tensor, two: Tensor) -> str:
    distance = (_start(two) - _start(one)) // one.element_size()
    if one.stride() == two.stride() and one.ndim == 2 and one.stride(0) > 0:
        rows, rest = divmod(abs(distance), one.stride(0))
        if not rest:
            return f"one begins {count_of(rows, 'row')} after the other"
        return f"one begins {count_of(abs(distance), 'number')} after the other"
    return "the same numbers in another order"
