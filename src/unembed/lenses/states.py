"""The residual stream of a forward, layer by layer: what every lens reads.

Layer 0 is the stream before the first block, layer n the stream after n blocks. The stream inside a block, after its
attention and before its MLP, is named by the half: 0.5 is inside the first block. States are copied into one array as the
forward goes on, so nothing of the forward is kept alive.

Which normaliser reads them? The model's own, on each state's own size (never the last layer's scale, which would make
early layers look unsure). In a pre-norm model that is the final norm. A post-norm model (BERT) has none: each state has
been normalised by its own block already and goes to the head's transform as it is; a second norm would no longer give
the model's own answer at the last layer. The next file to read is logit_lens.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import UsageError
from unembed.model.spec import NoShortcut, Parallel, Serial, TransformerSpec
from unembed.model.taps import Tap
from unembed.model.transformer import Transformer


class States(NamedTuple):
    """States and the layers that they were taken from, in order; the last one is always the stream after the last block."""

    layers: list[float]
    values: Float[Tensor, "layer batch pos d_model"]


def all_layers(spec: TransformerSpec, *, after_attention: bool = False) -> list[float]:
    """Every layer that can be read: 0 to n_layers, with `after_attention` the halves as well.

    Raises: UsageError where a block has no place between attention and MLP.
    """
    if not after_attention:
        return list(range(spec.n_layers + 1))
    if any(isinstance(block.residual, Parallel) for block in spec.blocks):
        raise UsageError(
            "lens: this model's blocks add attention and MLP at once, so no stream stands between them; leave "
            "after_attention out"
        )
    return [0, *(layer for i in range(spec.n_layers) for layer in (i + 0.5, i + 1))]


@torch.no_grad()
def take_states(
    model: Transformer,
    ids: Int[Tensor, "batch pos"],
    *,
    layers: Sequence[float] | None = None,
    after_attention: bool = False,
) -> States:
    """Runs the model once and keeps the chosen layers; None is all of them. The last layer is always kept.

    The forward takes the same attention path as a plain one, and what it computes stays the same to the bit.
    Raises: UsageError for a layer that does not exist; ShapeError for ids without a row.
    """
    known = all_layers(model.spec, after_attention=after_attention or _has_halves(layers))
    if layers is None:
        chosen = known
    else:
        if unknown := [layer for layer in layers if layer not in known]:
            raise UsageError(f"lens: there is no layer {unknown[0]}; this model has 0 to {model.spec.n_layers}")
        chosen = [layer for layer in known if layer in layers or layer == model.spec.n_layers]
    table = model.embed.table
    ids = ids.to(table.device)
    values = torch.empty(len(chosen), *ids.shape, table.shape[1], dtype=table.dtype, device=table.device)
    keeper = _Keeper({_tap_of(layer): values[i] for i, layer in enumerate(chosen) if layer != model.spec.n_layers})
    values[-1] = model.hidden(ids, tap=keeper)
    return States(chosen, values)


def notes_on(spec: TransformerSpec) -> list[str]:
    """What a reader has to know of this model's topology before trusting its early layers (catalogue keys)."""
    residuals = [block.residual for block in spec.blocks]
    notes = []
    if any(isinstance(one, Serial) and one.norm_at == "post" for one in residuals):
        notes.append("lens_post_norm")
    if any(isinstance(one, NoShortcut) for one in residuals):
        notes.append("lens_no_shortcut")
    return notes


class _Keeper:
    """A tap that copies the named tensors to where they belong, and changes nothing."""

    def __init__(self, places: dict[str, Tensor], prefix: str = "") -> None:
        self._places, self._prefix = places, prefix

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        place = self._places.get(self._prefix + name)
        if place is not None:
            place.copy_(value)
        return value

    def inside(self, layer: int, /) -> Tap:
        return _Keeper(self._places, f"blocks.{layer}.")


def _tap_of(layer: float) -> str:
    if layer == 0:
        return "blocks.0.resid_pre"
    block = int(layer + 0.5) - 1
    return f"blocks.{block}.resid_mid" if layer % 1 else f"blocks.{block}.resid_post"


def _has_halves(layers: Sequence[float] | None) -> bool:
    return layers is not None and any(isinstance(layer, float) and layer % 1 == 0.5 for layer in layers)
