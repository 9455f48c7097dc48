"""A table with one row for each position, learned like the token table. The next file to read is sinusoidal.py.

The table is finite, and RoBERTa's is shorter than it looks: its first rows belong to the padding, so position 0 reads
row `offset`.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import ShapeError
from unembed.model.spec import Learned


def learned_positions(
    spec: Learned, table: Float[Tensor, "rows d_model"], positions: Int[Tensor, "#batch pos"]
) -> Float[Tensor, "#batch pos d_model"]:
    """Looks position p up in row p + offset. Local axis: rows. A sequence too long is refused earlier, by `check_length`."""
    return F.embedding(positions + spec.offset, table)


def check_length(spec: Learned, n_positions: int) -> None:
    """Refuses a sequence that is longer than the table. Raises: ShapeError, before any device is touched."""
    if n_positions > (room := spec.room):
        raise ShapeError(
            f"positions: the sequence has {n_positions} tokens, but the table of learned positions has room for {room}"
            f"{f' ({spec.n_rows} rows, the first {spec.offset} reserved)' if spec.offset else ''}. "
            f"Cut the text, or use windows of {room} tokens."
        )
