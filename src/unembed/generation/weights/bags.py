"""A matrix times one vector, as a weighted sum of rows: what an embedding bag computes, and torch has a quick kernel for it.

W x is the sum over k of x[k] times column k. So W is stored by columns, cut into blocks of some hundred rows, and each block
is a bag: its columns, x as their weights, its part of the result as their sum. A kernel keeps the sums in registers and
reads the block from end to end, which is as fast as memory gives it, in float32 and in bytes alike; a product with rows has
to add up across a register at the end of each row, and its call costs several times as much. docs/decisions/0016 has the
measurements. The next file to read is packing.py.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unembed.model.product import is_watched

# So many columns at most are added up one after the other where it is to be exact: rounding errors grow with the root of that,
# and stay far below what 16 bits or bytes have lost.
_LONGEST = 1024
# A block's width: narrower ones are mostly overhead, wider ones pass what a kernel keeps in registers (28 of 16 numbers).
_BEST, _NARROWEST, _WIDEST = 288, 192, 400
_REGISTER = 16


class Blocks(NamedTuple):
    """How a matrix [to, from] is cut: `n` blocks of `width` rows each, the last one filled up with zeros."""

    to_width: int
    from_width: int
    n: int
    width: int

    def arranged(self, weight: Float[Tensor, "to_width from_width"]) -> Float[Tensor, "rows width"]:
        """Column k of block b as row b * from_width + k. Local axes: from_width, to_width, rows, width."""
        filled = F.pad(weight, (0, 0, 0, self.n * self.width - self.to_width))
        return filled.view(self.n, self.width, -1).transpose(1, 2).contiguous().view(-1, self.width)

    def weights(self, x: Float[Tensor, "one from_width"]) -> Float[Tensor, " rows"]:
        """The weight of each of those rows, in their order. Local axes: one, from_width, rows."""
        # one after the other in memory, whatever x was: the kernel for bytes knows no strides and reads on
        return torch.cat([x] * self.n, 1).view(-1)

    def places(self, *, in_pieces: bool) -> tuple[Int[Tensor, " rows"], Int[Tensor, " bags"]]:
        """The rows, and where each bag of them begins: a block is one bag, or several `in_pieces`. Local axes: rows, bags."""
        return _places(self.n, self.from_width, -(-self.from_width // _LONGEST) if in_pieces else 1)

    def result(self, sums: Float[Tensor, "bags width"]) -> Float[Tensor, "one to_width"]:
        """The bags' sums as one row, without what was filled up. Local axes: bags, width, one, to_width."""
        if len(sums) > self.n:
            sums = sums.view(self.n, -1, self.width).sum(1)
        return sums.view(1, -1)[:, : self.to_width]


def cut(to_width: int, from_width: int) -> Blocks:
    """Blocks for a matrix: an even number, little to fill up, of about the best width.

    By the matrix alone, not by the threads that are there, since the steps of bytes are those of a block.
    """
    most = max(1, to_width // (2 * _NARROWEST))

    def cost(pairs: int) -> tuple[float, int]:
        width = _width(to_width, 2 * pairs)
        # a block that is too wide costs more than one that is somewhat filled up
        return 2 * pairs * width / to_width + (width > _WIDEST), abs(width - _BEST)

    n = 2 * min(range(max(1, most // 3), most + 1), key=cost)
    # a small matrix is not worth two
    n = n if to_width >= n * _REGISTER * 4 else 1
    return Blocks(to_width, from_width, n, _width(to_width, n))


def _width(to_width: int, n: int) -> int:
    return -(-to_width // (n * _REGISTER)) * _REGISTER


def _places(n: int, from_width: int, pieces: int) -> tuple[Tensor, Tensor]:
    """One pair for all matrices of a shape, so that it stays in the processor's caches."""
    return (_made_places if not is_watched() else _made_places.__wrapped__)(n, from_width, pieces)


@lru_cache(maxsize=64)
def _made_places(n: int, from_width: int, pieces: int) -> tuple[Tensor, Tensor]:
    begins = [block * from_width + piece * from_width // pieces for block in range(n) for piece in range(pieces)]
    with torch.inference_mode(False):
        rows = torch.arange(n * from_width, dtype=torch.int32, device="cpu")
        return rows, torch.tensor(begins, dtype=torch.int32, device="cpu")
