"""One matrix in a form that is quick to multiply with a single vector: 32 bits an entry, 16, or 8 with a scale for each few.

A step of decoding multiplies each matrix with one vector, so its time is that of reading the matrix: half the bytes, half
the time. The kernels are torch's own and differ from machine to machine, so those that round are tried on a small matrix
first. The next file to read is fresh.py.
"""

from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from unembed.errors import InputError, UsageError
from unembed.generation.weights.bags import cut
from unembed.model.product import is_intel

WeightKind = Literal["float32", "bfloat16", "float16", "int8"]
KINDS: tuple[WeightKind, ...] = get_args(WeightKind)
_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_STEPS = 255
# So many rows are turned into bytes together: some megabytes.
_AT_ONCE = 4096


class Packed(Protocol):
    """A packed matrix [to, from] and its bias. Local axes: from_width, to_width."""

    n_bytes: int

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """W x + b, in float32; `one` is a single row. It takes no gradients."""
        ...


def check_kind(kind: Any) -> WeightKind:
    """Gives the kind of weights by its name. Raises: UsageError."""
    for known in KINDS:
        if isinstance(kind, str) and kind == known:
            return known
    raise UsageError(f"weights: {str(kind)[:60]!r} is no kind of weights; it must be one of {', '.join(KINDS)}")


def pack(
    kind: WeightKind, weight: Float[Tensor, "to_width from_width"], bias: Float[Tensor, " to_width"] | None, name: str
) -> Packed:
    """Packs one matrix; `name` is for the error. Raises: InputError where its numbers do not fit the kind."""
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if kind == "float32":
        return Columns(weight, bias, torch.float32)
    if not bool(torch.isfinite(weight).all()):
        raise InputError(f"weights: {name} holds a number that is not finite, so nothing can be made of it")
    if kind == "int8":
        return Int8(weight, bias)
    dtype = _HALVES[kind]
    if (largest := float(weight.abs().max())) > torch.finfo(dtype).max:
        raise InputError(
            f"weights: {name} holds {largest:.4g}, and {kind} ends at {torch.finfo(dtype).max:g}; "
            + ("take bfloat16, which goes nearly as far as float32" if kind == "float16" else "take float32")
        )
    return Columns(weight, bias, dtype) if has_bags(weight.device) else Rows(weight, bias, dtype)


class Columns:
    """The numbers in blocks of columns (bags.py), in float32 or rounded to 16 bits.

    The vector is rounded to the same type. Sums are taken in float32, in another order than by rows, and rounded to the type.
    """

    def __init__(
        self, weight: Float[Tensor, "to_width from_width"], bias: Float[Tensor, " to_width"] | None, dtype: torch.dtype
    ) -> None:
        self._blocks = cut(*weight.shape)
        self._columns, self._bias = self._blocks.arranged(weight.to(dtype)), bias
        self.n_bytes = self._columns.numel() * self._columns.element_size()

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """The sum over k of x[k] times column k; the bias is added in float32."""
        rows, begins = self._blocks.places(in_pieces=self._columns.dtype == torch.float32)
        # to the type before it is repeated; which changes nothing for float32
        weights = self._blocks.weights(x.detach().to(self._columns.dtype))
        sums, *_ = torch.embedding_bag(self._columns, rows, begins, mode=_SUM, per_sample_weights=weights)
        out = self._blocks.result(sums.float())
        return out if self._bias is None else out + self._bias


class Rows:
    """16 bits an entry, row by row, for devices whose library has a quick product of its own for that."""

    def __init__(
        self, weight: Float[Tensor, "to_width from_width"], bias: Float[Tensor, " to_width"] | None, dtype: torch.dtype
    ) -> None:
        self._weight, self._bias, self._dtype = weight.to(dtype).contiguous(), bias, dtype
        self.n_bytes = self._weight.numel() * self._weight.element_size()

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """The bias is added in float32, after the product is rounded."""
        out = F.linear(x.to(self._dtype), self._weight).float()
        return out if self._bias is None else out.add_(self._bias)


