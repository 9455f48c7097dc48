"""GPT-shaped presets: Mini-GPT of the courses, nanoGPT's run on a CPU, and GPT-2.

All are pre-norm blocks with a plain GELU MLP and a tied head; they differ in positions, biases and sizes.
"""

from collections.abc import Callable

from unembed.model.spec import (
    Activation,
    Attention,
    Block,
    Causal,
    Embedding,
    LayerNorm,
    Learned,
    PlainMlp,
    Rotary,
    Serial,
    TiedHead,
    TransformerSpec,
)

_EVERY_BIAS = ("q", "k", "v", "o")


def gpt_spec(
    *,
    vocab_size: int,
    context_length: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    has_bias: bool = True,
    activation: Activation = "gelu_tanh",
) -> TransformerSpec:
    """A GPT-2-shaped decoder: learned positions, LayerNorm with eps 1e-5, MLP four times as wide as the stream.

    Source: transformers' configuration_gpt2.py (tanh GELU, eps 1e-5); `has_bias=False` with exact `gelu` is nanoGPT.
    """
    norm = LayerNorm(eps=1e-5, has_bias=has_bias)
    d_head = d_model // n_heads
    block = Block(
        attention=Attention(
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_head,
            score_scale=d_head**-0.5,
            score_softcap=None,
            position=None,
            sees=Causal(window=None),
            biases=_EVERY_BIAS if has_bias else (),
            qk_norm=None,
        ),
        mlp=PlainMlp(d_mlp=4 * d_model, activation=activation, has_bias=has_bias),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=Embedding(
            vocab_size=vocab_size,
            d_model=d_model,
            scale=None,
            position=Learned(n_rows=context_length, offset=0),
            n_token_types=None,
            norm=None,
            token_dropout=None,
        ),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=TiedHead(transform=None, has_bias=False, scale=None, softcap=None),
    )


def mini_gpt(vocab_size: int = 64) -> TransformerSpec:
    """Mini-GPT of the courses: 2 layers, 64 wide, rotary positions, attention without and MLP with bias.

    103,680 parameters at a vocabulary of 64; sharing the table saves 64 x 64 = 4,096.
    """
    norm = LayerNorm(eps=1e-5, has_bias=True)
    block = Block(
        attention=Attention(
            n_heads=4,
            n_kv_heads=4,
            d_head=16,
            score_scale=16**-0.5,
            score_softcap=None,
            position=Rotary(theta=10_000.0, pairing="interleaved", fraction=1.0, scaling=None),
            sees=Causal(window=None),
            biases=(),
            qk_norm=None,
        ),
        mlp=PlainMlp(d_mlp=256, activation="gelu", has_bias=True),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=32,
        embedding=Embedding(
            vocab_size=vocab_size,
            d_model=64,
            scale=None,
            position=None,
            n_token_types=None,
            norm=None,
            token_dropout=None,
        ),
        blocks=(block,) * 2,
        final_norm=norm,
        head=TiedHead(transform=None, has_bias=False, scale=None, softcap=None),
    )


def _nanogpt_cpu() -> TransformerSpec:
    return gpt_spec(
        vocab_size=65, context_length=64, d_model=128, n_layers=4, n_heads=4, has_bias=False, activation="gelu"
    )


def _gpt2() -> TransformerSpec:
    return gpt_spec(vocab_size=50_257, context_length=1024, d_model=768, n_layers=12, n_heads=12)


ROWS: dict[str, tuple[Callable[[], TransformerSpec], str, str]] = {
    "mini-gpt": (mini_gpt, "the courses' Mini-GPT", ""),
    "nanogpt-cpu": (_nanogpt_cpu, "nanoGPT's README, the run on a CPU: 65 characters of tinyshakespeare", ""),
    "gpt2": (_gpt2, "transformers' GPT2Config; published 124,439,808 parameters", ""),
}
