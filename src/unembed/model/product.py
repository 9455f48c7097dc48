"""x W^T + b, by the quicker of the two libraries that torch brings for float32 on a processor.

torch hands float32 products to MKL. On processors with AVX-512 that are not Intel's, MKL does not use it; oneDNN, which torch
has for its other types, makes its code for the processor that it finds. On Intel's own MKL is the quicker one for nearly all
shapes and keeps them. docs/decisions/0015 has the measurements. The same sums in another order: results differ in the last
digits. Everything else (accelerators, other types, compiled code, anything that watches torch's own operators) takes
`torch.nn.functional.linear`, and so does all of it under `torch.backends.mkldnn.flags(enabled=False)`. The next file to
read is linear.py.
"""

import os
import time
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from unembed.runtime import told_of_the_processor

# oneDNN's call costs some 10 microseconds more than MKL's: below so many multiplications that is not won back. One row is
# bound by reading the matrix, in which oneDNN is twice as quick, so there it is won back sooner.
LEAST_WORK, LEAST_WORK_ONE_ROW = 1 << 21, 1 << 18
# A step of autograd in Python costs 80 microseconds more than torch's own.
LEAST_WORK_LEARNING = 1 << 26
# oneDNN makes code for each shape, a megabyte or two, and keeps it twice; by itself for 1,024 shapes, which prompts of many
# lengths reach. What is asked for again after that is made again, in half a millisecond. Read when oneDNN is first used.
for _cache in ("DNNL_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "64")
# No subclass (a shard, a fake tensor): those know only torch's own operators.
_PLAIN = (Tensor, torch.nn.Parameter)


def product(
    x: Float[Tensor, "*axes from_width"], weight: Float[Tensor, "to_width from_width"], bias: Tensor | None = None
) -> Float[Tensor, "*axes to_width"]:
    """`torch.nn.functional.linear(x, weight, bias)`, equal up to rounding. Axes: `from_width`, `to_width` are local."""
    if not suits(x, weight, learns=wants_gradient(x, weight)) or (bias is not None and not _is_row(bias, weight)):
        return F.linear(x, weight, bias)
    if not wants_gradient(x, weight, bias):
        return _onednn(x, weight, bias)
    return cast(Tensor, _Product.apply(x, weight, bias))  # type: ignore[no-untyped-call]  # torch leaves it untyped


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd would lead from what is made of these back to one of them."""
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors)


def suits(x: Tensor, weight: Tensor, *, learns: bool) -> bool:
    """Whether oneDNN takes this product, and sooner than MKL. Asked before each one, so in the order of what is cheap."""
    if torch.compiler.is_compiling():  # a compiler chooses for itself, and cannot trace what follows
        return False
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        return False
    work = x.numel() * weight.shape[0]
    least = LEAST_WORK_LEARNING if learns else LEAST_WORK_ONE_ROW if x.numel() == x.shape[-1] else LEAST_WORK
    return (
        work >= least
        and x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and weight.is_cpu
        and type(x) in _PLAIN
        and type(weight) in _PLAIN
        and (weight.is_contiguous() or weight.t().is_contiguous())  # of part of a matrix oneDNN goes number by number
        and _is_quicker_here()
        and bool(torch.backends.mkldnn.enabled)
        and not is_watched()
    )


def _is_quicker_here() -> bool:
    return has_onednn() and not is_intel()


@cache
def has_onednn() -> bool:
    """Whether this build's oneDNN can be called by itself, and makes its code for this processor."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


@cache
def is_intel() -> bool:
    """Whether the processor is of MKL's own maker: there it is the quickest for nearly every product, a single row included."""
    return "GenuineIntel" in told_of_the_processor()


def _is_row(bias: Tensor, weight: Tensor) -> bool:
    """One number for each row of the matrix, side by side: oneDNN reads others wrongly and says nothing."""
    return bias.shape == weight.shape[:1] and bias.is_contiguous() and bias.dtype == weight.dtype and bias.is_cpu


def is_watched() -> bool:
    """Whether something replaces or counts torch's operators by their names, or differentiates forwards; it would not know."""
    return (
        torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_function_stack() > 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or forward_ad._current_level >= 0
    )


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The operator that torch.compile uses for the same purpose: a product, then nothing pointwise."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
    return out


def measure_flops(device: str = "cpu", *, seconds: float = 0.15) -> float:
    """The peak of this machine, measured: operations per second of one large float32 product, the best of several.

    By the library that a model's products take.

    [n, n] times [n, n] is 2 n^3 operations; n is 1,024 on a CPU and 4,096 on an accelerator, whose smaller products are
    over before they are begun. It takes about `seconds`, uses the threads that are set, and draws no random number.
    """
    n = 1024 if device == "cpu" else 4096
    matrix = torch.full((n, n), 1 / n, device=device)

    def once() -> float:
        began = time.perf_counter()
        product(matrix, matrix)
        if device != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - began

    once()  # the first product also wakes threads and picks a kernel
    best, until = once(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        best = min(best, once())
    return 2 * n**3 / best


class _Product(torch.autograd.Function):
    """The product with its gradients: dx = g W, dW = g^T x, db = the sum of g's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """Of differentiable steps, so that gradients of gradients exist as well."""
        (slope,) = above
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        rows = slope.reshape(-1, slope.shape[-1])
        return (
            product(slope, weight.t()) if wants_x else None,
            # of one speed in both libraries
            rows.t() @ x.reshape(-1, x.shape[-1]) if wants_weight else None,
            rows.sum(0) if wants_bias else None,
        )
