"""Matrices that multiply the same vector, packed as one: q, k and v of a layer, or its gate and up, or a matrix alone.

A product of one row is bound by reading the matrix, but each call costs as much as reading a small one, and a layer has
seven matrices. The next file to read is modules.py.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.generation.weights.fresh import Origin
from unembed.generation.weights.packing import WeightKind, pack
from unembed.model.linear import Projection
from unembed.model.product import is_watched, wants_gradient


class Joined:
    """A packed copy of projections, beside their own parameters."""

    def __init__(self, owns: Sequence[Projection], kind: WeightKind, name: str) -> None:
        self._origin = Origin([(own, key) for own in owns for key in ("weight", "bias")], name)
        self._widths = [own.weight.shape[0] for own in owns]
        self.is_exact = kind == "float32"
        self._packed = pack(kind, torch.cat([own.weight for own in owns]), _bias(owns), name)
        self.n_bytes = self._packed.n_bytes

    def parts(self, x: Float[Tensor, "*axes from_width"], now: Sequence[Projection]) -> Sequence[Tensor] | None:
        """What each projection makes of a single vector, [*axes, its width]; None where each has to multiply by itself.

        `now` are the projections that the model has now. float32's numbers are the parameters', so where those have changed,
        are to learn, or are watched, they are taken themselves. Raises: UsageError where rounded ones are old.
        """
        if self.is_exact:
            parameters = (one for own in now for one in (own.weight, own.bias))
            if torch.compiler.is_compiling() or is_watched() or wants_gradient(x, *parameters):
                return None
            if self._origin.is_old(now):
                return None
        else:
            self._origin.check(now)
        made = self._packed.product(x.reshape(1, -1)).view(*x.shape[:-1], -1)
        return made.split_with_sizes(self._widths, dim=-1)


def _bias(owns: Sequence[Projection]) -> Tensor | None:
    """All biases one after the other, zeros for a projection without one; None where none has any."""
    if all(own.bias is None for own in owns):
        return None
    return torch.cat([own.weight.new_zeros(own.weight.shape[0]) if own.bias is None else own.bias for own in owns])
