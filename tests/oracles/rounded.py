"""What 16-bit numbers and bytes can say of a matrix, in NumPy: the rounding written out. Imports nothing of ours."""

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


def int8_blocks(weight: Array, height: int) -> Array:
    """The numbers that bytes can say: `height` rows of a column share a least number and a step, a 255th of their range.

    Before that each row is divided by its largest number. The last block is filled up with zeros. float32 throughout, as
    bytes are made.
    """
    n_rows, n_columns = weight.shape
    n_blocks = -(-n_rows // height)
    filled = np.zeros((n_blocks * height, n_columns), np.float32)
    scales = np.abs(weight).max(1, keepdims=True).astype(np.float32)
    scales[scales == 0] = 1
    filled[:n_rows] = weight / scales
    made = np.zeros_like(filled)
    for top in range(0, len(filled), height):
        for column in range(n_columns):
            entries = filled[top : top + height, column]
            least = entries.min()
            step = np.float32((entries.max() - least) / np.float32(255))
            counts = np.zeros_like(entries) if step == 0 else np.rint((entries - least) / step)
            made[top : top + height, column] = least + counts.astype(np.float64) * step
    return made[:n_rows].astype(np.float64) * scales
