"""GPT-shaped presets: Mini-GPT of the courses, microGPT and ANDREA, nanoGPT, GPT-2 and GPT-3.

All are pre-norm blocks with a plain MLP, and but for the microGPTs a tied head; they differ in positions, norms, biases
and sizes. The next file to read is llama.py, the other great shape.
"""

from functools import partial

from msgspec.structs import replace

from unembed.model.presets.row import EVERY_BIAS, Row, attention, embedding, head
from unembed.model.spec import (
    Activation,
    Block,
    Causal,
    LayerNorm,
    Learned,
    PlainMlp,
    RmsNorm,
    Rotary,
    Serial,
    TransformerSpec,
)

_SEES = Causal(window=None)


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
    """GPT-2's shape: pre-norm, learned positions, tied head, an MLP four times as wide as the stream.

    Source: transformers' configuration_gpt2.py (tanh GELU, eps 1e-5); `has_bias=False` with exact `gelu` is nanoGPT.
    """
    norm = LayerNorm(eps=1e-5, has_bias=has_bias)
    block = Block(
        attention=attention(n_heads, d_model // n_heads, sees=_SEES, biases=EVERY_BIAS if has_bias else ()),
        mlp=PlainMlp(d_mlp=4 * d_model, activation=activation, has_bias=has_bias),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(vocab_size, d_model, position=Learned(n_rows=context_length, offset=0)),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=head(is_tied=True),
    )


def mini_gpt(vocab_size: int = 64) -> TransformerSpec:
    """Mini-GPT of the courses: 2 layers, 64 wide, rotary positions, attention without and MLP with bias.

    103,680 parameters at a vocabulary of 64; sharing the table saves 64 x 64 = 4,096.
    """
    norm = LayerNorm(eps=1e-5, has_bias=True)
    rotary = Rotary(theta=10_000.0, pairing="half", fraction=1.0, scaling=None)
    block = Block(
        attention=attention(4, 16, position=rotary, sees=_SEES),
        mlp=PlainMlp(d_mlp=256, activation="gelu", has_bias=True),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=32,
        embedding=embedding(vocab_size, 64),
        blocks=(block,) * 2,
        final_norm=norm,
        head=head(is_tied=True),
    )


def micro_spec(*, vocab_size: int, d_model: int, n_layers: int, n_heads: int, context_length: int) -> TransformerSpec:
    """A microGPT: RMSNorm without gain on the summed embedding and before attention and MLP, no final norm, no biases.

    The MLP squares its ReLU and the head has a table of its own.
    """
    norm = RmsNorm(eps=1e-5, gain="none")
    gpt = gpt_spec(
        vocab_size=vocab_size,
        context_length=context_length,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        has_bias=False,
        activation="relu_squared",
    )
    return replace(
        gpt,
        embedding=replace(gpt.embedding, norm=norm),
        blocks=(replace(gpt.blocks[0], norm=norm),) * n_layers,
        final_norm=None,
        head=head(is_tied=False),
    )


def gpt3_spec(n_layers: int, d_model: int, n_heads: int) -> TransformerSpec:
    """A GPT-3 size: GPT-2's block and vocabulary, context 2,048. Source: arXiv:2005.14165, table 2.1."""
    return gpt_spec(vocab_size=50_257, context_length=2048, d_model=d_model, n_layers=n_layers, n_heads=n_heads)


_GPT2 = "OpenAI's released GPT-2 files; transformers' configuration_gpt2.py"
_NANOGPT = "nanoGPT's model.py and train.py"
_GPT3 = "arXiv:2005.14165, table 2.1"
_ANDREA = "the ANDREA course pages and model cards; microGPT's source"
_BANDED = "The paper alternates dense with banded sparse attention of unstated width; every layer is dense here."
_RELU = "Squared ReLU is of microGPT's first version; later ones have plain ReLU."

# name: layers, width, heads
_GPT2_SIZES = {
    "gpt2": (12, 768, 12),
    "gpt2-medium": (24, 1024, 16),
    "gpt2-large": (36, 1280, 20),
    "gpt2-xl": (48, 1600, 25),
}

# name: layers, width, heads, what is odd
_GPT3_SIZES = {
    "gpt3-small": (12, 768, 12, ""),
    "gpt3-medium": (24, 1024, 16, ""),
    "gpt3-large": (24, 1536, 16, ""),
    "gpt3-xl": (24, 2048, 16, "The paper prints 24 heads of 128, which is not 2,048; 16 heads are."),
    "gpt3-2.7b": (32, 2560, 32, ""),
    "gpt3-6.7b": (32, 4096, 32, ""),
    "gpt3-13b": (40, 5120, 40, "The paper prints a width of 5,140, which is not 40 heads of 128; 5,120 is."),
    "gpt3-175b": (96, 12_288, 96, ""),
}

# name: vocabulary, width, layers, heads, context, what is odd
_MICRO_SIZES = {
    "microgpt": (27, 16, 1, 4, 16, "26 letters and a boundary."),
    "andrea-12m": (2305, 384, 6, 12, 1024, "A course page says 4,353 rows; the published 12.8M fits 2,305."),
    "andrea-120m": (8449, 768, 12, 12, 1024, "98.7M parameters; the nominal 120M is what shares are quoted against."),
    "andrea-480m": (8449, 1536, 16, 24, 1024, ""),
}

ROWS: dict[str, Row] = {
    "mini-gpt": Row(mini_gpt, "the courses' Mini-GPT", "A vocabulary of 64 words at most, taught on a verb grammar."),
    **{
        name: Row(
            partial(micro_spec, vocab_size=rows, d_model=width, n_layers=layers, n_heads=heads, context_length=context),
            _ANDREA,
            f"{odd} {_RELU}".strip(),
        )
        for name, (rows, width, layers, heads, context, odd) in _MICRO_SIZES.items()
    },
    "nanogpt-cpu": Row(
        partial(
            gpt_spec,
            vocab_size=65,
            context_length=64,
            d_model=128,
            n_layers=4,
            n_heads=4,
            has_bias=False,
            activation="gelu",
        ),
        "nanoGPT's README, the run on a CPU: 65 characters of tinyshakespeare",
    ),
    **{
        name: Row(
            partial(
                gpt_spec,
                vocab_size=50_304,
                context_length=1024,
                d_model=768,
                n_layers=12,
                n_heads=12,
                has_bias=has_bias,
                activation="gelu",
            ),
            _NANOGPT,
            f"{where} Prints {printed}: its number leaves out the position table. 47 of the 50,304 rows are padding.",
        )
        for name, has_bias, where, printed in [
            ("nanogpt-124m", False, "train.py's default, without biases.", "123.59M"),
            ("nanogpt-124m-bias", True, "GPTConfig's default, with biases.", "123.69M"),
        ]
    },
    **{
        name: Row(
            partial(gpt_spec, vocab_size=50_257, context_length=1024, d_model=width, n_layers=layers, n_heads=heads),
            _GPT2,
        )
        for name, (layers, width, heads) in _GPT2_SIZES.items()
    },
    **{
        name: Row(partial(gpt3_spec, layers, width, heads), _GPT3, f"{odd} {_BANDED}".strip())
        for name, (layers, width, heads, odd) in _GPT3_SIZES.items()
    },
}
