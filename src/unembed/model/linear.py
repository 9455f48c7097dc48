"""A matrix and perhaps a bias; product.py says which library multiplies them. The next file to read is attention.py.

torch's own Linear draws random numbers from the global generator when it is made; building a model must neither spend
that time nor disturb the caller's randomness, so parameters are allocated here and given values by init.py or a file.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.product import product


class Projection(nn.Module):
    """y = x W^T + b, with W stored [to, from] as in Hugging Face files. Axes: `from_width`, `to_width` are local."""

    def __init__(self, from_width: int, to_width: int, *, has_bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(to_width, from_width))
        self.bias = nn.Parameter(torch.empty(to_width)) if has_bias else None

    def forward(self, x: Float[Tensor, "*axes from_width"]) -> Float[Tensor, "*axes to_width"]:
        """Maps the last axis."""
        return product(x, self.weight, self.bias)
