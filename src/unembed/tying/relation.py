"""What two matrices are to each other: one parameter, one memory, a copy, a rounded copy, two that drifted apart, strangers.

Memory is asked first (memory.py), then the numbers. `moves` says whether writing one entry of the first changes the second:
that, and nothing else, is what "tied" means here. The next file to read is tables.py, which finds the two matrices.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from unembed.tying.evidence import local, shape_of
from unembed.tying.memory import sharing
from unembed.tying.quantised import fit, is_quantised

Kind = Literal[
    "same_parameter",
    "two_parameters",
    "view",
    "transposed_view",
    "rows_view",
    "detached_view",
    "overlap",
    "equal_copy",
    "transposed_copy",
    "cast_copy",
    "quantised_copy",
    "drifted",
    "resized_alone",
    "differing",
    "other_shape",
    "no_memory",
    "one_without_memory",
]
TIED: frozenset[Kind] = frozenset(
    ("same_parameter", "two_parameters", "view", "transposed_view", "rows_view", "detached_view")
)
# Independent tables differ by sqrt(2) of their norm; what is nearer than this was one table once.
NEAR = 0.5
_CHUNK_ROWS = 4096


class Relation(NamedTuple):
    """How the second matrix stands to the first. `difference` is |first - second| / |first| where both have numbers."""

    kind: Kind
    difference: float | None = None
    detail: str = ""

    @property
    def moves(self) -> bool | None:
        """Whether writing into the first changes the second; None where neither has numbers."""
        return None if self.kind == "no_memory" else self.kind in TIED


def relate(first: Tensor, second: Tensor) -> Relation:
    """Compares two matrices, [vocab, d_model] each, or one of them transposed."""
    if first is second:
        return Relation("same_parameter")
    shared = sharing(first, second)
    match shared.kind:
        case "overlap":
            return Relation("overlap", detail=shared.detail)
        case "alias" | "transposed" | "rows":
            return Relation(_kind_of_view(first, second, shared.kind), detail=shared.detail)
    if local(first).is_meta or local(second).is_meta:
        both = local(first).is_meta and local(second).is_meta
        return Relation("no_memory" if both else "one_without_memory")
    found = compare(local(first), local(second))
    where = "side by side in one storage" if shared.kind == "beside" else found.detail
    return found._replace(detail=where)


def _kind_of_view(first: Tensor, second: Tensor, kind: str) -> Kind:
    if isinstance(first, nn.Parameter) and isinstance(second, nn.Parameter):
        # two leaves: autograd keeps a gradient for each, although there is one set of numbers; frozen ones need none
        if first.requires_grad or second.requires_grad:
            return "two_parameters"
    elif first.requires_grad != second.requires_grad:
        return "detached_view"
    return {"alias": "view", "transposed": "transposed_view", "rows": "rows_view"}[kind]  # type: ignore[return-value]


def compare(first: Tensor, second: Tensor) -> Relation:
    """Compares the numbers of two matrices that share no memory."""
    transposed = first.shape != second.shape and first.shape == second.shape[::-1]
    if first.ndim != 2 or second.ndim != 2:
        return Relation("other_shape", detail=f"{shape_of(first)} and {shape_of(second)}")
    if transposed:
        found = compare(first, second.T)
        return found._replace(kind="transposed_copy") if found.kind == "equal_copy" else found
    if first.shape[1] != second.shape[1]:
        return Relation("other_shape", detail=f"{shape_of(first)} and {shape_of(second)}")
    if len(first) != len(second):
        n = min(len(first), len(second))
        if same_numbers(first[:n], second[:n]):
            return Relation("resized_alone", detail=f"{len(first)} rows and {len(second)}, of which {n} are equal")
        return Relation("other_shape", detail=f"{shape_of(first)} and {shape_of(second)}")
    if is_quantised(first) or is_quantised(second):
        return _with_quantised(first, second)
    if first.dtype != second.dtype:
        if _is_cast(first, second) or _is_cast(second, first):
            return Relation("cast_copy", relative_difference(first, second), f"{first.dtype} and {second.dtype}"[:60])
    elif same_numbers(first, second):
        return Relation("equal_copy", 0.0)
    square = first.shape[0] == first.shape[1]
    if square and first.dtype == second.dtype and same_numbers(first, second.T):
        return Relation("transposed_copy", 0.0)
    difference = relative_difference(first, second)
    return Relation("drifted" if difference < NEAR else "differing", difference)


def _with_quantised(first: Tensor, second: Tensor) -> Relation:
    table, whole = (second, first) if is_quantised(first) else (first, second)
    if is_quantised(table):
        equal = table.shape == whole.shape and bool((_whole(table) == _whole(whole)).all())
        return Relation("equal_copy" if equal else "differing", 0.0 if equal else None)
    found = fit(table, whole)
    steps = f"at most {found.largest_steps:.1f} steps away"
    return Relation("quantised_copy" if found.is_fresh else "differing", None, steps if found.is_fresh else "")


def _whole(tensor: Tensor) -> Tensor:
    return tensor.int_repr() if tensor.is_quantized else tensor


def _is_cast(wide: Tensor, narrow: Tensor) -> bool:
    return narrow.is_floating_point() and same_numbers(wide.to(narrow.dtype), narrow)


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors of one shape are equal, entries that are no numbers included."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if torch.equal(first, second):
        return True
    return first.is_floating_point() and bool(((first == second) | (first.isnan() & second.isnan())).all())


def relative_difference(first: Tensor, second: Tensor) -> float:
    """|first - second| / |first| in float64, a few thousand rows at a time; infinite where an entry is no number."""
    gap = size = 0.0
    for begin in range(0, len(first), _CHUNK_ROWS):
        one, two = (tensor[begin : begin + _CHUNK_ROWS].double() for tensor in (first, second))
        gap += float((one - two).square().sum())
        size += float(one.square().sum())
    ratio = (gap / size) ** 0.5 if size > 0 else float("inf")
    return ratio if ratio == ratio else float("inf")
