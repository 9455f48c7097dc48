"""Masked models of BERT's shape: BERT, RoBERTa, and ChemBERTa for molecules.

They see both ways, norm after each addition instead of before, norm the summed embedding, and score through a head of
dense, GELU and norm before the tied table and its bias. Positions of the RoBERTas start after the padding id, so their
tables have two rows more than they have positions. The next file to read is esm.py.
"""

from functools import partial
from typing import NamedTuple

from unembed.model.presets.row import EVERY_BIAS, Row, attention, embedding, head
from unembed.model.spec import (
    Bidirectional,
    Block,
    HeadTransform,
    LayerNorm,
    Learned,
    PlainMlp,
    Serial,
    TransformerSpec,
)


class Size(NamedTuple):
    """What differs between these models: `n_rows` of the position table, of which the first `offset` name no position."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    d_mlp: int
    n_rows: int
    offset: int
    n_token_types: int
    eps: float


def bert_spec(size: Size) -> TransformerSpec:
    """norm(x + attention(x)), norm(x + mlp(x)), 512 positions. Source: arXiv:1810.04805; transformers' modeling_bert.py.

    BERT's pooler belongs to its other task and is no part of the masked model.
    """
    norm = LayerNorm(eps=size.eps, has_bias=True)
    block = Block(
        attention=attention(size.n_heads, size.d_model // size.n_heads, sees=Bidirectional(), biases=EVERY_BIAS),
        mlp=PlainMlp(d_mlp=size.d_mlp, activation="gelu", has_bias=True),
        norm=norm,
        residual=Serial(norm_at="post"),
    )
    return TransformerSpec(
        context_length=512,
        embedding=embedding(
            size.vocab_size,
            size.d_model,
            position=Learned(n_rows=size.n_rows, offset=size.offset),
            n_token_types=size.n_token_types,
            norm=norm,
        ),
        blocks=(block,) * size.n_layers,
        final_norm=None,
        head=head(is_tied=True, transform=HeadTransform(activation="gelu", norm=norm), has_bias=True),
    )


# vocabulary, width, layers, heads, MLP width, position rows, offset, token types, eps
ROWS: dict[str, Row] = {
    "bert-base-uncased": Row(
        partial(bert_spec, Size(30_522, 768, 12, 12, 3072, 512, 0, 2, 1e-12)),
        "config.json of google-bert/bert-base-uncased",
        "Without the pooler, which the masked model does not use.",
    ),
    "roberta-base": Row(
        partial(bert_spec, Size(50_265, 768, 12, 12, 3072, 514, 2, 1, 1e-5)),
        "config.json of FacebookAI/roberta-base",
        "Position p reads row p + 2.",
    ),
    "chemberta-zinc-base": Row(
        partial(bert_spec, Size(767, 768, 6, 12, 3072, 514, 2, 1, 1e-5)),
        "config.json of seyonec/ChemBERTa-zinc-base-v1",
        "Byte-level BPE over SMILES. Position p reads row p + 2.",
    ),
    "chemberta-77m": Row(
        partial(bert_spec, Size(600, 384, 3, 12, 464, 515, 2, 1, 1e-12)),
        "config.json of DeepChem/ChemBERTa-77M-MLM",
        "77M counts the molecules it was trained on: it has 3.4M parameters. Position p reads row p + 2.",
    ),
}
