"""How long the gradient is in each layer: where a training step moves the model, and where the signal dies or explodes.

One forward and one backward pass on given tokens; nothing is stepped, and the parameters' own `.grad` stay as they were.
A tied table has one gradient, the sum of both of its uses, and counts with the embedding. The next file to read is
gradient_flow.py, which follows the gradient through the stream itself.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from unembed.model.transformer import Transformer
from unembed.objectives import next_token_loss
from unembed.results import Picture, Result, Table


def gradient_norms(model: Transformer, ids: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]) -> Result:
    """Measures |dL/dw| over all parameters w of each layer, L being the mean loss in nats per counted token.

    Table `gradient_norms`, in the order in which a token meets the layers: `where` (`embedding`, the number of a block
    from 1 on, `final`), `grad_norm`, `share` (of the squares of all layers) and `weight_norm`. `final` is the final norm
    and whatever a head has of its own; a model without either has no such row. Values: `loss_nats`, and `grad_norm` of
    all layers together, the root of the sum of squares: nothing is clipped. Raises: ShapeError when ids or targets do
    not fit.
    """
    named = dict(model.named_parameters())
    device = model.embed.table.device
    with differentiable(model):
        loss = next_token_loss(model(ids.to(device)), targets.to(device)).mean()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    gradients = {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}
    squares = squares_by_layer(gradients)
    weights = squares_by_layer({name: parameter.detach() for name, parameter in named.items()})
    layers = sorted(weights, key=_order)
    total = sum(squares.values())
    table = Table(
        columns={
            "where": layers,
            "grad_norm": [squares.get(layer, 0.0) ** 0.5 for layer in layers],
            "share": [squares.get(layer, 0.0) / total if total else 0.0 for layer in layers],
            "weight_norm": [weights[layer] ** 0.5 for layer in layers],
        }
    )
    return Result(
        name="gradient_norms",
        tables={"gradient_norms": table},
        values={"loss_nats": float(loss.detach()), "grad_norm": total**0.5},
        pictures=(Picture(key="gradient_norms", kind="bars", table="gradient_norms", x="grad_norm", y="where"),),
    )


@contextmanager
def differentiable(model: Transformer) -> Iterator[None]:
    """Gradients are recorded inside, also for parameters that are frozen, which are frozen again afterwards."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        with torch.enable_grad():
            yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def squares_by_layer(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Sums of squares in float64: half precision overflows at 65,504."""
    sums: dict[str, float] = {}
    for name, tensor in tensors.items():
        layer = _layer_of(name)
        sums[layer] = sums.get(layer, 0.0) + float(tensor.double().square().sum())
    return sums


def _layer_of(name: str) -> str:
    block = re.match(r"blocks\.(\d+)\.", name)
    if block:
        return str(int(block[1]) + 1)
    return "embedding" if name.startswith("embed.") else "final"


def _order(layer: str) -> int:
    return {"embedding": 0, "final": 10**9}.get(layer) or (int(layer) if layer.isdigit() else 0)
