"""A model whose matrices lie as decoding wants them: the same class, the same spec, the same code, other storage.

Nothing in model/ knows of it: a copy of the model's tree shares every parameter, and only attention, MLPs, norms and head are
exchanged for such as know a way for one row (modules.py, norms.py). The next file to read is rounding.py.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unembed.errors import UsageError
from unembed.generation.checks import check_model
from unembed.generation.weights.joined import Joined
from unembed.generation.weights.modules import PackedHead, PackedProjection, RowAttention, RowMlp, copied_fields
from unembed.generation.weights.norms import RowNorm
from unembed.generation.weights.packing import WeightKind, check_kind, gains_float32, unavailable
from unembed.model.attention import AttentionModule
from unembed.model.head import Head
from unembed.model.linear import Projection
from unembed.model.mlp import MlpModule
from unembed.model.norms import RmsNormModule
from unembed.model.transformer import Transformer

# What stands in the place of what, and the fields that it has beside.
_DERIVED: dict[type[nn.Module], type[nn.Module]] = {
    RowAttention: AttentionModule,
    RowMlp: MlpModule,
    PackedProjection: Projection,
    PackedHead: Head,
    RowNorm: RmsNormModule,
}
_FIELDS = ("derived", "derived_table", "_origin", "_zeros")


def with_weights(model: Transformer, kind: WeightKind) -> Transformer:
    """A model for writing one text at a time, the given one being left as it is.

    What a new token passes through is packed; prompts and batches go through the exact weights, which both models share.
    `float32` packs the numbers themselves: the same ids but where two scores are equal to the last digits. The others round.
    So do those that look on: hooks on a projection, gradients, torch's modes, a compiler. When the exact weights change
    (training, load_state_dict) the packed ones are old: those of float32 are no longer asked, with the others the next token
    is refused, and this has to be called again. Raises: UsageError where a kind does not exist
    or cannot be had here; InputError where numbers do not fit it.
    """
    kind = check_kind(kind)
    _check_float32(check_model(model))
    device = model.embed.table.device
    if (reason := unavailable(kind, device)) is not None:
        raise UsageError(f"weights: {reason}")
    exchanged: dict[nn.Module, nn.Module] = {
        norm: RowNorm(norm) for norm in model.modules() if isinstance(norm, RmsNormModule) and _is_plain(norm)
    }
    if kind != "float32" and _is_plain(model.head) and _is_plain(model.embed):
        exchanged[model.head] = PackedHead(model.head, model.unembed_table(), kind)
    if kind != "float32" or gains_float32(device):
        for name, module, owns in _products(model):
            if not all(map(_is_plain, (module, *owns))):  # computed weights are computed anew for each token
                continue
            exchanged[module] = _in_place_of(module, Joined(owns, kind, name))
    return _rebuilt(model, exchanged)


def packed_bytes(model: Transformer) -> int:
    """What `with_weights(model, "float32")` would add at most."""
    return sum(one.numel() * 4 for one in model.blocks.parameters())


def _products(model: Transformer) -> Iterator[tuple[str, nn.Module, list[Projection]]]:
    """Each product of the blocks: its name, the module that asks for it, and the projections that it is of."""
    for path, module in model.blocks.named_modules():
        name = f"blocks.{path}"
        if isinstance(module, AttentionModule):
            yield f"{name}.q_proj, k_proj, v_proj", module, [module.q_proj, module.k_proj, module.v_proj]
            yield f"{name}.o_proj", module.o_proj, [module.o_proj]
        elif isinstance(module, MlpModule):
            if module.gate is None:
                yield f"{name}.up", module.up, [module.up]
            else:
                yield f"{name}.gate, up", module, [module.gate, module.up]
            yield f"{name}.down", module.down, [module.down]


def _is_plain(module: nn.Module) -> bool:
    """Whether a module's weights are its own parameters: none is computed from others (parametrized, pruned, weight_norm)."""
    computed = (isinstance(field, Tensor) for name, field in vars(module).items() if name not in _FIELDS)
    return not parametrize.is_parametrized(module) and not any(computed)


def _in_place_of(module: nn.Module, derived: Joined) -> nn.Module:
    if isinstance(module, AttentionModule):
        return RowAttention(module, derived)
    if isinstance(module, MlpModule):
        return RowMlp(module, derived)
    assert isinstance(module, Projection)
    return PackedProjection(module, derived)


def derived_bytes(model: Transformer) -> int:
    """The bytes of packed copies that a model of `with_weights` has beside its own parameters; 0 for any other."""
    total = 0
    for one in model.modules():
        if isinstance(one, RowAttention | RowMlp | PackedProjection):
            total += one.derived.n_bytes
        elif isinstance(one, PackedHead):
            total += one.derived_table.n_bytes
    return total


def is_rounded(model: Transformer) -> bool:
    """Whether what a new token passes through is rounded, while prompts and batches go through exact weights."""
    derived = (one.derived for one in model.modules() if isinstance(one, RowAttention | RowMlp | PackedProjection))
    return isinstance(model.head, PackedHead) or not all(one.is_exact for one in derived)


def _check_float32(model: Transformer) -> None:
    found = {parameter.dtype for parameter in model.parameters()}
    if found != {torch.float32}:
        said = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in found))
        raise UsageError(
            f"weights: the model is {said}, expected float32. Load it with dtype='float32', which is exact"
        )


def _rebuilt(root: Transformer, exchanged: dict[nn.Module, nn.Module]) -> Transformer:
    """A copy of the tree of modules, with another one in place of each that is `exchanged`; parameters are shared."""

    def rebuild(module: nn.Module) -> nn.Module:
        new = exchanged[module] if module in exchanged else _plain(module)
        fields: dict[str, Any] = vars(new)
        fields["_modules"] = {key: None if child is None else rebuild(child) for key, child in module._modules.items()}
        return new

    made = rebuild(root)
    assert isinstance(made, Transformer)
    return made


def _plain(module: nn.Module) -> nn.Module:
    """A copy of a module that shares its parameters; of one that stood in another's place, as that one was."""
    kind = next((plain for derived, plain in _DERIVED.items() if type(module) is derived), type(module))
    new: nn.Module = object.__new__(kind)
    vars(new).update({name: field for name, field in copied_fields(module).items() if name not in _FIELDS})
    return new
