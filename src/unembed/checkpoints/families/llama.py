"""Llama 1 to 3.2: pre-norm, RMSNorm, rotary positions on half-split pairs, grouped key heads, gated SiLU, no biases.

mistral.py and qwen.py change single lines of it. Source: transformers, models/llama/modeling_llama.py and
configuration_llama.py. The defaults of a config class are no guide (eps 1e-6 there, 1e-5 in the files), so what changes a
number must stand in the file. The next file to read is rope.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from unembed.checkpoints.families.base import ACTIVATION_NAMES, ACTIVATIONS, Family, d_head_of
from unembed.checkpoints.families.rope import read_rope, write_rope
from unembed.checkpoints.families.windows import Windows, no_windows
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Ignored, Rule, Same
from unembed.model.presets.row import EVERY_BIAS, Bias, attention, embedding, head
from unembed.model.spec import Block, Causal, GatedMlp, RmsNorm, Rotary, Serial, TransformerSpec

LAYER = "model.layers.{}."
EXCUSES = {
    "is_llama_config": "says what model_type says",
    "max_sequence_length": "an older name of max_position_embeddings, which is there too",
    "transformers.js_config": "settings of another program",
}
IGNORED = (Ignored(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq", "recomputed from theta"),)


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a Llama config. Raises: CheckpointError."""
    biases = EVERY_BIAS if config.flag("attention_bias", False) else ()
    config.only("pretraining_tp", 1, reason="it splits the same products into slices")
    config.only("rope_interleaved", False, reason="it pairs neighbours; the files of this format pair halves")
    # Llama 2's own files are older than the key, and a constant stood in the code
    unsaid = 10_000.0 if config.written_before(4, 33) else None
    return decoder(config, biases=biases, has_mlp_bias=config.flag("mlp_bias", False), unsaid_theta=unsaid)


def decoder(
    config: ConfigReader,
    *,
    biases: tuple[Bias, ...] = (),
    has_mlp_bias: bool = False,
    norms_qk: bool = False,
    windows: Callable[[ConfigReader, int], Windows] = no_windows,
    unsaid_theta: float | None = None,
) -> TransformerSpec:
    """The decoder that Llama, Mistral and Qwen share; `windows` reads one for each of so many layers."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    norm = RmsNorm(eps=config.number("rms_norm_eps"), gain="plain")
    d_head = config.integer("head_dim", None) or d_head_of(config, d_model, n_heads)
    context_length, n_layers = config.integer("max_position_embeddings"), config.layers("num_hidden_layers")
    position = read_rope(config, context_length=context_length, unsaid_theta=unsaid_theta)
    n_kv_heads = config.integer("num_key_value_heads", None) or n_heads
    activation = config.one_of("hidden_act", ACTIVATIONS)
    mlp = GatedMlp(d_mlp=config.integer("intermediate_size"), activation=activation, has_bias=has_mlp_bias)
    by_layer = windows(config, n_layers)
    kinds = {
        window: Block(
            attention=attention(
                n_heads,
                d_head,
                n_kv_heads=n_kv_heads,
                position=position,
                sees=Causal(window=window),
                biases=biases,
                qk_norm=norm if norms_qk else None,
            ),
            mlp=mlp,
            norm=norm,
            residual=Serial(norm_at="pre"),
        )
        for window in set(by_layer)
    }
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(config.integer("vocab_size"), d_model),
        blocks=tuple(kinds[window] for window in by_layer),
        final_norm=norm,
        head=head(is_tied=False),
    )


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a Llama-shaped spec."""
    first = spec.blocks[0]
    return written(spec) | {
        "attention_bias": "o" in first.attention.biases,
        "mlp_bias": first.mlp.has_bias,
        "pretraining_tp": 1,
    }


def written(spec: TransformerSpec) -> dict[str, Any]:
    """What `decoder` reads, for the families that share it."""
    first, attn = spec.blocks[0], spec.blocks[0].attention
    position = attn.position
    return {
        "vocab_size": spec.embedding.vocab_size,
        "hidden_size": spec.embedding.d_model,
        "intermediate_size": first.mlp.d_mlp,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": attn.n_heads,
        "num_key_value_heads": attn.n_kv_heads,
        "head_dim": attn.d_head,
        "hidden_act": ACTIVATION_NAMES[first.mlp.activation],
        "max_position_embeddings": spec.context_length,
        "rms_norm_eps": first.norm.eps,
        "rope_parameters": write_rope(position) if isinstance(position, Rotary) else None,
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """model.embed_tokens, model.layers.N, model.norm, lm_head; biases and head norms where the spec has them."""
    yield Same("model.embed_tokens.weight", "embed.table")
    for index, block in enumerate(spec.blocks):
        theirs, ours = LAYER.format(index), f"blocks.{index}."
        yield Same(theirs + "input_layernorm.weight", ours + "attn_norm.gain")
        yield from attention_rules(theirs + "self_attn.", ours + "attn.", spec, index)
        yield Same(theirs + "post_attention_layernorm.weight", ours + "mlp_norm.gain")
        yield from mlp_rules(theirs + "mlp.", ours + "mlp.", has_bias=block.mlp.has_bias)
    yield Same("model.norm.weight", "final_norm.gain")
    if not spec.ties_embeddings:
        yield Same("lm_head.weight", "head.table")


def attention_rules(theirs: str, ours: str, spec: TransformerSpec, index: int) -> Iterator[Rule]:
    """q_proj, k_proj, v_proj, o_proj with the biases that the spec names, and the head norms."""
    attn = spec.blocks[index].attention
    for name in ("q", "k", "v", "o"):
        yield Same(f"{theirs}{name}_proj.weight", f"{ours}{name}_proj.weight")
        if name in attn.biases:
            yield Same(f"{theirs}{name}_proj.bias", f"{ours}{name}_proj.bias")
    if attn.qk_norm is not None:
        yield Same(theirs + "q_norm.weight", ours + "q_norm.gain")
        yield Same(theirs + "k_norm.weight", ours + "k_norm.gain")


def mlp_rules(theirs: str, ours: str, *, has_bias: bool) -> Iterator[Rule]:
    """gate_proj, up_proj, down_proj."""
    for name in ("gate", "up", "down"):
        yield Same(f"{theirs}{name}_proj.weight", f"{ours}{name}.weight")
        if has_bias:
            yield Same(f"{theirs}{name}_proj.bias", f"{ours}{name}.bias")


FAMILY = Family(
    name="llama",
    model_types=("llama",),
    architecture="LlamaForCausalLM",
    ties_by_default=False,
    read=read,
    write=write,
    rules=rules,
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    prefix="model.",
    excuses=EXCUSES,
    ignored=IGNORED,
)
