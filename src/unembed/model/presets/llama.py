"""Llama-shaped presets: Llama 2, 3 and 3.2, and Mistral 7B. qwen.py takes its shape from here too.

A pre-norm decoder with RMSNorm, rotary positions in half-split pairing (as the Hugging Face files store them), grouped
key heads and a gated SiLU MLP, without biases. The defaults of transformers' config classes differ from the files in eps
and theta; the numbers here are those of the files. The next file to read is qwen.py.
"""

from functools import partial
from typing import NamedTuple

from unembed.model.presets.row import Bias, Row, attention, embedding, head
from unembed.model.spec import Block, Causal, GatedMlp, Llama3Scaling, RmsNorm, Rotary, Serial, TransformerSpec


class Size(NamedTuple):
    """What differs between the sizes of one family of this shape."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    context_length: int
    is_tied: bool


def llama_spec(
    size: Size,
    *,
    eps: float,
    theta: float,
    scaling: Llama3Scaling | None = None,
    window: int | None = None,
    biases: tuple[Bias, ...] = (),
    norms_qk: bool = False,
) -> TransformerSpec:
    """The decoder of Llama, Mistral and Qwen: x + attention(norm x), then x + mlp(norm x), `window` keys at most.

    Source: arXiv:2302.13971, section 2.2; transformers' modeling_llama.py.
    """
    norm = RmsNorm(eps=eps, gain="plain")
    block = Block(
        attention=attention(
            size.n_heads,
            size.d_head,
            n_kv_heads=size.n_kv_heads,
            position=Rotary(theta=theta, pairing="half", fraction=1.0, scaling=scaling),
            sees=Causal(window=window),
            biases=biases,
            qk_norm=norm if norms_qk else None,
        ),
        mlp=GatedMlp(d_mlp=size.d_mlp, activation="silu", has_bias=False),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=size.context_length,
        embedding=embedding(size.vocab_size, size.d_model),
        blocks=(block,) * size.n_layers,
        final_norm=norm,
        head=head(is_tied=size.is_tied),
    )


_LLAMA32_SCALING = Llama3Scaling(
    factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192
)
_WINDOW = "Each query sees 4,096 keys at most, itself included."

# name: vocabulary, width, layers, heads, key heads, head width, MLP width, context, tied
ROWS: dict[str, Row] = {
    "llama-2-7b": Row(
        partial(llama_spec, Size(32_000, 4096, 32, 32, 32, 128, 11_008, 4096, False), eps=1e-5, theta=1e4),
        "config.json of meta-llama/Llama-2-7b-hf",
    ),
    "llama-3-8b": Row(
        partial(llama_spec, Size(128_256, 4096, 32, 32, 8, 128, 14_336, 8192, False), eps=1e-5, theta=5e5),
        "config.json of meta-llama/Meta-Llama-3-8B",
    ),
    "llama-3.2-1b": Row(
        partial(
            llama_spec,
            Size(128_256, 2048, 16, 32, 8, 64, 8192, 131_072, True),
            eps=1e-5,
            theta=5e5,
            scaling=_LLAMA32_SCALING,
        ),
        "config.json of meta-llama/Llama-3.2-1B",
        "Tied, unlike the larger Llamas; some public lists count the table twice (1,498,482,688).",
    ),
    "llama-3.2-3b": Row(
        partial(
            llama_spec,
            Size(128_256, 3072, 28, 24, 8, 128, 8192, 131_072, True),
            eps=1e-5,
            theta=5e5,
            scaling=_LLAMA32_SCALING,
        ),
        "config.json of meta-llama/Llama-3.2-3B",
        "Tied, unlike the larger Llamas; some public lists count the table twice (3,606,752,256).",
    ),
    "mistral-7b-v0.1": Row(
        partial(
            llama_spec, Size(32_000, 4096, 32, 32, 8, 128, 14_336, 32_768, False), eps=1e-5, theta=1e4, window=4096
        ),
        "config.json of mistralai/Mistral-7B-v0.1; arXiv:2310.06825",
        _WINDOW,
    ),
    "mistral-7b-v0.3": Row(
        partial(llama_spec, Size(32_768, 4096, 32, 32, 8, 128, 14_336, 32_768, False), eps=1e-5, theta=1e6),
        "config.json of mistralai/Mistral-7B-v0.3",
        "The window of v0.1 is gone and 768 rows are new.",
    ),
}
