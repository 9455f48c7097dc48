"""What one micro-batch asks of a device, piece by piece: products, attention, passes over tensors, and the update.

Each piece is a kind of work at one shape, and how often it is done; rates.py and measured.py say how long one takes
there. The list follows the files of model/ as kept.py does. The next file to read is rates.py.
"""

from collections import Counter
from typing import Literal, NamedTuple

from unembed.model.counts import norm_names
from unembed.model.spec import (
    Attention,
    GatedMlp,
    Norm,
    PlainMlp,
    Rotary,
    TransformerSpec,
)

Part = Literal["embedding", "attention", "mlp", "norms", "head", "loss"]
Kind = Literal["product", "attention", "norm", "add", "rotate", "activate", "gate", "lookup", "loss"]


class Piece(NamedTuple):
    """Work at one shape: `shape` is [rows, from, to] for a product, [batch, pos] for attention, [rows, width] otherwise.

    `what` is the part of the spec that says more: an attention, a norm, an activation's name.
    """

    part: Part
    kind: Kind
    shape: tuple[int, ...]
    what: Attention | Norm | str | None = None


def pieces(spec: TransformerSpec, batch_size: int, context_length: int) -> Counter[Piece]:
    """The pieces of one forward pass over a micro-batch and of its way back, each with its number. Dropout is not there."""
    rows, d_model = batch_size * context_length, spec.embedding.d_model
    found: Counter[Piece] = Counter()
    found[Piece("embedding", "lookup", (rows, d_model), str(spec.embedding.vocab_size))] += 1
    for block in spec.blocks:
        attention, mlp = block.attention, block.mlp
        width, kv_width = attention.n_heads * attention.d_head, attention.n_kv_heads * attention.d_head
        for inner, outer in ((d_model, width), (d_model, kv_width), (d_model, kv_width), (width, d_model)):
            found[Piece("attention", "product", (rows, inner, outer))] += 1
        if attention.qk_norm is not None:
            for n_heads in (attention.n_heads, attention.n_kv_heads):
                found[Piece("norms", "norm", (rows * n_heads, attention.d_head), attention.qk_norm)] += 1
        if isinstance(attention.position, Rotary):
            for one in (width, kv_width):
                found[Piece("attention", "rotate", (rows, one), str(attention.d_head))] += 1
        found[Piece("attention", "attention", (batch_size, context_length), attention)] += 1
        found[Piece("norms", "norm", (rows, d_model), block.norm)] += len(norm_names(block))
        found[Piece("norms", "add", (rows, d_model))] += 2
        found.update(_mlp(mlp, rows, d_model))
    if spec.final_norm is not None:
        found[Piece("norms", "norm", (rows, d_model), spec.final_norm)] += 1
    if spec.head.transform is not None:
        found[Piece("head", "product", (rows, d_model, d_model))] += 1
        found[Piece("head", "activate", (rows, d_model), spec.head.transform.activation)] += 1
        found[Piece("norms", "norm", (rows, d_model), spec.head.transform.norm)] += 1
    found[Piece("head", "product", (rows, d_model, spec.embedding.vocab_size))] += 1
    found[Piece("loss", "loss", (rows, spec.embedding.vocab_size))] += 1
    return found


def _mlp(mlp: PlainMlp | GatedMlp, rows: int, d_model: int) -> Counter[Piece]:
    found: Counter[Piece] = Counter()
    found[Piece("mlp", "product", (rows, d_model, mlp.d_mlp))] += 2 if isinstance(mlp, GatedMlp) else 1
    found[Piece("mlp", "product", (rows, mlp.d_mlp, d_model))] += 1
    found[Piece("mlp", "activate", (rows, mlp.d_mlp), mlp.activation)] += 1
    if isinstance(mlp, GatedMlp):
        found[Piece("mlp", "gate", (rows, mlp.d_mlp))] += 1
    return found
