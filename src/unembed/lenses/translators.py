"""The tuned lens's translators: for each layer a matrix and a vector that turn its stream into what the last layer expects.

A stream x of layer l is read as head(x + x W_l^T + b_l). With W and b at 0 that is the logit lens; trained, the change of
basis that the layers above would have made is in W, and what is left differs from the final answer for want of knowledge,
not of language. The last layer is read as it is. Source: Belrose et al. 2023, arXiv:2303.08112, section 3. The next file to
read is tuned_start.py, where they get their first values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.model.spec import TransformerSpec


@dataclass(frozen=True)
class Translators:
    """One affine map a layer, layers 0 to n_layers - 1, in float32; `about` says what they were made for and how well they do.

    Local axis: layer_in, the width of the stream that is read; it equals d_model.
    """

    weight: Float[Tensor, "layer d_model layer_in"]
    bias: Float[Tensor, "layer d_model"]
    about: dict[str, Any]

    @staticmethod
    def zeros(spec: TransformerSpec) -> "Translators":
        """Translators that change nothing: the logit lens."""
        width, n = spec.embedding.d_model, spec.n_layers
        return Translators(torch.zeros(n, width, width), torch.zeros(n, width), {})

    @property
    def n_layers(self) -> int:
        """How many layers are translated; the one above them is the model's own answer."""
        return len(self.weight)

    def one(self, layer: int, states: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """Some states of one layer, translated; those of the last layer come back as they are.

        Computed in float32 or better, and given back in the states' own type.
        """
        if layer >= self.n_layers:
            return states
        wide = states.float() if states.dtype in (torch.float16, torch.bfloat16) else states
        weight = self.weight[layer].to(wide.device, wide.dtype)
        moved = wide + (wide @ weight.T + self.bias[layer].to(wide.device, wide.dtype))
        return moved.to(states.dtype)

    def __call__(
        self, layers: Sequence[int], states: Float[Tensor, "layer pos d_model"]
    ) -> Float[Tensor, "layer pos d_model"]:
        """States of several layers, each through its own translator: what reading.py calls on their way to the head."""
        return torch.stack([self.one(layer, one) for layer, one in zip(layers, states, strict=True)])
