"""The matrix between a shared table and the stream of a pseudo-inverse head, and how its table stays orthonormal.

    ids ── row z of Z ── z T^-1 ── blocks ── final norm ── x T ── against every row of Z ── scores

T = L L^T is symmetric positive definite whatever the numbers of L are, its diagonal being exp(log_diagonal). Where Z has
orthonormal columns, (Z T)^T is the pseudo-inverse of Z T^-1: what embeds and what scores undo each other. T itself is never
inverted: two triangular systems are solved. Source of the idea: "Rethinking Weight Tying", arXiv:2602.04556. Ours is how
the columns are kept orthonormal: the table is trained as any other, and `retract` replaces it after every step by the
nearest orthonormal one (docs/decisions says why). The next file to read is transformer.py.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.spec import PseudoInverseHead

if TYPE_CHECKING:
    from unembed.model.transformer import Transformer


class Factor(nn.Module):
    """L, held by the logarithm of its diagonal and the numbers below it, row by row: d (d + 1) / 2 in all."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.log_diagonal = nn.Parameter(torch.empty(d_model))
        self.below = nn.Parameter(torch.empty(d_model * (d_model - 1) // 2))

    def lower(self) -> Float[Tensor, "d_model d_model"]:
        """L, in float32 at least: half precision has no triangular solver, and everything is divided by the diagonal."""
        wide = torch.promote_types(self.below.dtype, torch.float32)
        rows, columns = torch.tril_indices(len(self.log_diagonal), len(self.log_diagonal), -1, device=self.below.device)
        diagonal = torch.diag(self.log_diagonal.to(wide).exp())
        return diagonal.index_put((rows, columns), self.below.to(wide))

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """x T = (x L) L^T: what is scored against the table."""
        lower = self.lower()
        moved: Tensor = x.to(lower.dtype) @ lower @ lower.T
        return moved.to(x.dtype)

    def inverse(self, rows: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """z T^-1 = (z L^-T) L^-1, by two triangular solves: what of a table's row enters the stream."""
        lower, z = self.lower(), rows.flatten(0, -2)
        half = torch.linalg.solve_triangular(lower.T, z.to(lower.dtype), upper=True, left=False)
        whole: Tensor = torch.linalg.solve_triangular(lower, half, upper=False, left=False)
        return whole.to(rows.dtype).view_as(rows)


@torch.no_grad()
def retract(model: "Transformer") -> None:
    """After a step of an optimizer: puts the table of a pseudo-inverse head back to orthonormal columns; else does nothing.

    It is the last thing that a step does to the table, so what is saved is what was used, and a step's change of the table
    includes it. A step along the table's own length (weight decay) is undone by it.
    """
    if isinstance(model.spec.head, PseudoInverseHead):
        model.embed.table.copy_(orthonormal(model.embed.table))


def orthonormal(table: Float[Tensor, "vocab d_model"]) -> Float[Tensor, "vocab d_model"]:
    """The nearest matrix with orthonormal columns, A (A^T A)^-1/2 (the polar factor); worked out in float64.

    Of a table of normal numbers it gives every orthonormal one with the same chance. Columns that depend on each other
    have none: the result is not finite then, and training stops as it does for any number that is not.
    """
    wide = table.double()
    values, vectors = torch.linalg.eigh(wide.T @ wide)
    near: Tensor = wide @ (vectors * values.rsqrt()) @ vectors.T
    # the Gram matrix squares the table's condition; one step of Newton and Schulz squares the error that this leaves
    return (1.5 * near - 0.5 * near @ (near.T @ near)).to(table.dtype)
