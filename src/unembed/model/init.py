"""What every number starts as, as a named choice. Nothing is hidden in the modules, and the global generator is not used.

    tensor                    gpt2                      andrea                    zero_out
    embed.table               N(0, std)                 N(0, 1/sqrt(d_model))     as gpt2
    embed.pos/type_table      N(0, std)                 N(0, 1/sqrt(d_model))     as gpt2
    head.table                N(0, std)                 N(0, 1/sqrt(d_model))     as gpt2
    attn.{q,k,v}_proj, mlp.{gate,up}, head.transform
                              N(0, std)                 N(0, 1/sqrt(width read))  as gpt2
    attn.o_proj, mlp.down     N(0, std / sqrt(2 L))     N(0, 1/sqrt(width read) / sqrt(2 L))   0
    head.map                  the identity
    head.factor               0, so L and T are the identity
    every bias                0                         0                         0
    every gain                1 (0 where 1 + gain multiplies)

A table that a pseudo-inverse head shares is drawn as above and then replaced by the nearest one with orthonormal columns.
L is the number of layers. The 1/sqrt(2L) keeps the stream's variance from growing with depth, each layer adding twice.
The next file to read is ../objectives/loss.py.
"""

import math
from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor

from unembed.model.counts import TensorInfo, tensors
from unembed.model.factor import orthonormal
from unembed.model.spec import PseudoInverseHead, RmsNorm, Spec, TransformerSpec
from unembed.model.transformer import Transformer


class Gpt2Init(Spec, tag="gpt2", frozen=True, kw_only=True):
    """N(0, std^2), residual projections divided by sqrt(2L). Source: GPT-2 and nanoGPT, std 0.02."""

    std: float


class AndreaInit(Spec, tag="andrea", frozen=True, kw_only=True):
    """Tables N(0, 1/d_model), matrices N(0, 1/width read), residual projections divided by sqrt(2L)."""


class ZeroOutInit(Spec, tag="zero_out", frozen=True, kw_only=True):
    """As gpt2, but o_proj and down start at zero: every block is the identity at first. Source: modded-nanogpt."""

    std: float


Init = Gpt2Init | AndreaInit | ZeroOutInit


class TensorInit(msgspec.Struct, frozen=True, kw_only=True):
    """How one tensor starts: a constant, or normal with mean 0 and a standard deviation; `diagonal` is added to its own."""

    info: TensorInfo
    std: float
    constant: float
    diagonal: float = 0.0


def init_table(spec: TransformerSpec, init: Init) -> list[TensorInit]:
    """The start of every tensor of a model, in its order: what a report shows and `initialise` does."""
    return [_start_of(info, spec, init) for info in tensors(spec)]


def build(spec: TransformerSpec, init: Init, *, seed: int, dtype: torch.dtype = torch.float32) -> Transformer:
    """Makes a model on the CPU with seeded starting values. The same spec, init and seed give the same bits.

    >>> from unembed.model.presets import preset
    >>> build(preset("mini-gpt").spec, Gpt2Init(std=0.02), seed=0).embed.table.shape
    torch.Size([64, 64])
    """
    model = Transformer(spec).to(dtype)
    initialise(model, init, seed=seed)
    return model


@torch.no_grad()
def initialise(model: Transformer, init: Init, *, seed: int) -> None:
    """Fills every parameter in place, from a generator of its own, in the order of `tensors(spec)`."""
    parameters = dict(model.named_parameters())
    for name, value in starting_values(model.spec, init, seed=seed):
        parameters.pop(name).copy_(value)
    assert not parameters, f"parameters that the spec does not imply: {sorted(parameters)}"


def starting_values(spec: TransformerSpec, init: Init, *, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Name and first value of every tensor, one at a time, for whoever has no room for all of them."""
    generator = torch.Generator().manual_seed(seed)
    for start in init_table(spec, init):
        # drawn in float32 on the CPU whatever the model's type and device, so that they do not change the numbers
        value = torch.empty(start.info.shape, dtype=torch.float32)
        if start.std > 0:
            value.normal_(0.0, start.std, generator=generator)
        else:
            value.fill_(start.constant)
        if start.diagonal:
            value.diagonal().add_(start.diagonal)
        is_orthonormal = start.info.name == "embed.table" and isinstance(spec.head, PseudoInverseHead)
        yield start.info.name, orthonormal(value.double()) if is_orthonormal else value


def _start_of(info: TensorInfo, spec: TransformerSpec, init: Init) -> TensorInit:
    if info.kind in ("bias", "gain", "factor"):
        return TensorInit(info=info, std=0.0, constant=_gain(info, spec) if info.kind == "gain" else 0.0)
    if info.kind == "map":
        return TensorInit(info=info, std=0.0, constant=0.0, diagonal=1.0)
    writes_stream = info.name.endswith(("attn.o_proj.weight", "mlp.down.weight"))
    depth = 1 / math.sqrt(2 * spec.n_layers) if writes_stream else 1.0
    match init:
        case Gpt2Init(std=std):
            return TensorInit(info=info, std=std * depth, constant=0.0)
        case ZeroOutInit(std=std):
            return TensorInit(info=info, std=0.0 if writes_stream else std, constant=0.0)
        case AndreaInit():
            width = info.shape[-1]  # for a table that is d_model
            return TensorInit(info=info, std=depth / math.sqrt(width), constant=0.0)


def _gain(info: TensorInfo, spec: TransformerSpec) -> float:
    """1, or 0 where the norm multiplies by 1 + gain."""
    path = info.name.split(".")
    if path[0] == "embed":
        norm = spec.embedding.norm
    elif path[0] == "final_norm":
        norm = spec.final_norm
    elif path[0] == "head":
        norm = None if spec.head.transform is None else spec.head.transform.norm
    else:
        block = spec.blocks[int(path[1])]
        norm = block.attention.qk_norm if path[2] == "attn" else block.norm
    return 0.0 if isinstance(norm, RmsNorm) and norm.gain == "one_plus" else 1.0