class Int8:
    """Bytes: each row has a scale, its largest number; of what is left, each column of a block (bags.py) has a least number and
    a step, and a byte says how many steps an entry lies above that.

    A step is (largest - least) / 255, so an entry errs by 1 / 255 of its row's scale at most. The vector is not rounded, and
    sums are taken in float32. Without the rows' scales a few large rows would set the steps of all the others in their block.
    """

    def __init__(self, weight: Float[Tensor, "to_width from_width"], bias: Float[Tensor, " to_width"] | None) -> None:
        self._blocks, self._bias = cut(*weight.shape), bias
        self._scales = weight.abs().amax(1)
        divisors = torch.where(self._scales > 0, self._scales, 1.0)  # a row of zeros has none, and stays one
        self._bytes = _in_bytes(self._blocks.arranged(weight / divisors[:, None]))
        self.n_bytes = self._bytes.numel() + 4 * len(self._scales)

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """The sum over k of x[k] times column k, whose entries are made from their bytes on the way."""
        rows, begins = self._blocks.places(in_pieces=False)
        sums: Tensor = torch.ops.quantized.embedding_bag_byte_rowwise_offsets(
            self._bytes, rows, begins, False, _SUM, False, self._blocks.weights(x.detach())
        )
        out = self._blocks.result(sums)
        return out * self._scales if self._bias is None else torch.addcmul(self._bias, out, self._scales)


def unavailable(kind: WeightKind, device: torch.device) -> str | None:
    """Why a kind of weights cannot be had here, as a sentence for the user; None where it can."""
    if kind == "float32":
        return None
    if kind == "int8":
        if device.type != "cpu":
            return f"int8 weights are made for processors, and the model is on {device}; take float16 or bfloat16"
        return (
            None
            if _reads_bytes()
            else "this build of torch has no kernel for bytes on this processor; take float16 or bfloat16"
        )
    try:
        probe = torch.ones(2, 8, device=device)
        fits = bool((pack(kind, probe, None, "probe").product(probe[:1]) == 8).all())
    except (RuntimeError, NotImplementedError):
        fits = False
    return None if fits else f"torch has no {kind} product on {device} here; take float32"


def has_bags(device: torch.device) -> bool:
    """Whether torch makes its kernel for bags for this processor: with AVX2 or AVX-512."""
    return (
        device.type == "cpu"
        and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
        and "fbgemm" in torch.backends.quantized.supported_engines
    )


def gains_float32(device: torch.device) -> bool:
    """Whether float32 matrices are read sooner packed: by bags, where MKL is not at home."""
    return has_bags(device) and not is_intel()


# torch's number for bags that are added up
_SUM = 0


def _in_bytes(columns: Float[Tensor, "rows width"]) -> UInt8[Tensor, "rows width_and_8"]:
    """Each row: the bytes, then the step and the least number, float32 each. Local axes: rows, width, width_and_8."""
    out = columns.new_empty(len(columns), columns.shape[1] + 8, dtype=torch.uint8)
    for part, into in zip(torch.split(columns, _AT_ONCE), torch.split(out, _AT_ONCE), strict=True):
        least = part.amin(1, keepdim=True)
        step = (part.amax(1, keepdim=True) - least) / _STEPS
        # a column of one number has no step
        into[:, :-8] = torch.where(step > 0, (part - least) / step, 0.0).round_().clamp_(0, _STEPS)
        into[:, -8:] = torch.cat((step, least), 1).view(torch.uint8)
    return out


def _reads_bytes() -> bool:
    """Whether this build has the kernel and it gives the right answer."""
    # whole steps of each column, and a one in each row
    steps = torch.tensor(
        [[0.0, 255.0, 51.0], [255.0, 0.0, 255.0], [17.0, 255.0, 0.0]], dtype=torch.float32, device="cpu"
    )
    weight = steps / _STEPS
    try:
        found = Int8(weight, None).product(torch.ones_like(weight[:1]))
    except (RuntimeError, NotImplementedError, AttributeError):
        return False
    return torch.allclose(found, weight.sum(1), rtol=1e-5)
