"""Which tokens have vectors that point the same way.

Cosine similarity; the token itself is never its own neighbour, and a vector of zeros has no direction: its similarity
counts as undefined and it is ranked last, never first. The next file to read is projections.py.
"""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from unembed.errors import UsageError


def cosine_neighbours(
    vectors: Float[Tensor, "vocab d_model"], index: int, n: int, *, exclude: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """The n rows nearest to row `index` by cosine, best first, without itself and without `exclude`.

    cosine(u, v) = u.v / (|u| |v|), in float64; equal ones by row. n may exceed the rows: then all that are left come.
    Rows without a direction (zeros, or not finite) come last, with cosine NaN (undefined).
    Raises: UsageError for an index outside the table or a negative n.

    >>> import torch
    >>> cosine_neighbours(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 0, 1)
    [(1, 1.0)]
    """
    n_rows = vectors.shape[0]
    if not 0 <= index < n_rows:
        raise UsageError(f"neighbours: row {index} does not exist; the table has rows 0 to {n_rows - 1}")
    if n < 0:
        raise UsageError(f"neighbours: n is {n}; it must be 0 or more")
    units = unit_rows(vectors)
    cosines = (units @ units[index]).clamp(-1, 1).tolist()
    left_out = {index, *exclude}
    ranked = sorted(
        (row for row in range(n_rows) if row not in left_out),
        key=lambda row: (math.isnan(cosines[row]), 0.0 if math.isnan(cosines[row]) else -cosines[row], row),
    )
    return [(row, cosines[row]) for row in ranked[:n]]


def unit_rows(vectors: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
    """Each row divided by its length, in float64; NaN where a row has no direction. Local axis: rows.

    The largest entry is divided out first, so that squares of very small or large entries neither vanish nor overflow.
    """
    wide = vectors.detach().double()
    scaled = wide / wide.abs().amax(-1, keepdim=True)
    units: Tensor = scaled / scaled.norm(dim=-1, keepdim=True)
    return units
