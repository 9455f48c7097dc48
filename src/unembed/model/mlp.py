"""The MLP: each position on its own is widened, bent by an activation, and brought back.

The gated form multiplies two widened copies, one of them bent (SwiGLU, GeGLU). The next file to read is block.py.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unembed.model.linear import Projection
from unembed.model.spec import Activation, GatedMlp, PlainMlp
from unembed.model.taps import Tap


def activate(name: Activation, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Bends each number: exact GELU x Phi(x), its tanh approximation, ReLU, ReLU squared, or SiLU x sigmoid(x).

    GPT-2's files mean the tanh form, nanoGPT's default is the exact one; they differ by up to 5e-4.
    """
    match name:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "relu_squared":
            return torch.square(F.relu(x))
        case "silu":
            return F.silu(x)


class MlpModule(nn.Module):
    """down(activation(up(x))), or down(activation(gate(x)) * up(x)) for a gated spec."""

    def __init__(self, spec: PlainMlp | GatedMlp, d_model: int) -> None:
        super().__init__()
        self.activation = spec.activation
        is_gated = isinstance(spec, GatedMlp)
        self.gate = Projection(d_model, spec.d_mlp, has_bias=spec.has_bias) if is_gated else None
        self.up = Projection(d_model, spec.d_mlp, has_bias=spec.has_bias)
        self.down = Projection(spec.d_mlp, d_model, has_bias=spec.has_bias)

    def forward(self, mlp_in: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """Back at the width of the stream. `mlp_pre` is what the activation sees, `mlp_act` what `down` sees."""
        gate, up = self._widened(mlp_in)
        if gate is None:
            act = activate(self.activation, tap("mlp_pre", up))
        else:
            act = activate(self.activation, tap("mlp_pre", gate)) * tap("mlp_up", up)
        out: Tensor = self.down(tap("mlp_act", act))
        return out

    def _widened(
        self, mlp_in: Float[Tensor, "batch pos d_model"]
    ) -> tuple[Float[Tensor, "batch pos d_mlp"] | None, Float[Tensor, "batch pos d_mlp"]]:
        """The gate, where there is one, and what goes up."""
        return None if self.gate is None else self.gate(mlp_in), self.up(mlp_in)
