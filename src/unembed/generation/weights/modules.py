"""Modules that stand where a projection or a head stood, and multiply a single vector with the packed matrix.

Their parameters are the model's own, under the same names: the packed matrix is a derived copy and no parameter. More than
one row at a time (a prompt, a batch) goes through the parameters themselves, as exactly as before: the packed kernels are
quick for one row only. The next file to read is together.py, which has float32's way.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unembed.generation.weights.fresh import Origin
from unembed.generation.weights.packing import WeightKind, pack
from unembed.generation.weights.parts import Parts
from unembed.generation.weights.together import Apart, Together, Weighted
from unembed.model.head import Head
from unembed.model.linear import Projection
from unembed.model.product import product
from unembed.model.taps import Tap


class Joined:
    """Projections that read the same vector, packed as one matrix: one product, and each takes its part of it.

    A kernel's call costs as much as reading a small matrix, and a layer has seven matrices. The product is kept until its last
    part is taken, and taken only for the very tensor that it was made of.
    """

    def __init__(self, owns: Sequence[Projection], kind: WeightKind, name: str) -> None:
        self._origin = Origin([(own, key) for own in owns for key in ("weight", "bias")], name)
        self._parts = Parts([own.weight.shape[0] for own in owns])
        biases = [own.weight.new_zeros(own.weight.shape[0]) if own.bias is None else own.bias for own in owns]
        bias = torch.cat(biases).detach() if any(own.bias is not None for own in owns) else None
        self.packed = pack(kind, torch.cat([own.weight for own in owns]).detach(), bias, name)

    def part(self, x: Float[Tensor, "*axes from_width"], number: int, own: Weighted) -> Float[Tensor, "*axes to_width"]:
        """What projection `number` makes of a single vector. Axes: `from_width`, `to_width` are local."""

        def make() -> Tensor:
            self._origin.check()
            return self.packed.product(x.view(1, -1)).view(*x.shape[:-1], -1)

        return self._parts.take(x, number, (), make)


class PackedProjection(nn.Module):
    """As `Projection`, with its part of a joined product for a single row. Axes: `from_width`, `to_width` are local."""

    def __init__(self, own: Projection, derived: Joined | Together | Apart, number: int) -> None:
        super().__init__()
        self.weight, self.bias = own.weight, own.bias
        self.derived, self._number = derived, number

    def forward(self, x: Float[Tensor, "*axes from_width"]) -> Float[Tensor, "*axes to_width"]:
        """Maps the last axis."""
        if x.numel() != x.shape[-1]:
            return product(x, self.weight, self.bias)
        return self.derived.part(x, self._number, self)


class PackedHead(nn.Module):
    """As `Head`, with `derived_table`, a packed copy of the unembedding table, for a single row.

    A tied head stays tied: the copy is made from the table that embeds, which goes on embedding. `places` are the modules
    that hold the table, and its name there.
    """

    def __init__(
        self,
        own: Head,
        unembed_table: Float[Tensor, "vocab d_model"],
        kind: WeightKind,
        places: Sequence[tuple[nn.Module, str]],
    ) -> None:
        super().__init__()
        # whatever a head has now or some day, absent parts too, under the same names
        vars(self).update(vars(own) | {"_parameters": dict(own._parameters), "_modules": dict(own._modules)})
        self.spec, self._own = own.spec, (own,)  # in a tuple, so that its parameters are not registered a second time
        self._origin = Origin([*places, (own, "bias")], "the unembedding table")
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
        self._origin.check()
        x = self.features(normed)
        logits = self.derived_table.product(x.view(1, -1)).view(1, 1, -1)
        if (cap := self.spec.softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        return tap("logits", logits)
