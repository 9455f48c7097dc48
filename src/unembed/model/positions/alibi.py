"""ALiBi: each head's score falls in a straight line with distance, at a slope of its own.

Nothing is learned and nothing added to the embedding, so a model can be tried beyond the length it was trained on.
The next file to read is ../norms.py.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def slopes(n_heads: int) -> list[float]:
    """The slope of each head: 2^(-8i/n) for n a power of two, otherwise those of the power below, then every other one
    of the next power's.

    >>> slopes(6)
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]

    Source: Press et al. 2021, arXiv:2108.12409, and its published code for head counts that are no power of two.
    """
    power = 2 ** math.floor(math.log2(n_heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return first + between[: n_heads - power]


def distance_bias(
    n_heads: int,
    query_positions: Int[Tensor, "#batch pos"],
    key_positions: Int[Tensor, "#batch key_pos"],
    dtype: torch.dtype,
) -> Float[Tensor, "#batch head pos key_pos"]:
    """-slope * |query position - key position| for each head, in nats before the softmax."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs().to(dtype)
    slope = torch.tensor(slopes(n_heads), dtype=dtype, device=distance.device)
    return -slope[None, :, None, None] * distance[:, None, :, :]
