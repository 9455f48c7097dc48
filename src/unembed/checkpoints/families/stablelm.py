"""StableLM 2 and StableLM 3B: Llama's names with LayerNorms, rotary positions on a part of each head, and perhaps side by side.

Where attention and MLP run side by side they share one norm. Source: transformers, models/stablelm. docs/add/family.md
was written along this file; it is the example of a family that somebody adds.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families import llama
from unembed.checkpoints.families.base import ACTIVATION_NAMES, ACTIVATIONS, Family, d_head_of
from unembed.checkpoints.families.rope import read_rope, write_rope
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Rule, Same, with_bias
from unembed.model.counts import norm_names
from unembed.model.presets.row import attention, embedding, head
from unembed.model.spec import Block, Causal, GatedMlp, LayerNorm, Parallel, Rotary, Serial, TransformerSpec


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a StableLM config. Raises: CheckpointError."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    context_length = config.integer("max_position_embeddings")
    norm = LayerNorm(eps=config.number("layer_norm_eps"), has_bias=True)
    config.only("qk_layernorm", False, reason="it has a gain for each head, which no spec describes")
    block = Block(
        attention=attention(
            n_heads,
            d_head_of(config, d_model, n_heads),
            n_kv_heads=config.integer("num_key_value_heads"),
            position=read_rope(config, context_length=context_length, turns_part=True),
            sees=Causal(window=None),
            biases=("q", "k", "v") if config.flag("use_qkv_bias", False) else (),
        ),
        mlp=GatedMlp(
            d_mlp=config.integer("intermediate_size"),
            activation=config.one_of("hidden_act", ACTIVATIONS),
            has_bias=False,
        ),
        norm=norm,
        residual=Parallel(shares_norm=True) if config.flag("use_parallel_residual", False) else Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(config.integer("vocab_size"), d_model),
        blocks=(block,) * config.layers("num_hidden_layers"),
        final_norm=norm,
        head=head(is_tied=False),
    )


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of StableLM's shape."""
    first, attn = spec.blocks[0], spec.blocks[0].attention
    return {
        "vocab_size": spec.embedding.vocab_size,
        "hidden_size": spec.embedding.d_model,
        "intermediate_size": first.mlp.d_mlp,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": attn.n_heads,
        "num_key_value_heads": attn.n_kv_heads,
        "hidden_act": ACTIVATION_NAMES[first.mlp.activation],
        "max_position_embeddings": spec.context_length,
        "layer_norm_eps": first.norm.eps,
        "rope_parameters": write_rope(attn.position, turns_part=True) if isinstance(attn.position, Rotary) else None,
        "use_qkv_bias": "q" in attn.biases,
        "use_parallel_residual": isinstance(first.residual, Parallel),
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """Llama's names, a bias for each norm, and one norm a layer where the parts run side by side."""
    yield Same("model.embed_tokens.weight", "embed.table")
    for index, block in enumerate(spec.blocks):
        theirs, ours = llama.LAYER.format(index), f"blocks.{index}."
        yield from with_bias(theirs + "input_layernorm", ours + "attn_norm", weight="gain")
        yield from llama.attention_rules(theirs + "self_attn.", ours + "attn.", spec, index)
        if "mlp_norm" in norm_names(block):
            yield from with_bias(theirs + "post_attention_layernorm", ours + "mlp_norm", weight="gain")
        yield from llama.mlp_rules(theirs + "mlp.", ours + "mlp.", has_bias=False)
    yield from with_bias("model.norm", "final_norm", weight="gain")
    if not spec.ties_embeddings:
        yield Same("lm_head.weight", "head.table")


FAMILY = Family(
    name="stablelm",
    model_types=("stablelm",),
    architecture="StableLmForCausalLM",
    ties_by_default=False,
    read=read,
    write=write,
    rules=rules,
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    prefix="model.",
    ignored=llama.IGNORED,
)
