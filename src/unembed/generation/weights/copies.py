"""A model whose matrices lie as decoding wants them: the same class, the same spec, the same code, other storage.

Nothing in model/ knows of it: a copy of the model's tree shares every parameter, and only projections and head are exchanged
(modules.py). For float32 the parameters keep their values, shapes and names, and only lie elsewhere (together.py). The next
file to read is rounding.py.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from unembed.errors import UsageError
from unembed.generation.checks import check_model
from unembed.generation.weights.fresh import places_of
from unembed.generation.weights.modules import Joined, PackedHead, PackedProjection
from unembed.generation.weights.packing import WeightKind, check_kind, unavailable
from unembed.generation.weights.together import Together, laid_out
from unembed.model.attention import AttentionModule
from unembed.model.head import Head
from unembed.model.linear import Projection
from unembed.model.mlp import MlpModule
from unembed.model.transformer import Transformer


def with_weights(model: Transformer, kind: WeightKind) -> Transformer:
    """A model for writing one text at a time, the given one being left as it is.

    `float32` is a copy stored as `lay_out` does it: the same numbers, so the same ids but where two scores are equal to the
    last digits. The others round: what a new token passes through is packed, prompts and batches go through the exact weights,
    which both models share. When those change (training, load_state_dict) the packed ones are old: the next token is then
    refused, and this has to be called again; a float32 copy goes on as it was. Raises: UsageError where a kind does not exist
    or cannot be had here; InputError where numbers do not fit it.
    """
    kind = check_kind(kind)
    _check_float32(check_model(model))
    if (reason := unavailable(kind, model.embed.table.device)) is not None:
        raise UsageError(f"weights: {reason}")
    if kind == "float32":
        return lay_out(_rebuilt(model, lambda _: None, copies_parameters=True))

    exchanged = _exchanged(model, lambda owns, name: Joined(owns, kind, name))

    def packed(module: nn.Module) -> nn.Module | None:
        if not isinstance(module, Head):
            return exchanged.get(module)
        table = model.unembed_table()
        return PackedHead(module, table, kind, places_of(model, table))

    return _rebuilt(model, packed)


def lay_out(model: Transformer) -> Transformer:
    """The model with its matrices stored as one row is multiplied with them fastest (together.py); no number changes.

    The parameters are those of the given model, moved, so it must not be compiled or sharded. A tied table stays one
    matrix, and no memory is added once it is done.
    """
    _check_float32(check_model(model))
    exchanged = _exchanged(model, lambda owns, _: Together(owns) if len(owns) > 1 else None)
    alone = [one.weight for one in model.modules() if isinstance(one, Projection) and one not in exchanged]
    for weight in (*alone, model.unembed_table()):
        weight.data = laid_out(weight.data)
    return _rebuilt(model, exchanged.get)


def _exchanged(
    model: Transformer, join: Callable[[list[Projection], str], Joined | Together | None]
) -> dict[nn.Module, nn.Module]:
    """For each projection of the blocks another in its place; those that read the same vector share what `join` makes."""
    made: dict[nn.Module, nn.Module] = {}
    for name, module in model.blocks.named_modules():
        groups: list[dict[str, Projection]] = []
        if isinstance(module, AttentionModule):
            groups = [
                {"q_proj": module.q_proj, "k_proj": module.k_proj, "v_proj": module.v_proj},
                {"o_proj": module.o_proj},
            ]
        elif isinstance(module, MlpModule):
            gate = {} if module.gate is None else {"gate": module.gate}
            groups = [gate | {"up": module.up}, {"down": module.down}]
        for group in groups:
            owns = list(group.values())
            if (joined := join(owns, f"blocks.{name}.{', '.join(group)}")) is not None:
                made |= {own: PackedProjection(own, joined, number) for number, own in enumerate(owns)}
    return made


def derived_bytes(model: Transformer) -> int:
    """The bytes of packed copies that a model of `with_weights` has beside its own parameters; 0 for any other."""
    derived = {one.derived for one in model.modules() if isinstance(one, PackedProjection)}
    packed = [one.packed for one in derived if isinstance(one, Joined)]
    tables = [one.derived_table for one in model.modules() if isinstance(one, PackedHead)]
    return sum(one.n_bytes for one in (*packed, *tables))


def _check_float32(model: Transformer) -> None:
    found = {parameter.dtype for parameter in model.parameters()}
    if found != {torch.float32}:
        said = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in found))
        raise UsageError(
            f"weights: the model is {said}, expected float32. Load it with dtype='float32', which is exact"
        )


def _rebuilt(
    root: Transformer,
    exchange: Callable[[nn.Module], nn.Module | None],
    *,
    copies_parameters: bool = False,
) -> Transformer:
    """A copy of the tree of modules; `exchange` may give another module for one, otherwise its parameters are shared.

    With `copies_parameters` they are copied, each once, so that what was tied stays tied.
    """
    done: dict[int, nn.Parameter] = {}

    def parameter_of(own: nn.Parameter | None) -> nn.Parameter | None:
        if own is None or not copies_parameters:
            return own
        if id(own) not in done:
            done[id(own)] = nn.Parameter(own.detach().clone(), requires_grad=own.requires_grad)
        return done[id(own)]

    def rebuild(module: nn.Module) -> nn.Module:
        if (other := exchange(module)) is not None:
            return other
        new = copy.copy(module)
        fields: dict[str, Any] = vars(new)
        fields["_parameters"] = {key: parameter_of(own) for key, own in module._parameters.items()}
        fields["_modules"] = {key: None if child is None else rebuild(child) for key, child in module._modules.items()}
        return new

    made = rebuild(root)
    assert isinstance(made, Transformer)
    return made
