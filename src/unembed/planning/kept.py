"""What autograd keeps of a forward pass until the backward pass has used it, in bytes, from the spec alone.

The functions follow the files of this folder line by line (embed, block, norms, attention, mlp, head): a product keeps
its input, a LayerNorm its input and two numbers a vector, an RMSNorm its input, one number a vector, and what its gain
multiplies; fused attention keeps q, k, v, its output and a log-sum-exp; an activation its input or its output. A tensor
that two steps keep is one tensor. A test holds the sums against what torch really keeps, to the byte in float32. The
next file to read is flops.py.
"""

from typing import NamedTuple

from unembed.model.counts import norm_names
from unembed.model.spec import (
    Activation,
    Alibi,
    Attention,
    Bidirectional,
    Block,
    Embedding,
    GatedMlp,
    LayerNorm,
    Learned,
    MappedHead,
    Norm,
    Parallel,
    PlainMlp,
    PseudoInverseHead,
    Rotary,
    TransformerSpec,
)

FLOAT32 = 4
INT64 = 8


class Batch(NamedTuple):
    """How many sequences of how many tokens, and the bytes of one number of an activation."""

    batch_size: int
    context_length: int
    number_bytes: int

    @property
    def n_tokens(self) -> int:
        """All tokens of the batch."""
        return self.batch_size * self.context_length


def vector_bytes(width: int, batch: Batch) -> int:
    """A vector of this width for every token."""
    return batch.n_tokens * width * batch.number_bytes


def kept_by_embedding(spec: TransformerSpec, batch: Batch) -> int:
    """Ids, positions, the masks of token dropout, the norm's, and what all layers of one attention rule share."""
    embedding, kept = spec.embedding, INT64 * batch.n_tokens
    kept += batch.number_bytes if embedding.scale is not None else 0
    kept += INT64 * batch.context_length if isinstance(embedding.position, Learned) else 0
    if embedding.token_dropout is not None:
        kept += batch.n_tokens + batch.batch_size * batch.number_bytes
    if embedding.norm is not None:
        kept += _norm_input(embedding.norm, embedding.d_model, batch)
        kept += _norm_own(embedding.norm, embedding.d_model, 1, batch)
    if isinstance(spec.head, PseudoInverseHead):
        kept += _factor(embedding.d_model) + _solved(embedding, batch)
    for attention in {block.attention for block in spec.blocks}:
        if isinstance(attention.position, Rotary):
            kept += 2 * attention.position.n_rotated(attention.d_head) * batch.context_length * batch.number_bytes
        elif isinstance(attention.position, Alibi) and isinstance(attention.sees, Bidirectional):
            kept += attention.n_heads * batch.context_length**2 * batch.number_bytes
    return kept


def kept_by_block(block: Block, d_model: int, batch: Batch) -> dict[str, int]:
    """By part: `stream` what enters norms, attention and MLP, `norms` what they add, `attention` and `mlp` the insides.

    A norm before a sublayer keeps the stream, and the sublayer keeps what comes out. A norm after it keeps the
    sublayer's output, or the sum with the stream, while the stream itself goes on into the next product.
    """
    n_norms = len(norm_names(block))
    entering = vector_bytes(d_model, batch)
    before_norms = _norm_input(block.norm, d_model, batch)
    is_parallel = isinstance(block.residual, Parallel)
    # both norms of a parallel block read the same stream; in half precision an RMSNorm keeps a float32 copy of its own
    n_inputs = 1 if is_parallel and before_norms == entering else n_norms
    n_sublayer_inputs = 1 if is_parallel and n_norms == 1 else 2
    return {
        "stream": n_inputs * before_norms + n_sublayer_inputs * entering,
        "norms": n_norms * _norm_own(block.norm, d_model, 1, batch),
        "attention": _attention(block.attention, batch),
        "mlp": _mlp(block.mlp, batch),
    }


