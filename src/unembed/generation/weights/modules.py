"""Modules that stand where a projection or a head stood, and multiply a single vector with the packed matrix.

Their parameters are the model's own, under the same names: the packed matrix is a derived copy and no parameter. More than
one row at a time (a prompt, a batch) goes through the parameters themselves, as exactly as before: the packed kernels are
quick for one row only. The next file to read is copies.py.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from unembed.generation.weights.packing import WeightKind, pack
from unembed.model.head import Head
from unembed.model.linear import Projection
from unembed.model.taps import Tap


class PackedProjection(nn.Module):
    """As `Projection`, with a packed copy of its weight for a single row. Axes: `from_width`, `to_width` are local."""

    def __init__(self, own: Projection, kind: WeightKind, name: str) -> None:
        super().__init__()
        self.weight, self.bias = own.weight, own.bias
        self.derived = pack(kind, own.weight, own.bias, name)

    def forward(self, x: Float[Tensor, "*axes from_width"]) -> Float[Tensor, "*axes to_width"]:
        """Maps the last axis."""
        if x.numel() != x.shape[-1]:
            return F.linear(x, self.weight, self.bias)
        return self.derived.product(x.view(1, -1)).view(*x.shape[:-1], -1)


class PackedHead(nn.Module):
    """As `Head`, with `derived_table`, a packed copy of the unembedding table, for a single row.

    A tied head stays tied: the copy is made from the table that embeds, which goes on embedding.
    """

    def __init__(self, own: Head, unembed_table: Float[Tensor, "vocab d_model"], kind: WeightKind) -> None:
        super().__init__()
        self.spec, self._own = own.spec, (own,)  # in a tuple, so that its parameters are not registered a second time
        self.transform, self.table, self.bias = own.transform, own.table, own.bias
        self.derived_table = pack(kind, unembed_table, own.bias, "the unembedding table")

    def features(self, normed: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the table is multiplied with."""
        return self._own[0].features(normed)

    def forward(
        self, normed: Float[Tensor, "batch pos d_model"], embed_table: Float[Tensor, "vocab d_model"], tap: Tap
    ) -> Float[Tensor, "batch pos vocab"]:
        """Scores every row of the table; see `Head.forward`. The tap `unembed.table` is not called for a single row."""
        if normed.shape[:-1].numel() != 1:
            out: Tensor = self._own[0](normed, embed_table, tap)
            return out
        x = self.features(normed)
        logits = self.derived_table.product(x.view(1, -1)).view(1, 1, -1)
        if (cap := self.spec.softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        return tap("logits", logits)
