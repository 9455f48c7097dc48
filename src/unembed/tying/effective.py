"""The two matrices as they act: what a token's id becomes in the stream, and what the final norm's output is scored against.

In a tied model both are the table, in an untied one two parameters. With a map between table and stream neither use is the
table itself, and what acts is the product. Row scales of the spec and a masked model's transform stand apart from both. The
next file to read is alike.py, which compares the two.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.model.transformer import Transformer


class Effective(NamedTuple):
    """One row a token in both: what embeds it, and what scores it."""

    embeds: Float[Tensor, "vocab d_model"]
    scores: Float[Tensor, "vocab d_model"]


@torch.no_grad()
def effective_tables(model: Transformer) -> Effective:
    """E and E for a tied head, E and U for an untied one, E and E W for a mapped one, Z T^-1 and Z T for a pseudo-inverse.

    Products are worked out in float64 and given in the table's type; where nothing is multiplied it is the parameter itself.
    """
    table, head = model.embed.table.detach(), model.head
    wide = table.double()
    if head.map is not None:
        # x is mapped to x W^T and scored against E: x (E W)^T
        return Effective(table, (wide @ head.map.weight.detach().double()).to(table.dtype))
    if head.factor is not None:
        lower = head.factor.lower().double()
        embeds = torch.cholesky_solve(wide.T, lower).T
        return Effective(embeds.to(table.dtype), (wide @ lower @ lower.T).to(table.dtype))
    return Effective(table, model.unembed_table().detach())
