"""Fixed waves added to the embedding: each pair of entries is a clock hand of its own speed.

PE(p + k) is a rotation of PE(p) by an angle that depends on k alone, which is what lets attention compare places.
The next file to read is rotary.py, which turns that idea into the attention itself.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.model.spec import Sinusoidal


def sinusoids(
    spec: Sinusoidal, positions: Int[Tensor, "#batch pos"], like: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "#batch pos d_model"]:
    """PE(p, 2i) = sin(p / theta^(2i/d)) and PE(p, 2i+1) = cos(the same angle), of the width and type of `like`.

    An odd width ends with a sine that has no cosine. Angles are computed in float64: in float32 a position of 100,000
    would be off by a hundredth of a radian. Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    d_model = like.shape[-1]
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model
    angles = positions[..., None].double() * spec.theta**-exponents
    # [.., pair, 2] flattened puts each sine before its cosine
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return waves[..., :d_model].to(like.dtype)
