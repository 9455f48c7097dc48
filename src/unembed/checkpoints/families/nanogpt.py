"""nanoGPT's ckpt.pt: GPT-2's names with plain matrices, biases by choice, the exact GELU, and its `model_args` as config.

Source: nanoGPT, model.py (GPTConfig, GPT) and train.py, `checkpoint`. The next file to read is llama2c.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Ignored, Rule, Same, Stacked
from unembed.model.presets.gpt import gpt_spec
from unembed.model.spec import TransformerSpec, with_tying


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of `model_args`. Raises: CheckpointError."""
    d_model, n_heads = config.integer("n_embd"), config.integer("n_head")
    if d_model % n_heads:
        raise config.error(
            f"n_embd is {d_model}, which {n_heads} heads (n_head) cannot share equally. "
            "One of the two is wrong: copy the file again."
        )
    config.excuse({"dropout": "used in training alone"})
    spec = gpt_spec(
        vocab_size=config.integer("vocab_size"),
        context_length=config.integer("block_size"),
        d_model=d_model,
        n_layers=config.layers("n_layer"),
        n_heads=n_heads,
        has_bias=config.flag("bias"),
        activation="gelu",
    )
    return with_tying(spec, False)


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The `model_args` of a spec of nanoGPT's shape."""
    return {
        "n_layer": spec.n_layers,
        "n_head": spec.blocks[0].attention.n_heads,
        "n_embd": spec.embedding.d_model,
        "block_size": spec.context_length,
        "bias": spec.blocks[0].mlp.has_bias,
        "vocab_size": spec.embedding.vocab_size,
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """wte, wpe, h.N, ln_f, lm_head; q, k and v in one matrix, one below the other."""
    has_bias = spec.blocks[0].mlp.has_bias
    parts = ("weight", "bias") if has_bias else ("weight",)
    yield Same("transformer.wte.weight", "embed.table")
    yield Same("transformer.wpe.weight", "embed.pos_table")
    for index in range(spec.n_layers):
        theirs, ours = f"transformer.h.{index}.", f"blocks.{index}."
        for part in parts:
            gain = "gain" if part == "weight" else "bias"
            yield Same(f"{theirs}ln_1.{part}", f"{ours}attn_norm.{gain}")
            yield Stacked(f"{theirs}attn.c_attn.{part}", tuple(f"{ours}attn.{name}_proj.{part}" for name in "qkv"))
            yield Same(f"{theirs}attn.c_proj.{part}", f"{ours}attn.o_proj.{part}")
            yield Same(f"{theirs}ln_2.{part}", f"{ours}mlp_norm.{gain}")
            yield Same(f"{theirs}mlp.c_fc.{part}", f"{ours}mlp.up.{part}")
            yield Same(f"{theirs}mlp.c_proj.{part}", f"{ours}mlp.down.{part}")
    yield Same("transformer.ln_f.weight", "final_norm.gain")
    if has_bias:
        yield Same("transformer.ln_f.bias", "final_norm.bias")
    if not spec.ties_embeddings:
        yield Same("lm_head.weight", "head.table")


FAMILY = Family(
    name="nanogpt",
    model_types=(),
    architecture="GPT",
    ties_by_default=True,
    read=read,
    write=write,
    rules=rules,
    embed="transformer.wte.weight",
    head="lm_head.weight",
    tie_rule="nanoGPT ties always",
    ignored=(Ignored(r"transformer\.h\.\d+\.attn\.bias", "the causal mask, where torch had no fused attention"),),
)
