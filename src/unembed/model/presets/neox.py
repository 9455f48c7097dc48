"""GPT-NeoX-shaped presets: Pythia and GPT-NeoX-20B; and PaLM, which went parallel in another way.

NeoX adds attention and MLP to the stream at once, each behind a LayerNorm of its own, turns the first quarter of every
head, and has all biases and an untied head. PaLM shares one norm between the two, has one key head and no bias at all,
and ties its head, whose logits it divides by sqrt(d_model). The next file to read is bert_like.py.
"""

from functools import partial

from unembed.model.presets.row import EVERY_BIAS, Row, attention, embedding, head
from unembed.model.spec import (
    Activation,
    Block,
    Causal,
    GatedMlp,
    LayerNorm,
    Parallel,
    PlainMlp,
    Rotary,
    TransformerSpec,
)


def neox_spec(vocab_size: int, d_model: int, n_layers: int, n_heads: int, activation: Activation) -> TransformerSpec:
    """x + attention(norm1 x) + mlp(norm2 x). Source: arXiv:2204.06745, section 2; transformers' modeling_gpt_neox.py."""
    norm, d_head = LayerNorm(eps=1e-5, has_bias=True), d_model // n_heads
    block = Block(
        attention=attention(
            n_heads,
            d_head,
            position=Rotary(theta=1e4, pairing="half", fraction=0.25, scaling=None),
            sees=Causal(window=None),
            biases=EVERY_BIAS,
        ),
        mlp=PlainMlp(d_mlp=4 * d_model, activation=activation, has_bias=True),
        norm=norm,
        residual=Parallel(shares_norm=False),
    )
    return TransformerSpec(
        context_length=2048,
        embedding=embedding(vocab_size, d_model),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=head(is_tied=False),
    )


def palm_spec(d_model: int, n_layers: int, n_heads: int) -> TransformerSpec:
    """x + attention(norm x) + mlp(norm x) with one norm for both. Source: arXiv:2204.02311, section 2."""
    norm = LayerNorm(eps=1e-6, has_bias=False)
    block = Block(
        attention=attention(
            n_heads,
            256,
            n_kv_heads=1,
            position=Rotary(theta=1e4, pairing="half", fraction=1.0, scaling=None),
            sees=Causal(window=None),
        ),
        mlp=GatedMlp(d_mlp=4 * d_model, activation="silu", has_bias=False),
        norm=norm,
        residual=Parallel(shares_norm=True),
    )
    return TransformerSpec(
        context_length=2048,
        embedding=embedding(256_000, d_model),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=head(is_tied=True, scale=d_model**-0.5),
    )


_PALM = "arXiv:2204.02311, table 1 and section 5"
_PALM_NOTE = (
    "No weights were published. Eps, theta and pairing are not in the paper; 1e-6, 1e4 and half are taken here."
)
_PALM_540B = "48 heads of 256 are 12,288, narrower than the stream of 18,432. "

# name: vocabulary, width, layers, heads
_PYTHIA_SIZES = {
    "pythia-70m": (50_304, 512, 6, 8),
    "pythia-160m": (50_304, 768, 12, 12),
    "pythia-410m": (50_304, 1024, 24, 16),
    "pythia-1b": (50_304, 2048, 16, 8),
    "pythia-1.4b": (50_304, 2048, 24, 16),
    "pythia-2.8b": (50_304, 2560, 32, 32),
    "pythia-6.9b": (50_432, 4096, 32, 32),
    "pythia-12b": (50_688, 5120, 36, 40),
}

ROWS: dict[str, Row] = {
    **{
        name: Row(
            partial(neox_spec, *sizes, "gelu"),
            f"config.json of EleutherAI/{name}",
            "50,277 tokens; the rows after them are padding.",
        )
        for name, sizes in _PYTHIA_SIZES.items()
    },
    "gpt-neox-20b": Row(
        partial(neox_spec, 50_432, 6144, 44, 64, "gelu_tanh"),
        "config.json of EleutherAI/gpt-neox-20b",
        "Its file says `gelu_fast`, which is the tanh form; Pythia's say `gelu`, the exact one.",
    ),
    "palm-8b": Row(partial(palm_spec, 4096, 32, 16), _PALM, _PALM_NOTE),
    "palm-62b": Row(partial(palm_spec, 8192, 64, 32), _PALM, _PALM_NOTE),
    "palm-540b": Row(partial(palm_spec, 18_432, 118, 48), _PALM, _PALM_540B + _PALM_NOTE),
}
