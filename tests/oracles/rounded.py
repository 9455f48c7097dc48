"""What 16-bit and int8 products should give, in NumPy: rounding written out, sums in float64. Imports nothing of ours."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def bfloat16(x: Array) -> Array:
    """The nearest number with 8 significant bits, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    even = (bits >> np.uint64(16)) & np.uint64(1)
    kept = (bits + np.uint64(0x7FFF) + even) & np.uint64(0xFFFF0000)
    return kept.astype(np.uint32).view(np.float32).astype(np.float64)


def float16(x: Array) -> Array:
    """The nearest number of float16."""
    return np.asarray(x, np.float16).astype(np.float64)


def int8_rows(weight: Array) -> tuple[Array, Array]:
    """Whole numbers from -127 to 127 and a scale a row: scale = max|row| / 127."""
    scales = np.abs(weight).max(1) / 127
    return np.clip(np.rint(weight / scales[:, None]), -127, 127), scales


def uint8_vector(x: Array, steps: int) -> tuple[Array, float]:
    """The vector as whole steps away from 0, and the size of a step: the range from least to greatest, 0 within it."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = (high - low) / steps
    zero = np.rint(-low / step)
    return np.clip(np.rint(x / step) + zero, 0, steps) - zero, step


def int8_product(weight: Array, x: Array, bias: Array | None, steps: int) -> Array:
    """W x + b with both rounded; `steps` is 255 for 8 bits and 127 for 7."""
    rows, scales = int8_rows(weight)
    vector, step = uint8_vector(x, steps)
    out = (rows @ vector) * scales * step
    return out if bias is None else out + bias
