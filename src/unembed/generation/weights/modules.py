"""Modules that stand where attention, an MLP, a projection or a head stood, and take one product for a single vector.

Their parameters are the model's own, under the same names: a packed matrix is a derived copy and no parameter. More than
one row at a time (a prompt, a batch) goes through the parameters themselves, as exactly as before: packed kernels are quick
for one row only. The next file to read is norms.py.
"""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.generation.weights.fresh import Origin
from unembed.generation.weights.joined import Joined, takes_packed
from unembed.generation.weights.packing import WeightKind, pack
from unembed.model.attention import AttentionModule
from unembed.model.head import Head
from unembed.model.linear import Projection
from unembed.model.mlp import MlpModule
from unembed.model.taps import Tap


class RowAttention(AttentionModule):
    """As `AttentionModule`, with q, k and v of a single vector by one product."""

    def __init__(self, own: AttentionModule, derived: Joined) -> None:
        become(self, own)
        self.derived = derived

    def _projected(self, attn_in: Float[Tensor, "batch pos d_model"]) -> tuple[Tensor, Tensor, Tensor]:
        if is_one_row(attn_in):
            parts = self.derived.parts(attn_in, (self.q_proj, self.k_proj, self.v_proj))
            if parts is not None:
                q, k, v = parts
                return q, k, v
        return super()._projected(attn_in)


class RowMlp(MlpModule):
    """As `MlpModule` with a gate, whose gate and up of a single vector are one product."""

    def __init__(self, own: MlpModule, derived: Joined) -> None:
        become(self, own)
        self.derived = derived

    def _widened(
        self, mlp_in: Float[Tensor, "batch pos d_model"]
    ) -> tuple[Float[Tensor, "batch pos d_mlp"] | None, Float[Tensor, "batch pos d_mlp"]]:
        if self.gate is not None and is_one_row(mlp_in):
            parts = self.derived.parts(mlp_in, (self.gate, self.up))
            if parts is not None:
                gate, up = parts
                return gate, up
        return super()._widened(mlp_in)


class PackedProjection(Projection):
    """As `Projection`, with the packed matrix for a single row. Axes: `from_width`, `to_width` are local."""

    def __init__(self, own: Projection, derived: Joined) -> None:
        become(self, own)
        self.derived = derived

    def forward(self, x: Float[Tensor, "*axes from_width"]) -> Float[Tensor, "*axes to_width"]:
        """Maps the last axis."""
        parts = self.derived.parts(x, (self,)) if is_one_row(x) else None
        return super().forward(x) if parts is None else parts[0]


class PackedHead(Head):
    """As `Head`, with `derived_table`, a packed copy of the unembedding table, for a single row.

    A tied head stays tied: the copy is made from the table that embeds, which goes on embedding.
    """

    def __init__(self, own: Head, unembed_table: Float[Tensor, "vocab d_model"], kind: WeightKind) -> None:
        become(self, own)
        self._origin = Origin([unembed_table, own.bias], "the unembedding table")
        self.derived_table = pack(kind, unembed_table, own.bias, "the unembedding table")

    def forward(
        self, normed: Float[Tensor, "batch pos d_model"], embed_table: Float[Tensor, "vocab d_model"], tap: Tap
    ) -> Float[Tensor, "batch pos vocab"]:
        """Scores every row of the table; see `Head.forward`. The tap `unembed.table` is not called for a single row."""
        parameters = [embed_table if self.table is None else self.table, self.bias]
        if not is_one_row(normed) or not takes_packed(normed, (), parameters):
            return super().forward(normed, embed_table, tap)
        self._origin.check(parameters)
        logits = self.derived_table.product(self.features(normed).reshape(1, -1)).view(1, 1, -1)
        if (cap := self.spec.softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        return tap("logits", logits)


def is_one_row(x: Float[Tensor, "*axes width"]) -> bool:
    """Whether there is a single vector. Local axis: width."""
    return x.numel() == x.shape[-1]


def become(new: nn.Module, own: nn.Module) -> None:
    """Gives a new module all that another one has, the parameters and modules themselves."""
    nn.Module.__init__(new)
    vars(new).update(copied_fields(own))


def copied_fields(own: nn.Module) -> dict[str, Any]:
    """A module's fields, its dictionaries (parameters, modules, hooks) as copies, so that what is added is added to one."""
    return {name: copy.copy(value) if isinstance(value, dict) else value for name, value in vars(own).items()}
