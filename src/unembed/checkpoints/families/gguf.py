"""GGUF files of Llama's and GPT-2's shape: llama.cpp's names for keys and tensors, and its order of q and k rows.

A GGUF's keys stand under the name of its architecture (`llama.block_count`); here they are read without it. Whether the
head is tied is said by the file alone: without `output.weight` the table is used twice. llama.cpp turns neighbouring
entries of a head, so its converter reorders the rows of q and k, which is undone here. Source: llama.cpp, gguf-py's
constants.py and convert_hf_to_gguf.py, `permute`. The next file to read is gguf_rope.py.
"""

import struct
from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.families.gguf_rope import read_scaling, write_scaling
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Interleaved, Rule, Same, Stacked
from unembed.model.presets.row import EVERY_BIAS, attention, embedding, head
from unembed.model.spec import (
    Block,
    Causal,
    GatedMlp,
    LayerNorm,
    Learned,
    PlainMlp,
    RmsNorm,
    Rotary,
    Serial,
    TransformerSpec,
)

TIE_RULE = "GGUF's rule: a file without output.weight is tied"
EMBED, HEAD = "token_embd.weight", "output.weight"


def read_llama(config: ConfigReader) -> TransformerSpec:
    """The spec of `llama` keys. Raises: CheckpointError."""
    d_model, n_heads = config.integer("embedding_length"), config.integer("attention.head_count")
    n_kv_heads = config.integer("attention.head_count_kv", None) or n_heads
    d_head = config.integer("attention.key_length", None) or _d_head(config, d_model, n_heads)
    config.only("attention.value_length", d_head, reason="values as wide as keys are all that llama files have")
    config.only("rope.dimension_count", d_head, reason="llama.cpp turns whole heads in this architecture")
    context_length, vocab_size = config.integer("context_length"), config.integer("vocab_size")
    config.only("expert_count", 0, reason="mixtures of experts are another model")
    config.only("attention.sliding_window", reason="this architecture has no window in llama.cpp")
    norm = RmsNorm(eps=_decimal(config.number("attention.layer_norm_rms_epsilon")), gain="plain")
    theta = _decimal(config.number("rope.freq_base", None) or 10_000.0)
    scaling = read_scaling(config, theta=theta, d_head=d_head, decimal=_decimal)
    block = Block(
        attention=attention(
            n_heads,
            d_head,
            n_kv_heads=n_kv_heads,
            position=Rotary(theta=theta, pairing="half", fraction=1.0, scaling=scaling),
            sees=Causal(window=None),
        ),
        mlp=GatedMlp(d_mlp=config.integer("feed_forward_length"), activation="silu", has_bias=False),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(vocab_size, d_model),
        blocks=(block,) * config.layers("block_count"),
        final_norm=norm,
        head=head(is_tied=False),
    )


def write_llama(spec: TransformerSpec) -> dict[str, Any]:
    """The `llama` keys of a spec of its shape."""
    attn, position = spec.blocks[0].attention, spec.blocks[0].attention.position
    made: dict[str, Any] = {
        "vocab_size": spec.embedding.vocab_size,
        "context_length": spec.context_length,
        "embedding_length": spec.embedding.d_model,
        "block_count": spec.n_layers,
        "feed_forward_length": spec.blocks[0].mlp.d_mlp,
        "attention.head_count": attn.n_heads,
        "attention.head_count_kv": attn.n_kv_heads,
        "attention.key_length": attn.d_head,
        "attention.value_length": attn.d_head,
        "attention.layer_norm_rms_epsilon": spec.blocks[0].norm.eps,
    }
    if not isinstance(position, Rotary):
        return made
    made |= {"rope.dimension_count": position.n_rotated(attn.d_head), "rope.freq_base": position.theta}
    return made | write_scaling(position, attn.d_head)


def rules_llama(spec: TransformerSpec) -> Iterator[Rule]:
    """token_embd, blk.N, output_norm, output."""
    yield Same(EMBED, "embed.table")
    for index, block in enumerate(spec.blocks):
        theirs, ours, attn = f"blk.{index}.", f"blocks.{index}.", block.attention
        yield Same(theirs + "attn_norm.weight", ours + "attn_norm.gain")
        yield Interleaved(theirs + "attn_q.weight", ours + "attn.q_proj.weight", attn.n_heads)
        yield Interleaved(theirs + "attn_k.weight", ours + "attn.k_proj.weight", attn.n_kv_heads)
        yield Same(theirs + "attn_v.weight", ours + "attn.v_proj.weight")
        yield Same(theirs + "attn_output.weight", ours + "attn.o_proj.weight")
        yield Same(theirs + "ffn_norm.weight", ours + "mlp_norm.gain")
        for name in ("gate", "up", "down"):
            yield Same(f"{theirs}ffn_{name}.weight", f"{ours}mlp.{name}.weight")
    yield Same("output_norm.weight", "final_norm.gain")
    if not spec.ties_embeddings:
        yield Same(HEAD, "head.table")


