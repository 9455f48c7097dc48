"""Gemma 1 to 3 (text): norms of 1 + gain, embeddings times sqrt(d_model), gated tanh GELU; three ways to limit attention.

Gemma 2 and 3 norm before and after each part. Gemma 2 caps scores and logits; Gemma 3 norms q and k of each head and has
one theta for near layers and one for far ones. Source: transformers, models/gemma, gemma2 and gemma3; what older files
mean, from their configuration_*.py. The next file to read is neox.py.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from unembed.checkpoints.families import llama
from unembed.checkpoints.families.base import ACTIVATIONS, Family
from unembed.checkpoints.families.rope import read_rope, read_rope_group, read_scaling, rotary, write_rope
from unembed.checkpoints.families.windows import FULL, SLIDING, Windows, from_types, layer_types, write_types
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Rule, Same
from unembed.model.presets.row import EVERY_BIAS, attention, embedding, head
from unembed.model.spec import Activation, Block, Causal, GatedMlp, RmsNorm, Rotary, Serial, TransformerSpec

EXCUSES = {"cache_implementation": "how a program keeps keys, not what it computes"}


class Generation(NamedTuple):
    """What differs between the three and must be known before the layers are made."""

    context_length: int
    windows: Windows
    near: Rotary
    far: Rotary
    activation: Activation
    query_scalar: float | None = None
    score_softcap: float | None = None
    logit_softcap: float | None = None
    norms_qk: bool = False
    norm_at: Literal["pre", "both"] = "pre"


def read_gemma1(config: ConfigReader) -> TransformerSpec:
    """The spec of a Gemma config. Raises: CheckpointError."""
    context_length = config.integer("max_position_embeddings")
    rope = read_rope(config, context_length=context_length)
    # early files say `gelu` and mean its tanh form, which they were trained with
    activation = config.one_of("hidden_act", {**ACTIVATIONS, "gelu": "gelu_tanh"})
    if config.one_of("hidden_activation", {**ACTIVATIONS, "": activation}, "") != activation:
        raise config.error("hidden_act and hidden_activation differ; which of the two holds cannot be told")
    windows = (None,) * config.layers("num_hidden_layers")
    return _decoder(config, Generation(context_length, windows, rope, rope, activation))


def read_gemma2(config: ConfigReader) -> TransformerSpec:
    """The spec of a Gemma 2 config; where no types are listed, layers 0, 2, 4, ... have a window. Raises: CheckpointError."""
    context_length = config.integer("max_position_embeddings")
    rope, windows = read_rope(config, context_length=context_length), _windows(config, full_each=2)
    score_softcap = config.number_or_null("attn_logit_softcapping")
    return _later(config, context_length, windows, rope, rope, score_softcap=score_softcap)


def read_gemma3(config: ConfigReader) -> TransformerSpec:
    """The spec of a Gemma 3 text config; where no types are listed, each sixth layer sees everything, the others a window.

    Raises: CheckpointError.
    """
    context_length = config.integer("max_position_embeddings")
    pattern = config.integer("sliding_window_pattern", None), config.integer("_sliding_window_pattern", None)
    windows = _windows(config, full_each=pattern[0] or pattern[1] or 6)
    near, far = _two_ropes(config, windows, context_length)
    config.only(
        "attn_logit_softcapping", reason="transformers reads it and caps nothing: norms on q and k took its place"
    )
    return _later(config, context_length, windows, near, far, norms_qk=True)


def _later(
    config: ConfigReader,
    context_length: int,
    windows: Windows,
    near: Rotary,
    far: Rotary,
    *,
    score_softcap: float | None = None,
    norms_qk: bool = False,
) -> TransformerSpec:
    """What Gemma 2 and 3 share."""
    activation = config.one_of("hidden_activation", ACTIVATIONS)
    config.only("hidden_act", *_names_of(activation), reason="an older name of hidden_activation, which is there too")
    return _decoder(
        config,
        Generation(
            context_length,
            windows,
            near,
            far,
            activation,
            query_scalar=config.number("query_pre_attn_scalar"),
            score_softcap=score_softcap,
            logit_softcap=config.number_or_null("final_logit_softcapping"),
            norms_qk=norms_qk,
            norm_at="both",
        ),
    )


def _decoder(config: ConfigReader, kind: Generation) -> TransformerSpec:
    config.only("use_bidirectional_attention", False, reason="these models are read as causal ones")
    d_model, norm = config.integer("hidden_size"), RmsNorm(eps=config.number("rms_norm_eps"), gain="one_plus")
    n_heads, n_kv_heads = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    d_head = config.integer("head_dim")
    mlp = GatedMlp(d_mlp=config.integer("intermediate_size"), activation=kind.activation, has_bias=False)
    biases = EVERY_BIAS if config.flag("attention_bias", False) else ()
    blocks = {
        window: Block(
            attention=attention(
                n_heads,
                d_head,
                n_kv_heads=n_kv_heads,
                score_scale=(kind.query_scalar or d_head) ** -0.5,
                score_softcap=kind.score_softcap,
                position=kind.far if window is None else kind.near,
                sees=Causal(window=window),
                biases=biases,
                qk_norm=norm if kind.norms_qk else None,
            ),
            mlp=mlp,
            norm=norm,
            residual=Serial(norm_at=kind.norm_at),
        )
        for window in set(kind.windows)
    }
    return TransformerSpec(
        context_length=kind.context_length,
        embedding=embedding(config.integer("vocab_size"), d_model, scale=d_model**0.5),
        blocks=tuple(blocks[window] for window in kind.windows),
        final_norm=norm,
        head=head(is_tied=False, softcap=kind.logit_softcap),
    )


def _windows(config: ConfigReader, *, full_each: int) -> Windows:
    n_layers, window, types = config.layers("num_hidden_layers"), config.integer("sliding_window"), layer_types(config)
    config.only("sliding_window_size", window, reason="an older name of sliding_window, which is there too")
    if types is None:
        types = [SLIDING if (layer + 1) % full_each else FULL for layer in range(n_layers)]
    return from_types(config, types, n_layers, window)


def _two_ropes(config: ConfigReader, windows: Windows, context_length: int) -> tuple[Rotary, Rotary]:
    """The positions of near and of far layers: an object for each, or in older files two thetas and the far scaling."""
    if "rope_parameters" in config:
        both = config.group("rope_parameters")
        assert both is not None
        found = {name: both.group(name) for name in (SLIDING, FULL)}
        made = {name: read_rope_group(one, context_length) for name, one in found.items() if one is not None}
        for name, needed in ((SLIDING, any(windows)), (FULL, None in windows)):
            if needed and name not in made:
                raise both.error(f"rope_parameters.{name} is missing, and there are layers of this kind")
        any_one = next(iter(made.values()))
        return made.get(SLIDING, any_one), made.get(FULL, any_one)
    if "rope_local_base_freq" not in config:
        raise config.error("rope_parameters is missing, and so is rope_local_base_freq of older files")
    scaling = config.group("rope_scaling")
    far = read_scaling(scaling, context_length) if scaling is not None else None
    near_theta, far_theta = config.number("rope_local_base_freq"), config.number("rope_theta")
    return rotary(theta=near_theta), rotary(theta=far_theta, scaling=far)


def write_gemma1(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Gemma's shape."""
    return _written(spec) | {"hidden_act": llama.written(spec)["hidden_act"]}


