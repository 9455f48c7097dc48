"""How much of the gradient reaches each depth: through the blocks, and through the stream that runs beside them.

A block that adds to the stream, y = x + F(x), passes a gradient on as dL/dx = dL/dy (I + dF/dx): the I is the shortcut, and
without it the gradient is a product of as many factors as there are layers. Here both are measured by depth, the gradient of
the stream itself and that of each block's parameters. Source: He et al. 2016, arXiv:1603.05027, section 2. The next file to
read is ../recipes/depth.py, which trains the same model with the shortcut, without it, and with its norms elsewhere.
"""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from unembed.lenses.asking import refuse_broken
from unembed.lenses.gradient_norms import differentiable, squares_by_layer
from unembed.model.taps import Recorder
from unembed.model.transformer import Transformer
from unembed.objectives import next_token_loss
from unembed.results import Picture, Result, Table


def gradient_flow(model: Transformer, ids: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch pos"]) -> Result:
    """Measures |dL/dx| of the stream x after each layer, and |dL/dw| of that layer's parameters w.

    L is the mean loss in nats per counted token, the norms are over all positions and sequences together. Table `flow`, one
    row a depth: `layer` (0 is the embedding and the stream before the first block), `stream_grad_norm`, `grad_norm` of the
    layer's parameters, and `stream_grad_log10`, null where the gradient is exactly 0. Values: `loss_nats`, and
    `reaches_first`, the stream's gradient before the first block over that after the last: below 1 it fades on its way
    down, above 1 it grows. Nothing is stepped and no `.grad` is touched. Raises: ShapeError when ids or targets do not fit;
    InputError where the loss is no number.
    """
    device = model.embed.table.device
    n_layers = model.spec.n_layers
    named = dict(model.named_parameters())
    recorder = Recorder(["blocks.0.resid_pre", "blocks.*.resid_post"] if n_layers else ["embed"])
    with differentiable(model):
        loss = next_token_loss(model(ids.to(device), tap=recorder), targets.to(device)).mean()
        refuse_broken("flow", loss.detach(), "losses")
        streams = list(recorder.values.values())
        found = torch.autograd.grad(loss, [*streams, *named.values()], allow_unused=True)
    of_streams = [_norm(gradient) for gradient in found[: len(streams)]]
    gradients = {name: one for name, one in zip(named, found[len(streams) :], strict=True) if one is not None}
    squares = squares_by_layer(gradients)
    layers = ["embedding", *(str(layer) for layer in range(1, n_layers + 1))]
    table = Table(
        columns={
            "layer": list(range(n_layers + 1)),
            "stream_grad_norm": of_streams,
            "stream_grad_log10": [math.log10(norm) if norm > 0 else None for norm in of_streams],
            "grad_norm": [squares.get(layer, 0.0) ** 0.5 for layer in layers],
        }
    )
    return Result(
        name="flow",
        tables={"flow": table},
        values={
            "loss_nats": float(loss.detach()),
            "reaches_first": of_streams[0] / of_streams[-1] if of_streams[-1] > 0 else None,
        },
        pictures=(
            Picture(
                key="flow",
                kind="lines",
                table="flow",
                x="layer",
                y="stream_grad_log10",
                tooltip=("layer", "stream_grad_norm", "grad_norm"),
            ),
        ),
    )


def _norm(gradient: Tensor | None) -> float:
    """In float64, so that what half precision would round to 0 or infinity is still told apart; 0 where none arrived."""
    return 0.0 if gradient is None else float(gradient.detach().double().norm())
