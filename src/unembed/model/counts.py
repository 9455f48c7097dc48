"""Every tensor that a spec implies, and the accounts that follow: parameters, shares, bytes, and what tying saves.

Nothing is allocated and torch is not imported, so counting GPT-3 takes no longer than counting a toy. The list made by
`tensors` is the only one: init.py gives each of its entries a starting scale, a test holds it against the modules, and
checkpoints are accounted for with it. The next file to read is taps.py, or ../planning/flops.py for costs.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from unembed.model.spec import (
    Attention,
    Block,
    Embedding,
    GatedMlp,
    LayerNorm,
    Learned,
    MappedHead,
    Norm,
    NoShortcut,
    Parallel,
    PlainMlp,
    PseudoInverseHead,
    Serial,
    TransformerSpec,
    UntiedHead,
)

Part = Literal["token_table", "positions", "attention", "mlp", "norms", "head"]
PARTS: tuple[Part, ...] = ("token_table", "positions", "attention", "mlp", "norms", "head")

BYTES_PER_NUMBER = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


class TensorInfo(NamedTuple):
    """One parameter: its name in the model and in the file, its shape, the part it is counted under, and its kind."""

    name: str
    shape: tuple[int, ...]
    part: Part
    kind: Literal["table", "matrix", "map", "factor", "bias", "gain"]

    @property
    def n_numbers(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts of one spec. `parameters` counts a shared table once; `table_parameters` is one V x d table."""

    parameters: int
    parameters_untied: int
    table_parameters: int
    tied: bool
    by_part: dict[str, int]

    @property
    def tying_saves(self) -> int:
        """Parameters that sharing the table saves, or would save."""
        return self.table_parameters


def count(spec: TransformerSpec) -> Counts:
    """Counts the parameters of a spec, each once, in total and by part.

    parameters_untied is the same model with a head of its own: V * d_model more when it is tied, without the matrix where
    it is tied through one.
    """
    by_part: dict[str, int] = dict.fromkeys(PARTS, 0)
    between = 0
    for tensor in tensors(spec):
        by_part[tensor.part] += tensor.n_numbers
        between += tensor.n_numbers if tensor.kind in ("map", "factor") else 0
    table = spec.embedding.vocab_size * spec.embedding.d_model
    total = sum(by_part.values())
    return Counts(
        parameters=total,
        parameters_untied=total + (table - between if spec.ties_embeddings else 0),
        table_parameters=table,
        tied=spec.ties_embeddings,
        by_part=by_part,
    )


def tensors(spec: TransformerSpec) -> Iterator[TensorInfo]:
    """Lists every parameter in the order in which a token meets it; a tied head adds no table.

    >>> from unembed.model.presets import preset
    >>> [tensor.name for tensor in tensors(preset("mini-gpt").spec)][:3]
    ['embed.table', 'blocks.0.attn_norm.gain', 'blocks.0.attn_norm.bias']
    """
    yield from _embedding(spec.embedding)
    for index, block in enumerate(spec.blocks):
        yield from _block(f"blocks.{index}.", block, spec.embedding.d_model)
    yield from _norm("final_norm.", spec.final_norm, spec.embedding.d_model)
    yield from _head(spec)


def _embedding(embedding: Embedding) -> Iterator[TensorInfo]:
    d_model = embedding.d_model
    yield TensorInfo("embed.table", (embedding.vocab_size, d_model), "token_table", "table")
    if isinstance(embedding.position, Learned):
        yield TensorInfo("embed.pos_table", (embedding.position.n_rows, d_model), "positions", "table")
    if embedding.n_token_types is not None:
        yield TensorInfo("embed.type_table", (embedding.n_token_types, d_model), "positions", "table")
    yield from _norm("embed.norm.", embedding.norm, d_model)