def write_gemma2(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Gemma 2's shape."""
    scale = spec.blocks[0].attention.score_scale
    return _written(spec) | {
        "hidden_activation": llama.written(spec)["hidden_act"],
        # a whole number in every file; where it is none, reading back gives another scale and says so
        "query_pre_attn_scalar": round(scale**-2) or 1,
        "attn_logit_softcapping": spec.blocks[0].attention.score_softcap,
        "final_logit_softcapping": spec.head.softcap,
        # a window must stand there, even where no layer has one
        "sliding_window": spec.context_length,
        **{key: value for key, value in write_types(spec).items() if value is not None},
    }


def write_gemma3(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Gemma 3's shape."""
    ropes = {
        SLIDING if isinstance(attn.sees, Causal) and attn.sees.window else FULL: write_rope(attn.position)
        for attn in (block.attention for block in spec.blocks)
        if isinstance(attn.position, Rotary)
    }
    if len(ropes) == 1:  # both must stand there, though no layer is of the second kind
        ropes = dict.fromkeys((SLIDING, FULL), next(iter(ropes.values())))
    return write_gemma2(spec) | {"rope_parameters": ropes}


def _written(spec: TransformerSpec) -> dict[str, Any]:
    config = llama.written(spec) | {"attention_bias": "o" in spec.blocks[0].attention.biases}
    del config["hidden_act"]
    return config


def _names_of(activation: Activation) -> list[str]:
    return [name for name, one in ACTIVATIONS.items() if one == activation]


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """Llama's names; where there are four norms, `post_attention_layernorm` comes after attention and not before the MLP."""
    if spec.blocks[0].residual == Serial(norm_at="pre"):
        yield from llama.rules(spec)
        return
    yield Same("model.embed_tokens.weight", "embed.table")
    norms = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "attn_post_norm",
        "pre_feedforward_layernorm": "mlp_norm",
        "post_feedforward_layernorm": "mlp_post_norm",
    }
    for index in range(spec.n_layers):
        theirs, ours = llama.LAYER.format(index), f"blocks.{index}."
        for name, norm in norms.items():
            yield Same(f"{theirs}{name}.weight", f"{ours}{norm}.gain")
        yield from llama.attention_rules(theirs + "self_attn.", ours + "attn.", spec, index)
        yield from llama.mlp_rules(theirs + "mlp.", ours + "mlp.", has_bias=False)
    yield Same("model.norm.weight", "final_norm.gain")
    if not spec.ties_embeddings:
        yield Same("lm_head.weight", "head.table")


GEMMA1 = Family(
    name="gemma",
    model_types=("gemma",),
    architecture="GemmaForCausalLM",
    ties_by_default=True,
    read=read_gemma1,
    write=write_gemma1,
    rules=rules,
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    prefix="model.",
    excuses=EXCUSES,
    ignored=llama.IGNORED,
)
GEMMA2 = GEMMA1._replace(
    name="gemma2",
    model_types=("gemma2",),
    architecture="Gemma2ForCausalLM",
    read=read_gemma2,
    write=write_gemma2,
)
GEMMA3 = GEMMA1._replace(
    name="gemma3",
    model_types=("gemma3_text",),
    architecture="Gemma3ForCausalLM",
    read=read_gemma3,
    write=write_gemma3,
)