def kept_by_head(spec: TransformerSpec, batch: Batch) -> int:
    """The final norm's, the transform's, and what enters the last product; logits belong to the loss."""
    d_model, head = spec.embedding.d_model, spec.head
    kept = entering = vector_bytes(d_model, batch)
    if spec.final_norm is not None:
        kept += _norm_input(spec.final_norm, d_model, batch) + _norm_own(spec.final_norm, d_model, 1, batch)
    if head.transform is not None:
        norm = head.transform.norm
        kept += entering + _activation_input(head.transform.activation) * entering
        kept += _norm_input(norm, d_model, batch) + _norm_own(norm, d_model, 1, batch)
    if isinstance(head, MappedHead):
        kept += entering
    if isinstance(head, PseudoInverseHead):  # what enters the two products with the factor, in float32
        kept += _factor(d_model) + 2 * batch.n_tokens * d_model * FLOAT32
    return kept


def _factor(d_model: int) -> int:
    """The factor as it was put together: the matrix, its diagonal, and the places of what is below it."""
    return d_model * d_model * FLOAT32 + d_model * FLOAT32 + d_model * (d_model - 1) * INT64


def _solved(embedding: Embedding, batch: Batch) -> int:
    """Both solutions, in float32; the second one is the stream itself where nothing is done to it before a norm keeps it."""
    added = (embedding.scale, embedding.position, embedding.n_token_types, embedding.token_dropout)
    is_stream = batch.number_bytes == FLOAT32 and all(one is None for one in added)
    return (1 if is_stream else 2) * batch.n_tokens * embedding.d_model * FLOAT32


def _attention(attention: Attention, batch: Batch) -> int:
    width, kv_width = attention.n_heads * attention.d_head, attention.n_kv_heads * attention.d_head
    n, size = batch.context_length, batch.number_bytes
    kept = 0
    if (norm := attention.qk_norm) is not None:
        for n_heads in (attention.n_heads, attention.n_kv_heads):
            kept += n_heads * _norm_input(norm, attention.d_head, batch)
            kept += _norm_own(norm, attention.d_head, n_heads, batch)
    window = None if isinstance(attention.sees, Bidirectional) else attention.sees.window
    has_window = window is not None and window < n
    if attention.score_softcap is not None:
        # the explicit path: q, k and v for every head, z, the capped scores, the pattern, and one byte of mask a score
        scores = batch.batch_size * attention.n_heads * n * n
        pattern = FLOAT32 if size == FLOAT32 else FLOAT32 + size
        hidden = 0 if isinstance(attention.sees, Bidirectional) else n * n
        return kept + vector_bytes(4 * width, batch) + scores * (size + pattern) + hidden
    kept += vector_bytes(2 * width + 2 * kv_width, batch) + batch.n_tokens * attention.n_heads * FLOAT32
    if isinstance(attention.position, Alibi):
        # with a mask each layer makes its own copy of the distances; without one all layers share them
        return kept + (0 if isinstance(attention.sees, Bidirectional) else attention.n_heads * n * n * size)
    return kept + (n * n * size if has_window else 0)


def _mlp(mlp: PlainMlp | GatedMlp, batch: Batch) -> int:
    """The activation's input or output, what `down` takes in, and with a gate both factors of the product."""
    n_inside = _activation_input(mlp.activation) + (3 if isinstance(mlp, GatedMlp) else 1)
    return vector_bytes(n_inside * mlp.d_mlp, batch)


def _activation_input(activation: Activation) -> int:
    """1 if a tensor is kept besides the activation's output: GELU and SiLU keep their input, squared ReLU its root."""
    return 0 if activation == "relu" else 1


def _norm_input(norm: Norm, width: int, batch: Batch) -> int:
    """The vectors that a norm keeps; RMSNorm works on float32 copies of half-precision ones."""
    return batch.n_tokens * width * (batch.number_bytes if isinstance(norm, LayerNorm) else FLOAT32)


def _norm_own(norm: Norm, width: int, vectors_per_token: int, batch: Batch) -> int:
    """What a norm keeps besides: mean and 1/deviation, or 1/root and what the gain multiplies, and 1 + gain itself."""
    n_vectors = batch.n_tokens * vectors_per_token
    if isinstance(norm, LayerNorm):
        return 2 * n_vectors * batch.number_bytes
    normed_bytes = {"none": 0, "plain": batch.number_bytes, "one_plus": FLOAT32}[norm.gain]
    one_plus_gain = width * FLOAT32 if norm.gain == "one_plus" else 0
    return n_vectors * (FLOAT32 + width * normed_bytes) + one_plus_gain
