"""GPT-NeoX and Pythia: attention and MLP side by side, each behind a LayerNorm of its own; part of each head turns.

q, k and v of a head lie together in one fused matrix, so taking them apart needs a copy. The head's table is
`embed_out` in files and `lm_head` in the memory of newer programs. Source: transformers, models/gpt_neox. The next
file to read is bert.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import ACTIVATION_NAMES, ACTIVATIONS, Family, d_head_of
from unembed.checkpoints.families.rope import read_rope, write_rope
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.names import Renamed
from unembed.checkpoints.rules.tensors import Ignored, Rule, Same, StackedByHead, with_bias
from unembed.model.presets.row import EVERY_BIAS, attention, embedding, head
from unembed.model.spec import Block, Causal, LayerNorm, Parallel, PlainMlp, Rotary, Serial, TransformerSpec

EXCUSES = {"is_decoder": "these models are causal whatever it says"}
_LAYER = r"(gpt_neox\.)?layers\.\d+\.attention\."
IGNORED = (
    Ignored(_LAYER + "bias", "the causal mask, kept by old versions of transformers"),
    Ignored(_LAYER + "masked_bias", "the value of a masked score, kept by old versions"),
    Ignored(_LAYER + r"rotary_emb\.inv_freq", "recomputed from theta"),
)


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a GPT-NeoX config. Raises: CheckpointError."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    context_length, norm = config.integer("max_position_embeddings"), _norm_of(config)
    position = read_rope(
        config,
        context_length=context_length,
        turns_part=True,
        older_theta="rotary_emb_base",
        older_fraction="rotary_pct",
    )
    activation = config.one_of("hidden_act", ACTIVATIONS)
    block = Block(
        attention=attention(
            n_heads,
            d_head_of(config, d_model, n_heads),
            position=position,
            sees=Causal(window=None),
            biases=EVERY_BIAS if config.flag("attention_bias", True) else (),
        ),
        mlp=PlainMlp(d_mlp=config.integer("intermediate_size"), activation=activation, has_bias=True),
        norm=norm,
        residual=Parallel(shares_norm=False) if config.flag("use_parallel_residual") else Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(config.integer("vocab_size"), d_model),
        blocks=(block,) * config.layers("num_hidden_layers"),
        final_norm=norm,
        head=head(is_tied=False),
    )


def _norm_of(config: ConfigReader) -> LayerNorm:
    return LayerNorm(eps=config.number("layer_norm_eps"), has_bias=True)


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of NeoX's shape."""
    first, attn = spec.blocks[0], spec.blocks[0].attention
    return {
        "vocab_size": spec.embedding.vocab_size,
        "hidden_size": spec.embedding.d_model,
        "intermediate_size": first.mlp.d_mlp,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": attn.n_heads,
        "hidden_act": ACTIVATION_NAMES[first.mlp.activation],
        "max_position_embeddings": spec.context_length,
        "layer_norm_eps": first.norm.eps,
        "rope_parameters": write_rope(attn.position, turns_part=True) if isinstance(attn.position, Rotary) else None,
        "attention_bias": "o" in attn.biases,
        "use_parallel_residual": isinstance(first.residual, Parallel),
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """gpt_neox.embed_in, gpt_neox.layers.N, gpt_neox.final_layer_norm, embed_out."""
    yield Same("gpt_neox.embed_in.weight", "embed.table")
    for index, block in enumerate(spec.blocks):
        theirs, ours, n_heads = f"gpt_neox.layers.{index}.", f"blocks.{index}.", block.attention.n_heads
        parts = ("weight", "bias") if block.attention.biases else ("weight",)
        yield from with_bias(theirs + "input_layernorm", ours + "attn_norm", weight="gain")
        for part in parts:
            fused = (f"{ours}attn.q_proj.{part}", f"{ours}attn.k_proj.{part}", f"{ours}attn.v_proj.{part}")
            yield StackedByHead(f"{theirs}attention.query_key_value.{part}", fused, n_heads)
            yield Same(f"{theirs}attention.dense.{part}", f"{ours}attn.o_proj.{part}")
        yield from with_bias(theirs + "post_attention_layernorm", ours + "mlp_norm", weight="gain")
        yield from with_bias(theirs + "mlp.dense_h_to_4h", ours + "mlp.up")
        yield from with_bias(theirs + "mlp.dense_4h_to_h", ours + "mlp.down")
    yield from with_bias("gpt_neox.final_layer_norm", "final_norm", weight="gain")
    if not spec.ties_embeddings:
        yield Same("embed_out.weight", "head.table")


FAMILY = Family(
    name="neox",
    model_types=("gpt_neox",),
    architecture="GPTNeoXForCausalLM",
    ties_by_default=False,
    read=read,
    write=write,
    rules=rules,
    embed="gpt_neox.embed_in.weight",
    head="embed_out.weight",
    prefix="gpt_neox.",
    excuses=EXCUSES,
    ignored=IGNORED,
    renamed=(Renamed(r"lm_head\.weight", "embed_out.weight"),),
)