def norm_names(block: Block) -> tuple[str, ...]:
    """Which of a block's four possible norms exist, by the way in which it meets the residual stream."""
    match block.residual:
        case Serial(norm_at="pre") | NoShortcut() | Parallel(shares_norm=False):
            return ("attn_norm", "mlp_norm")
        case Serial(norm_at="post"):
            return ("attn_post_norm", "mlp_post_norm")
        case Parallel():
            return ("attn_norm",)
        case _:
            return ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm")


def _block(prefix: str, block: Block, d_model: int) -> Iterator[TensorInfo]:
    names = norm_names(block)
    for name in (n for n in names if n == "attn_norm"):
        yield from _norm(f"{prefix}{name}.", block.norm, d_model)
    yield from _attention(prefix + "attn.", block.attention, d_model)
    for name in (n for n in names if n in ("attn_post_norm", "mlp_norm")):
        yield from _norm(f"{prefix}{name}.", block.norm, d_model)
    yield from _mlp(prefix + "mlp.", block.mlp, d_model)
    for name in (n for n in names if n == "mlp_post_norm"):
        yield from _norm(f"{prefix}{name}.", block.norm, d_model)


def _attention(prefix: str, attention: Attention, d_model: int) -> Iterator[TensorInfo]:
    width, kv_width = attention.n_heads * attention.d_head, attention.n_kv_heads * attention.d_head
    shapes = {"q": (width, d_model), "k": (kv_width, d_model), "v": (kv_width, d_model), "o": (d_model, width)}
    for name, shape in shapes.items():
        yield from _projection(f"{prefix}{name}_proj.", shape, name in attention.biases, "attention")
    yield from _norm(prefix + "q_norm.", attention.qk_norm, attention.d_head)
    yield from _norm(prefix + "k_norm.", attention.qk_norm, attention.d_head)


def _mlp(prefix: str, mlp: PlainMlp | GatedMlp, d_model: int) -> Iterator[TensorInfo]:
    into = ("gate", "up") if isinstance(mlp, GatedMlp) else ("up",)
    for name in into:
        yield from _projection(f"{prefix}{name}.", (mlp.d_mlp, d_model), mlp.has_bias, "mlp")
    yield from _projection(prefix + "down.", (d_model, mlp.d_mlp), mlp.has_bias, "mlp")


def _head(spec: TransformerSpec) -> Iterator[TensorInfo]:
    vocab_size, d_model, head = spec.embedding.vocab_size, spec.embedding.d_model, spec.head
    if head.transform is not None:
        yield from _projection("head.transform.dense.", (d_model, d_model), True, "head")
        yield from _norm("head.transform.norm.", head.transform.norm, d_model)
    if isinstance(head, UntiedHead):
        yield TensorInfo("head.table", (vocab_size, d_model), "head", "table")
    if isinstance(head, MappedHead):
        yield TensorInfo("head.map.weight", (d_model, d_model), "head", "map")
    if isinstance(head, PseudoInverseHead):
        yield TensorInfo("head.factor.log_diagonal", (d_model,), "head", "factor")
        yield TensorInfo("head.factor.below", (d_model * (d_model - 1) // 2,), "head", "factor")
    if head.has_bias:
        yield TensorInfo("head.bias", (vocab_size,), "head", "bias")


def _projection(prefix: str, shape: tuple[int, int], has_bias: bool, part: Part) -> Iterator[TensorInfo]:
    yield TensorInfo(prefix + "weight", shape, part, "matrix")
    if has_bias:
        yield TensorInfo(prefix + "bias", shape[:1], part, "bias")


def _norm(prefix: str, norm: Norm | None, width: int) -> Iterator[TensorInfo]:
    if norm is None:
        return
    if isinstance(norm, LayerNorm) or norm.gain != "none":
        yield TensorInfo(prefix + "gain", (width,), "norms", "gain")
    if isinstance(norm, LayerNorm) and norm.has_bias:
        yield TensorInfo(prefix + "bias", (width,), "norms", "bias")
