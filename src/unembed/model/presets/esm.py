"""Masked models of biology: ESM-2 for proteins, the Nucleotide Transformer for DNA.

Pre-norm encoders with biases and a masked-model head of dense, GELU, norm, table and bias. ESM-2 turns q and k and ties
its table; the first Nucleotide Transformer has learned positions, the second turns, gates its MLP and drops that MLP's
biases; both are untied. ESM-2 and the first scale every vector for the masks that training would have seen.
"""

from functools import partial
from typing import NamedTuple

from unembed.model.presets.row import EVERY_BIAS, Row, attention, embedding, head
from unembed.model.spec import (
    Bidirectional,
    Block,
    GatedMlp,
    HeadTransform,
    LayerNorm,
    Learned,
    PlainMlp,
    Rotary,
    Serial,
    TokenDropout,
    TransformerSpec,
)

_ROTARY = Rotary(theta=1e4, pairing="half", fraction=1.0, scaling=None)


class Size(NamedTuple):
    """What differs between the sizes of one family."""

    d_model: int
    n_layers: int
    n_heads: int
    d_mlp: int


def esm2_spec(size: Size) -> TransformerSpec:
    """ESM-2 without its contact head, which reads attention maps and has no part in the scores.

    Source: github.com/facebookresearch/esm, esm2.py and modules.py; transformers' modeling_esm.py.
    """
    return _encoder(
        size,
        vocab_size=33,
        context_length=1026,
        eps=1e-5,
        mlp=PlainMlp(d_mlp=size.d_mlp, activation="gelu", has_bias=True),
        position=_ROTARY,
        # mask id 32; 15 % of the letters were chosen in training and 80 % of those masked
        token_dropout=TokenDropout(mask_id=32, trained_share=0.12),
        is_tied=True,
    )


def nt_v1_spec(size: Size) -> TransformerSpec:
    """The first Nucleotide Transformer: 6-mers, learned positions. Source: its repository's model.py and docs."""
    return _encoder(
        size,
        vocab_size=4105,
        context_length=1000,
        eps=1e-12,
        mlp=PlainMlp(d_mlp=size.d_mlp, activation="gelu", has_bias=True),
        position=Learned(n_rows=1002, offset=2),
        token_dropout=TokenDropout(mask_id=2, trained_share=0.12),
        is_tied=False,
    )


def nt_v2_spec(size: Size) -> TransformerSpec:
    """The second Nucleotide Transformer: rotary, gated SiLU without biases. Source: its repository's model.py and docs."""
    return _encoder(
        size,
        vocab_size=4107,
        context_length=2048,
        eps=1e-12,
        mlp=GatedMlp(d_mlp=size.d_mlp, activation="silu", has_bias=False),
        position=_ROTARY,
        token_dropout=None,
        is_tied=False,
    )


def _encoder(
    size: Size,
    *,
    vocab_size: int,
    context_length: int,
    eps: float,
    mlp: PlainMlp | GatedMlp,
    position: Rotary | Learned,
    token_dropout: TokenDropout | None,
    is_tied: bool,
) -> TransformerSpec:
    norm = LayerNorm(eps=eps, has_bias=True)
    block = Block(
        attention=attention(
            size.n_heads,
            size.d_model // size.n_heads,
            position=position if isinstance(position, Rotary) else None,
            sees=Bidirectional(),
            biases=EVERY_BIAS,
        ),
        mlp=mlp,
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(
            vocab_size,
            size.d_model,
            position=position if isinstance(position, Learned) else None,
            token_dropout=token_dropout,
        ),
        blocks=(block,) * size.n_layers,
        final_norm=norm,
        head=head(is_tied=is_tied, transform=HeadTransform(activation="gelu", norm=norm), has_bias=True),
    )


_ESM2 = "config.json of facebook/{}; github.com/facebookresearch/esm"
_ESM2_NOTE = "1,024 residues between <cls> and <eos>. Without the contact head."
_NT = "config.json of InstaDeepAI/{}"
_NT_NOTE = "Eps is that of the Hugging Face files; the JAX code has 1e-5."
_NT_V2_NOTE = " Hugging Face files carry 2,050 unused position rows besides."

# name: (file, size, what is odd)
_ESM2_SIZES = {
    "esm2-8m": ("esm2_t6_8M_UR50D", Size(320, 6, 20, 1280), ""),
    "esm2-35m": ("esm2_t12_35M_UR50D", Size(480, 12, 20, 1920), ""),
    "esm2-150m": ("esm2_t30_150M_UR50D", Size(640, 30, 20, 2560), ""),
    "esm2-650m": ("esm2_t33_650M_UR50D", Size(1280, 33, 20, 5120), ""),
    "esm2-3b": ("esm2_t36_3B_UR50D", Size(2560, 36, 40, 10_240), ""),
    "esm2-15b": ("esm2_t48_15B_UR50D", Size(5120, 48, 40, 20_480), ""),
}
_NT_V1_SIZES = {
    "nt-v1-500m": ("nucleotide-transformer-500m-1000g", Size(1280, 24, 20, 5120), ""),
    "nt-v1-2.5b": ("nucleotide-transformer-2.5b-multi-species", Size(2560, 32, 20, 10_240), ""),
}
_NT_V2_SIZES = {
    "nt-v2-50m": ("nucleotide-transformer-v2-50m-multi-species", Size(512, 12, 16, 2048), ""),
    "nt-v2-100m": ("nucleotide-transformer-v2-100m-multi-species", Size(512, 22, 16, 2048), ""),
    "nt-v2-250m": (
        "nucleotide-transformer-v2-250m-multi-species",
        Size(768, 24, 16, 3072),
        "Layers and MLP width are remembered, not read from the file. ",
    ),
    "nt-v2-500m": ("nucleotide-transformer-v2-500m-multi-species", Size(1024, 29, 16, 4096), ""),
}

ROWS: dict[str, Row] = {
    name: Row(partial(make, size), source.format(file), odd + note)
    for make, sizes, source, note in [
        (esm2_spec, _ESM2_SIZES, _ESM2, _ESM2_NOTE),
        (nt_v1_spec, _NT_V1_SIZES, _NT, _NT_NOTE),
        (nt_v2_spec, _NT_V2_SIZES, _NT, _NT_NOTE + _NT_V2_NOTE),
    ]
    for name, (file, size, odd) in sizes.items()
}
