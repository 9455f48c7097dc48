"""What a preset is made from: a row of a family's list, and the parts that most families share.

One row a preset, so that each family's file reads as data. The functions below fill in what nearly all published models
leave out (no cap, no scale, no norm on q and k); what a family does have stands in its own file by name. The next file
to read is gpt.py, the first family.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from unembed.model.spec import (
    Alibi,
    Attention,
    Bidirectional,
    Causal,
    Embedding,
    HeadTransform,
    Learned,
    Norm,
    Rotary,
    TiedHead,
    TokenDropout,
    TransformerSpec,
    UntiedHead,
)

Bias = Literal["q", "k", "v", "o"]
EVERY_BIAS: tuple[Bias, ...] = ("q", "k", "v", "o")


class Row(NamedTuple):
    """One preset before it is made: nothing is built until somebody asks for the name."""

    make: Callable[[], TransformerSpec]
    source: str
    note: str = ""


def embedding(
    vocab_size: int,
    d_model: int,
    *,
    scale: float | None = None,
    position: Learned | None = None,
    n_token_types: int | None = None,
    norm: Norm | None = None,
    token_dropout: TokenDropout | None = None,
) -> Embedding:
    """A token table and whatever else is named."""
    return Embedding(
        vocab_size=vocab_size,
        d_model=d_model,
        scale=scale,
        position=position,
        n_token_types=n_token_types,
        norm=norm,
        token_dropout=token_dropout,
    )


def attention(
    n_heads: int,
    d_head: int,
    *,
    n_kv_heads: int | None = None,
    score_scale: float | None = None,
    score_softcap: float | None = None,
    position: Rotary | Alibi | None = None,
    sees: Causal | Bidirectional,
    biases: tuple[Bias, ...] = (),
    qk_norm: Norm | None = None,
) -> Attention:
    """Attention with scores over sqrt(d_head) and as many key heads as heads, unless said otherwise."""
    return Attention(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads or n_heads,
        d_head=d_head,
        score_scale=score_scale or d_head**-0.5,
        score_softcap=score_softcap,
        position=position,
        sees=sees,
        biases=biases,
        qk_norm=qk_norm,
    )


def head(
    *,
    is_tied: bool,
    transform: HeadTransform | None = None,
    has_bias: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> TiedHead | UntiedHead:
    """A head of either kind."""
    return (TiedHead if is_tied else UntiedHead)(transform=transform, has_bias=has_bias, scale=scale, softcap=softcap)
