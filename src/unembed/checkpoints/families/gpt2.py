"""GPT-2: learned positions, pre-norm with LayerNorm, an MLP with the tanh GELU, biases everywhere, a tied head.

Its matrices are stored [from, to], and q, k, v side by side in one of them; both are undone by views. Source:
transformers, models/gpt2/modeling_gpt2.py and configuration_gpt2.py. The next file to read is nanogpt.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import ACTIVATION_NAMES, ACTIVATIONS, Family
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Ignored, Rule, Same, Stacked, Transposed, with_bias
from unembed.model.presets.row import EVERY_BIAS, attention, embedding, head
from unembed.model.spec import Block, Causal, LayerNorm, Learned, PlainMlp, Serial, TransformerSpec

_TRAINING = "used in training alone"
_SUMMARY = "belongs to heads for other tasks"
EXCUSES = {
    "resid_pdrop": _TRAINING,
    "embd_pdrop": _TRAINING,
    "attn_pdrop": _TRAINING,
    "summary_type": _SUMMARY,
    "summary_use_proj": _SUMMARY,
    "summary_activation": _SUMMARY,
    "summary_proj_to_labels": _SUMMARY,
    "summary_first_dropout": _SUMMARY,
    "reorder_and_upcast_attn": "rounds half-precision scores another way; the function is the same",
}
IGNORED = (
    Ignored(r"(transformer\.)?h\.\d+\.attn\.bias", "the causal mask, kept by old versions of transformers"),
    Ignored(r"(transformer\.)?h\.\d+\.attn\.masked_bias", "the value of a masked score, kept by old versions"),
)


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a GPT-2 config. Raises: CheckpointError."""
    d_model, n_heads, n_layers = config.integer("n_embd"), config.integer("n_head"), config.layers("n_layer")
    context_length = config.integer("n_positions")
    config.only("n_ctx", context_length, reason="an older name of n_positions")
    if d_model % n_heads:
        raise config.error(
            f"n_embd is {d_model}, which {n_heads} heads (n_head) cannot share equally. "
            "One of the two is wrong: mend config.json, or download it again."
        )
    norm = LayerNorm(eps=config.number("layer_norm_epsilon"), has_bias=True)
    d_mlp = config.integer("n_inner", None) or 4 * d_model
    mlp = PlainMlp(d_mlp=d_mlp, activation=config.one_of("activation_function", ACTIVATIONS), has_bias=True)
    scale = (d_model // n_heads) ** -0.5 if config.flag("scale_attn_weights", True) else 1.0
    by_layer = config.flag("scale_attn_by_inverse_layer_idx", False)
    blocks = tuple(
        Block(
            attention=attention(
                n_heads,
                d_model // n_heads,
                score_scale=scale / (layer + 1) if by_layer else scale,
                sees=Causal(window=None),
                biases=EVERY_BIAS,
            ),
            mlp=mlp,
            norm=norm,
            residual=Serial(norm_at="pre"),
        )
        for layer in range(n_layers)
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(config.integer("vocab_size"), d_model, position=Learned(n_rows=context_length, offset=0)),
        blocks=blocks,
        final_norm=norm,
        head=head(is_tied=False),
    )


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of GPT-2's shape."""
    first, attn = spec.blocks[0], spec.blocks[0].attention
    by_layer = spec.n_layers > 1 and spec.blocks[1].attention.score_scale != attn.score_scale
    return {
        "vocab_size": spec.embedding.vocab_size,
        "n_positions": spec.context_length,
        "n_embd": spec.embedding.d_model,
        "n_layer": spec.n_layers,
        "n_head": attn.n_heads,
        "n_inner": first.mlp.d_mlp,
        "activation_function": "gelu_new"
        if first.mlp.activation == "gelu_tanh"
        else ACTIVATION_NAMES[first.mlp.activation],
        "layer_norm_epsilon": first.norm.eps,
        "scale_attn_weights": attn.score_scale != 1.0,
        "scale_attn_by_inverse_layer_idx": by_layer,
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """wte, wpe, h.N, ln_f; lm_head for a head of its own."""
    yield Same("transformer.wte.weight", "embed.table")
    yield Same("transformer.wpe.weight", "embed.pos_table")
    for index in range(spec.n_layers):
        theirs, ours = f"transformer.h.{index}.", f"blocks.{index}."
        fused = tuple(f"{ours}attn.{name}_proj" for name in ("q", "k", "v"))
        yield from with_bias(theirs + "ln_1", ours + "attn_norm", weight="gain")
        yield Transposed(theirs + "attn.c_attn.weight", tuple(f"{name}.weight" for name in fused))
        yield Stacked(theirs + "attn.c_attn.bias", tuple(f"{name}.bias" for name in fused))
        yield from _matrix(theirs + "attn.c_proj", ours + "attn.o_proj")
        yield from with_bias(theirs + "ln_2", ours + "mlp_norm", weight="gain")
        yield from _matrix(theirs + "mlp.c_fc", ours + "mlp.up")
        yield from _matrix(theirs + "mlp.c_proj", ours + "mlp.down")
    yield from with_bias("transformer.ln_f", "final_norm", weight="gain")
    if not spec.ties_embeddings:
        yield Same("lm_head.weight", "head.table")


def _matrix(theirs: str, ours: str) -> Iterator[Rule]:
    yield Transposed(theirs + ".weight", (ours + ".weight",))
    yield Same(theirs + ".bias", ours + ".bias")


FAMILY = Family(
    name="gpt2",
    model_types=("gpt2",),
    architecture="GPT2LMHeadModel",
    ties_by_default=True,
    read=read,
    write=write,
    rules=rules,
    embed="transformer.wte.weight",
    head="lm_head.weight",
    prefix="transformer.",
    excuses=EXCUSES,
    ignored=IGNORED,
)
