"""Matrices that multiply the same vector, packed as one: q, k and v of a layer, or its gate and up, or a matrix alone.

A product of one row is bound by reading the matrix, but each call costs as much as reading a small one, and a layer has
seven matrices. The next file to read is modules.py.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.generation.weights.fresh import Origin
from unembed.generation.weights.packing import WeightKind, pack
from unembed.model.linear import Projection
from unembed.model.product import is_watched, wants_gradient


class Joined:
    """A packed copy of projections, beside their own parameters."""

    def __init__(self, owns: Sequence[Projection], kind: WeightKind, name: str) -> None:
        self._origin = Origin(_parameters(owns), name)
        self._widths = [own.weight.shape[0] for own in owns]
        self.is_exact = kind == "float32"
        self._packed = pack(kind, torch.cat([own.weight for own in owns]), _bias(owns), name)
        self.n_bytes = self._packed.n_bytes

    def parts(self, x: Float[Tensor, "*axes from_width"], now: Sequence[nn.Module]) -> Sequence[Tensor] | None:
        """What each projection makes of a single vector, [*axes, its width]; None where each has to multiply by itself.

        `now` are the projections that the model has now. They are asked where something is to learn or watches torch's
        operators, and where the packed numbers are float32's and old. Raises: UsageError where rounded ones are old.
        """
        parameters = _parameters(now)
        if not takes_packed(x, now, parameters):
            return None
        if not self.is_exact:
            self._origin.check(parameters)
        elif self._origin.is_old(parameters):
            return None
        made = self._packed.product(x.reshape(1, -1)).view(*x.shape[:-1], -1)
        return made.split_with_sizes(self._widths, dim=-1)


def takes_packed(x: Tensor, modules: Sequence[nn.Module], parameters: Sequence[Tensor | None]) -> bool:
    """Whether a packed product may stand for these modules: nobody else looks on, and nothing is to learn."""
    return not (
        torch.compiler.is_compiling()
        or wants_gradient(x, *parameters)
        or is_watched()
        or x.dtype != torch.float32
        or any(own._forward_hooks or own._forward_pre_hooks for own in modules)
    )


def _parameters(owns: Sequence[nn.Module]) -> list[Tensor | None]:
    """Weight and bias of each; what is no parameter (pruned, computed) counts as absent."""
    return [own._parameters.get(key) for own in owns for key in ("weight", "bias")]


def _bias(owns: Sequence[Projection]) -> Tensor | None:
    """All biases one after the other, zeros for a projection without one; None where none has any."""
    if all(own.bias is None for own in owns):
        return None
    return torch.cat([own.weight.new_zeros(own.weight.shape[0]) if own.bias is None else own.bias for own in owns])
