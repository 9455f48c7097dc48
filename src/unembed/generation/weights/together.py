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

from unembed.generation.weights.parts import Parts, version
from unembed.model.linear import Projection
from unembed.model.product import is_watched, product, suits, wants_gradient


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

    Each multiplies by itself where its matrix has been moved away since (another one in its place, another device), where
    gradients are wanted, and where something watches torch's operators.
    """

    def __init__(self, owns: Sequence[Projection]) -> None:
        widths = [own.weight.shape[0] for own in owns]
        self._owns, self._parts = list(owns), Parts(widths)
        self._weight = laid_out(torch.cat([own.weight for own in owns]).detach())
        self._bias: Tensor | None = None
        for own, weight in zip(owns, self._weight.split_with_sizes(widths), strict=True):
            own.weight.data = weight
        if any(own.bias is not None for own in owns):
            biases = [torch.zeros_like(own.weight[:, 0]) if own.bias is None else own.bias for own in owns]
            self._bias = torch.cat(biases).detach()
            for own, bias in zip(owns, self._bias.split_with_sizes(widths), strict=True):
                if own.bias is not None:
                    own.bias.data = bias
        self._places = [_places(own) for own in owns]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Together":
        """A copy of the model has parameters of its own, which lie elsewhere: they multiply by themselves."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """So does one that is read from a file: where its parameters lie then is nobody's choice."""
        return Apart, ()

    def part(self, x: Float[Tensor, "*axes from_width"], number: int, own: Weighted) -> Float[Tensor, "*axes to_width"]:
        """What projection `number`, whose parameters `own` has, makes of a single vector."""
        learns = wants_gradient(x, own.weight, own.bias)
        if torch.compiler.is_compiling() or is_watched() or learns or _places(own) != self._places[number]:
            return product(x, own.weight, own.bias)
        written = tuple(version(one) for other in self._owns for one in (other.weight, other.bias) if one is not None)
        return self._parts.take(x, number, written, lambda: product(x, self._weight, self._bias))


class Apart:
    """What stands for a Together in a file: each projection multiplies by itself."""

    def part(self, x: Float[Tensor, "*axes from_width"], number: int, own: Weighted) -> Float[Tensor, "*axes to_width"]:
        """What the projection makes of a single vector."""
        return product(x, own.weight, own.bias)


def _places(own: Weighted) -> tuple[int, int]:
    return own.weight.data_ptr(), 0 if own.bias is None else own.bias.data_ptr()
