"""float32 matrices laid out as one row is multiplied with them fastest, those that read the same vector one after the other.

The parameters stay the model's, with their values, shapes and names: only where they lie changes, so nothing can grow old.
A product of one row is bound by reading the matrix, but each call costs as much as reading a small one, and a layer has
seven matrices: q, k and v are multiplied as one, gate and up as another. The next file to read is copies.py.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.linear import Projection
from unembed.model.product import product, suits


def laid_out(weight: Float[Tensor, "to_width from_width"]) -> Float[Tensor, "to_width from_width"]:
    """The same matrix, stored row by row where oneDNN multiplies it (model/product.py), otherwise column by column.

    Files have most matrices row by row, and then nothing is copied; GPT-2's have them the other way, three in one. MKL
    reads columns half as fast again as rows. Local axes: from_width, to_width.
    """
    by_rows = weight.contiguous()
    return by_rows if suits(by_rows[:1], by_rows, learns=False) else weight.t().contiguous().t()


class Weighted(Protocol):
    """What has the parameters of a projection."""

    weight: nn.Parameter
    bias: nn.Parameter | None


class Together:
    """Projections that read the same vector, moved into one matrix: one product, and each takes its part of it.

    The product is kept until its last part is taken, and taken only for the very tensor that it was made of. A projection
    whose matrix has been moved away since (another one in its place, another device) multiplies by itself, and so does each
    where gradients are wanted.
    """

    def __init__(self, owns: Sequence[Projection]) -> None:
        biases = [torch.zeros_like(own.weight[:, 0]) if own.bias is None else own.bias for own in owns]
        self._weight = laid_out(torch.cat([own.weight for own in owns]).detach())
        self._bias = torch.cat(biases).detach() if any(own.bias is not None for own in owns) else None
        self._widths = [own.weight.shape[0] for own in owns]
        self._x: Tensor | None = None
        self._parts: tuple[Tensor, ...] = ()
        for own, weight, bias in zip(owns, self._split(self._weight), self._split(self._bias), strict=True):
            own.weight.data = weight
            if own.bias is not None:
                own.bias.data = bias
        self._places = [_places(own.weight, own.bias) for own in owns]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Together":
        """A copy of the model has parameters of its own, which lie elsewhere: they multiply by themselves."""
        return self

    def part(self, x: Float[Tensor, "*axes from_width"], number: int, own: Weighted) -> Float[Tensor, "*axes to_width"]:
        """What projection `number`, whose parameters `own` has, makes of a single vector."""
        weight, bias = own.weight, own.bias
        if _places(weight, bias) != self._places[number] or (torch.is_grad_enabled() and weight.requires_grad):
            return product(x, weight, bias)
        if x is not self._x:
            self._x, self._parts = x, product(x, self._weight, self._bias).split_with_sizes(self._widths, dim=-1)
        part = self._parts[number]
        if number == len(self._widths) - 1:
            self._x, self._parts = None, ()
        return part

    def _split(self, whole: Tensor | None) -> Sequence[Any]:
        return [None] * len(self._widths) if whole is None else whole.split_with_sizes(self._widths)


def _places(weight: Tensor, bias: Tensor | None) -> tuple[int, int]:
    return weight.data_ptr(), 0 if bias is None else bias.data_ptr()
