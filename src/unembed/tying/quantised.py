"""Is a table of whole numbers, or one that was rounded to few bits, the quantisation of another table?

Whole numbers q stand for scale * (q - zero), the scale shared by a row or by all; whatever the scale was, q is fitted to the
table by least squares, row by row, and what is left over is at most half a step where the one was made from the other. Of
two tables that a file holds rounded to different numbers of bits, the expected distance is computed from their steps. The
next file to read is tables.py.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

# A rounding error is spread evenly over one step, so its root mean square is 1/sqrt(12) of it.
RMS_OF_ROUNDING = 12**-0.5
_BLOCK = 32
# How many times the expected distance still counts as rounding: scales are themselves rounded, and some are searched for.
MOST_TIMES = 2.0
_BITS = {"Q8_0": 8, "Q6_K": 6, "Q5_0": 5, "Q5_1": 5, "Q5_K": 5, "Q4_0": 4, "Q4_1": 4, "Q4_K": 4}


class Fit(NamedTuple):
    """How whole numbers sit on a table: what is left over in steps (largest and root mean square), and the correlation."""

    largest_steps: float
    rms_steps: float
    correlation: float

    @property
    def is_fresh(self) -> bool:
        """Whether the leftover is what rounding leaves."""
        return self.largest_steps <= 1.0 and self.rms_steps <= 1.3 * RMS_OF_ROUNDING


def is_quantised(tensor: Tensor) -> bool:
    """Whether a tensor holds whole numbers of 8 bits, as PyTorch's quantised type or plainly."""
    return tensor.is_quantized or tensor.dtype in (torch.int8, torch.uint8)


def fit(table: Float[Tensor, "rows width"], quantised: Shaped[Tensor, "rows width"]) -> Fit:
    """Fits q = table / scale + zero for each row (zero only where the type has no sign). Local axes: rows, width."""
    whole = quantised.int_repr() if quantised.is_quantized else quantised
    q, x = whole.double(), table.double()
    if whole.dtype == torch.uint8:
        q, x = q - q.mean(1, keepdim=True), x - x.mean(1, keepdim=True)
    slope = (q * x).sum(1, keepdim=True) / (x * x).sum(1, keepdim=True).clamp(min=1e-300)
    left = q - slope * x
    norms = q.norm() * x.norm()
    correlation = float((q * x).sum() / norms) if norms > 0 else 0.0
    return Fit(float(left.abs().max()), float(left.square().mean().sqrt()), correlation)


def times_rounding(
    first: Float[Tensor, "vocab d_model"], second: Float[Tensor, "vocab d_model"], types: tuple[str, str]
) -> float | None:
    """The distance of two dequantised tables, in units of what rounding one table to both types would leave.

    About 1 where both come from one table, far above where not; None where neither type rounds coarser than 16 bits do.
    """
    if not any(kind in _BITS for kind in types):
        return None
    expected = sum(_variance(table, kind) for table, kind in zip((first, second), types, strict=True))
    distance = float((first.double() - second.double()).square().mean())
    return (distance / expected) ** 0.5 if expected > 0 else None


def _variance(table: Float[Tensor, "vocab d_model"], kind: str) -> float:
    """The mean square of the rounding that a type does, its step taken from each block's largest number."""
    if kind not in _BITS:
        return 0.0
    width = table.shape[-1]
    blocks = table.reshape(-1, _BLOCK if width % _BLOCK == 0 else width).double()
    steps = 2 * blocks.abs().amax(1) / 2 ** _BITS[kind]
    return float(steps.square().mean()) / 12
