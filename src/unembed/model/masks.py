"""Who sees whom: which keys each query may look at, worked out once per forward for each distinct rule.

Rules compare positions, not slots, so padding on either side, a cache that already holds keys, and several new queries
at once all follow from one line: a key is visible when it is real, not later than the query, and within the window.
The next file to read is attention.py.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unembed.model.positions.alibi import distance_bias
from unembed.model.spec import Alibi, Attention, Bidirectional


class Keys(NamedTuple):
    """What every layer's keys have in common in one forward: where queries and keys stand, and which keys are real."""

    query_positions: Int[Tensor, "#batch pos"]
    key_positions: Int[Tensor, "#batch key_pos"]
    is_real: Bool[Tensor, "batch key_pos"] | None


class Visibility(NamedTuple):
    """The mask in the form that attention uses.

    visible   True where a query may look; None when `is_causal` or all keys say it all
    is_causal the plain causal triangle, queries and keys being the same tokens: kernels have a fast path for it
    bias      what positions add to the scores (ALiBi), or None
    has_view  False for a query that sees no key at all: its output is zero. None when there is no such query
    """

    visible: Bool[Tensor, "#batch 1 pos key_pos"] | None
    is_causal: bool
    bias: Float[Tensor, "#batch head pos key_pos"] | None
    has_view: Bool[Tensor, "#batch 1 pos 1"] | None


def visibility(attention: Attention, keys: Keys, dtype: torch.dtype) -> Visibility:
    """Applies one layer's rule to the keys of this forward.

    visible[q, k] = real[k] and (bidirectional or 0 <= position[q] - position[k] < window), the window being endless when
    it is None. A query without a visible key is let see all of them, so that no softmax runs over nothing, and
    `has_view` then zeroes its output.
    """
    n_queries, n_keys = keys.query_positions.shape[-1], keys.key_positions.shape[-1]
    bias = None
    if isinstance(attention.position, Alibi):
        bias = distance_bias(attention.n_heads, keys.query_positions, keys.key_positions, dtype)
    is_bidirectional = isinstance(attention.sees, Bidirectional)
    window = None if isinstance(attention.sees, Bidirectional) else attention.sees.window
    # no query can miss a key that is nearer than the window; then the faster paths below serve
    window = None if window is not None and window >= n_keys else window
    if keys.is_real is None and window is None:
        if is_bidirectional or n_queries == 1:
            return Visibility(None, False, bias, None)
        if n_queries == n_keys and bias is None:
            return Visibility(None, True, None, None)
    visible = _visible(keys, is_bidirectional, window)
    if keys.is_real is None:
        return Visibility(visible, False, bias, None)
    has_view = visible.any(dim=-1, keepdim=True)
    return Visibility(visible | ~has_view, False, bias, has_view)


def _visible(keys: Keys, is_bidirectional: bool, window: int | None) -> Bool[Tensor, "#batch 1 pos key_pos"]:
    distance = keys.query_positions[:, :, None] - keys.key_positions[:, None, :]
    visible = torch.ones_like(distance, dtype=torch.bool) if is_bidirectional else distance >= 0
    if window is not None:
        visible = visible & (distance < window)
    if keys.is_real is not None:
        visible = visible & keys.is_real[:, None, :]
    return visible[:, None]
