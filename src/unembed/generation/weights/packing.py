"""One matrix in a form that is quick to multiply with a single vector: 16 bits an entry, or 8 with a scale for each row.

A step of decoding multiplies each matrix with one vector, so its time is that of reading the matrix: half the bytes, half
the time. The kernels are torch's own and differ from machine to machine, so each is tried on a small matrix first. The next
file to read is fresh.py.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unembed.errors import InputError, UsageError

WeightKind = Literal["float32", "bfloat16", "float16", "int8"]
KINDS: tuple[WeightKind, ...] = get_args(WeightKind)
_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# The engines of torch's int8 kernels, the quickest first; x86 chooses between the other two by the matrix.
_ENGINES = ("fbgemm", "x86", "onednn")


class Packed(Protocol):
    """A packed matrix [to, from] and its bias. Local axes: from_width, to_width."""

    n_bytes: int

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """W x + b, in float32; `one` is a single row."""
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
    if not bool(torch.isfinite(weight).all()):
        raise InputError(f"weights: {name} holds a number that is not finite, so nothing can be made of it")
    if kind == "int8":
        return Int8(weight.detach(), bias)
    return Half(weight.detach(), bias, _HALVES[kind], name)


class Half:
    """16 bits an entry. The vector is rounded to the same type, sums are kept in float32 by the kernel."""

    def __init__(
        self,
        weight: Float[Tensor, "to_width from_width"],
        bias: Float[Tensor, " to_width"] | None,
        dtype: torch.dtype,
        name: str,
    ) -> None:
        largest = float(weight.abs().max())
        if largest > torch.finfo(dtype).max:
            raise InputError(
                f"weights: {name} holds {largest:.4g}, and float16 ends at {torch.finfo(dtype).max:g}; "
                "take bfloat16, which has float32's range"
            )
        self._weight = weight.to(dtype).contiguous()
        self._bias, self._dtype = bias, dtype
        self.n_bytes = self._weight.numel() * self._weight.element_size()

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """The bias is added in float32, after the product is rounded."""
        out = F.linear(x.to(self._dtype), self._weight).float()
        return out if self._bias is None else out.add_(self._bias)


class Int8:
    """Whole numbers from -127 to 127, each row with its scale max|row| / 127; the vector is rounded to 8 bits as it comes.

    The vector's scale and zero come from its least and largest entry, as torch's dynamic quantisation does.
    """

    def __init__(self, weight: Float[Tensor, "to_width from_width"], bias: Float[Tensor, " to_width"] | None) -> None:
        engine = _int8_engine()
        if engine is None:  # `unavailable` has been asked before
            raise UsageError(f"weights: {unavailable('int8', weight.device)}")
        # a row of zeros has no scale; any will do
        scales = (weight.abs().amax(1).double() / 127).clamp(min=1e-30)
        self._reduces_range = _saturates(engine)
        self._packed = _pack_int8(weight, scales, bias, engine)
        self.n_bytes = weight.numel() + 4 * len(scales)

    def product(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, "one to_width"]:
        """Sums are whole numbers and exact; what is lost is lost in rounding W and x."""
        out: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._reduces_range)
        return out


def unavailable(kind: WeightKind, device: torch.device) -> str | None:
    """Why a kind of weights cannot be had here, as a sentence for the user; None where it can."""
    if kind == "float32":
        return None
    if kind == "int8":
        if device.type != "cpu":
            return f"int8 weights are made for processors, and the model is on {device}; take float16 or bfloat16"
        return (
            None
            if _int8_engine() is not None
            else "this build of torch has no int8 kernel for this processor; take float16 or bfloat16"
        )
    try:
        probe = torch.ones(2, 8, dtype=_HALVES[kind], device=device)
        fits = bool((F.linear(probe[:1], probe) == 8).all())
    except (RuntimeError, NotImplementedError):
        fits = False
    return None if fits else f"torch has no {kind} product on {device} here; take float32"


def _int8_engine() -> str | None:
    """The quickest engine that this build has and that gives the right answer; None where there is none."""
    for engine in _ENGINES:
        if engine not in torch.backends.quantized.supported_engines:
            continue
        try:
            packed = _pack_int8(torch.eye(8), torch.full((8,), 1 / 127).double(), None, engine)
            found = torch.ops.quantized.linear_dynamic(torch.ones(1, 8), packed, True)
        except (RuntimeError, NotImplementedError):
            continue
        if torch.allclose(found, torch.ones(1, 8), atol=0.01):
            return engine
    return None


def _saturates(engine: str) -> bool:
    """Whether sums of two products of 8 bits overflow 16 bits inside the kernel, as on processors without VNNI.

    Then the vector is rounded to 7 bits, which cannot overflow.
    """
    weight = torch.full((16, 64), 1.0)
    packed = _pack_int8(weight, torch.full((16,), 1 / 127).double(), None, engine)
    found = torch.ops.quantized.linear_dynamic(torch.ones(1, 64), packed, False)
    return not torch.allclose(found, torch.full((1, 16), 64.0), rtol=0.01)


def _pack_int8(
    weight: Float[Tensor, "to_width from_width"],
    scales: Float[Tensor, " to_width"],
    bias: Float[Tensor, " to_width"] | None,
    engine: str,
) -> Any:
    with warnings.catch_warnings(), _engine(engine):
        warnings.filterwarnings("ignore", message=".*deprecat.*")
        zeros = torch.zeros(len(scales), dtype=torch.long)
        rounded = torch.quantize_per_channel(weight.contiguous(), scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().contiguous())


@contextmanager
def _engine(name: str) -> Iterator[None]:
    """torch packs for the engine that is set for the whole process; it is set for a moment and put back."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