def read_gpt2(config: ConfigReader) -> TransformerSpec:
    """The spec of `gpt2` keys; llama.cpp computes the tanh GELU. Raises: CheckpointError."""
    d_model, n_heads = config.integer("embedding_length"), config.integer("attention.head_count")
    config.only("attention.head_count_kv", n_heads, reason="GPT-2 has as many key heads as heads")
    context_length, vocab_size = config.integer("context_length"), config.integer("vocab_size")
    norm = LayerNorm(eps=_decimal(config.number("attention.layer_norm_epsilon")), has_bias=True)
    block = Block(
        attention=attention(n_heads, _d_head(config, d_model, n_heads), sees=Causal(window=None), biases=EVERY_BIAS),
        mlp=PlainMlp(d_mlp=config.integer("feed_forward_length"), activation="gelu_tanh", has_bias=True),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(vocab_size, d_model, position=Learned(n_rows=context_length, offset=0)),
        blocks=(block,) * config.layers("block_count"),
        final_norm=norm,
        head=head(is_tied=False),
    )


def write_gpt2(spec: TransformerSpec) -> dict[str, Any]:
    """The `gpt2` keys of a spec of its shape."""
    return {
        "vocab_size": spec.embedding.vocab_size,
        "context_length": spec.context_length,
        "embedding_length": spec.embedding.d_model,
        "block_count": spec.n_layers,
        "feed_forward_length": spec.blocks[0].mlp.d_mlp,
        "attention.head_count": spec.blocks[0].attention.n_heads,
        "attention.layer_norm_epsilon": spec.blocks[0].norm.eps,
    }


def rules_gpt2(spec: TransformerSpec) -> Iterator[Rule]:
    """token_embd, position_embd, blk.N, output_norm, output; q, k and v in one, one below the other."""
    yield Same(EMBED, "embed.table")
    yield Same("position_embd.weight", "embed.pos_table")
    for index in range(spec.n_layers):
        theirs, ours = f"blk.{index}.", f"blocks.{index}."
        for part, kind in (("weight", "gain"), ("bias", "bias")):
            yield Same(f"{theirs}attn_norm.{part}", f"{ours}attn_norm.{kind}")
            yield Same(f"{theirs}ffn_norm.{part}", f"{ours}mlp_norm.{kind}")
        for part in ("weight", "bias"):
            yield Stacked(
                f"{theirs}attn_qkv.{part}", tuple(f"{ours}attn.{name}_proj.{part}" for name in ("q", "k", "v"))
            )
            yield Same(f"{theirs}attn_output.{part}", f"{ours}attn.o_proj.{part}")
            yield Same(f"{theirs}ffn_up.{part}", f"{ours}mlp.up.{part}")
            yield Same(f"{theirs}ffn_down.{part}", f"{ours}mlp.down.{part}")
    yield Same("output_norm.weight", "final_norm.gain")
    yield Same("output_norm.bias", "final_norm.bias")
    if not spec.ties_embeddings:
        yield Same(HEAD, "head.table")


def _d_head(config: ConfigReader, d_model: int, n_heads: int) -> int:
    if d_model % n_heads:
        raise config.error(
            f"embedding_length is {d_model}, which {n_heads} heads (attention.head_count) cannot share equally. "
            "One of the two is wrong: convert the model again."
        )
    return d_model // n_heads


def _decimal(number: float) -> float:
    """The shortest decimal that rounds to a float32: the file's 9.99999974738e-06 was written as 1e-05."""
    for digits in range(1, 10):
        short = float(f"{number:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", number):
            return short
    return number


def _family(name: str, **functions: Any) -> Family:
    return Family(
        name=f"gguf-{name}",
        model_types=(),
        architecture=name,
        ties_by_default=True,
        embed=EMBED,
        head=HEAD,
        tie_rule=TIE_RULE,
        **functions,
    )


LLAMA = _family("llama", read=read_llama, write=write_llama, rules=rules_llama)
GPT2 = _family("gpt2", read=read_gpt2, write=write_gpt2, rules=rules_gpt2)
ARCHITECTURES = {family.architecture: family for family in (LLAMA, GPT2)}
