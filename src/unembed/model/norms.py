"""The two norms: each position's vector on its own, never across the batch.

Both are computed in float32 when the input is a half-precision type: 300^2 overflows float16, and eight such entries
would silently become wrong answers. The next file to read is masks.py.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.spec import LayerNorm, Norm, RmsNorm


class LayerNormModule(nn.Module):
    """gain * (x - mean(x)) / sqrt(var(x) + eps) + bias over the last axis; the variance divides by the width."""

    def __init__(self, spec: LayerNorm, width: int) -> None:
        super().__init__()
        self.eps = spec.eps
        self.gain = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if spec.has_bias else None

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Normalises the last axis; torch's kernel holds half-precision inputs in float32 inside."""
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class RmsNormModule(nn.Module):
    """x / sqrt(mean(x^2) + eps) over the last axis, times nothing, the gain, or 1 + gain."""

    def __init__(self, spec: RmsNorm, width: int) -> None:
        super().__init__()
        self.eps = spec.eps
        self.width = width
        self.is_one_plus = spec.gain == "one_plus"
        self.gain = nn.Parameter(torch.empty(width)) if spec.gain != "none" else None

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Normalises the last axis in float32 or better and returns the type that came.

        The plain gain multiplies after the result is rounded to the input's type, 1 + gain before: so do the published
        Llama and Gemma models, and in half precision the order shows.
        """
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        if self.gain is not None and self.is_one_plus:
            return F.rms_norm(wide, (self.width,), 1.0 + self.gain.to(wide.dtype), self.eps).to(x.dtype)
        if x.dtype == wide.dtype:
            return F.rms_norm(x, (self.width,), self.gain, self.eps)
        normed = F.rms_norm(wide, (self.width,), None, self.eps).to(x.dtype)
        return normed if self.gain is None else normed * self.gain


def make_norm(spec: Norm, width: int) -> LayerNormModule | RmsNormModule:
    """Builds the module of a norm's spec; its parameters are allocated and not yet given values (init.py does)."""
    return LayerNormModule(spec, width) if isinstance(spec, LayerNorm) else RmsNormModule(spec, width)
