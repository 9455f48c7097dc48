"""Norms and activations held still, so that what passes through them can be divided among those who brought it.

A norm is not linear, but at one vector it acts as a linear map: subtract the mean (LayerNorm), multiply by the inverse
deviation of that vector and by the gain, add the bias. Held at that vector, y(a + b) = y(a) + y(b) for its parts. In
attribution.py a direction, the gradient of one score, is carried back through these maps; that is the next file to read.

An MLP's activation stays inside its part; only the masked head's (norm(activation(dense x))) lies on the way to a score, and
is held at the ratio activation(u) / u of each entry.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.model.norms import LayerNormModule, RmsNormModule

Direction = Float[Tensor, " d_model"]
Norm = LayerNormModule | RmsNormModule


class FrozenNorm(NamedTuple):
    """A norm at one vector x: y = gain * (x - mean) * inverse_deviation + bias, without mean and bias for an RMSNorm."""

    mean: float | None
    inverse_deviation: float
    gain: Direction | None
    bias: Direction | None

    def back(self, direction: Direction) -> Direction:
        """What a direction of the output is at the input: v with v.x + `constant` = direction.y, for this very scale.

        The mean is linear in x, so each part loses its own mean, and only the deviation is held.
        """
        scaled = direction * self.inverse_deviation
        scaled = scaled if self.gain is None else scaled * self.gain
        return scaled if self.mean is None else scaled - scaled.mean()

    def constant(self, direction: Direction) -> float | None:
        """What the norm's own bias adds in a direction, or None where it has none."""
        return None if self.bias is None else float(self.bias @ direction)


def freeze(norm: Norm, x: Direction) -> FrozenNorm:
    """Holds a norm at one vector. In float64, as all of attribution is computed."""
    gain = None if norm.gain is None else norm.gain.double()
    if isinstance(norm, LayerNormModule):
        deviation = (x.var(unbiased=False) + norm.eps).sqrt()
        bias = None if norm.bias is None else norm.bias.double()
        return FrozenNorm(float(x.mean()), float(1 / deviation), gain, bias)
    deviation = (x.square().mean() + norm.eps).sqrt()
    return FrozenNorm(None, float(1 / deviation), 1 + gain if gain is not None and norm.is_one_plus else gain, None)


def ratio(outputs: Direction, inputs: Direction) -> Direction:
    """activation(u) / u per entry; 0 where u is 0, since all our activations are 0 there."""
    return torch.where(inputs == 0, 0.0, outputs / torch.where(inputs == 0, 1.0, inputs))
