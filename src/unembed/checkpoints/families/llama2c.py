"""llama2.c's .bin files: Llama's function with seven numbers as config, rotary pairs of neighbours, one row for all layers.

Its q and k turn neighbouring entries, as in Meta's own files; their rows are put in the order of half-split pairs, so that
the model can be written for programs that know no other. eps and theta stand in run.c alone. Source: github.com/karpathy/
llama2.c, run.c. The next file to read is microgpt.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Ignored, Interleaved, Rule, Same
from unembed.model.presets.llama import Size, llama_spec
from unembed.model.spec import TransformerSpec

EPS, THETA = 1e-5, 10_000.0
_NAMES = {"o": "wo", "v": "wv"}


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of the seven numbers. Raises: CheckpointError."""
    d_model, n_heads = config.integer("dim"), config.integer("n_heads")
    size = Size(
        vocab_size=config.integer("vocab_size"),
        d_model=d_model,
        n_layers=config.layers("n_layers"),
        n_heads=n_heads,
        n_kv_heads=config.integer("n_kv_heads"),
        d_head=d_model // n_heads,
        d_mlp=config.integer("hidden_dim"),
        context_length=config.integer("seq_len"),
        is_tied=False,
    )
    return llama_spec(size, eps=EPS, theta=THETA)


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The seven numbers of a spec of this shape."""
    attn = spec.blocks[0].attention
    return {
        "dim": spec.embedding.d_model,
        "hidden_dim": spec.blocks[0].mlp.d_mlp,
        "n_layers": spec.n_layers,
        "n_heads": attn.n_heads,
        "n_kv_heads": attn.n_kv_heads,
        "vocab_size": spec.embedding.vocab_size,
        "seq_len": spec.context_length,
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """token_embedding_table, one slice of each stack per layer, rms_final_weight, wcls."""
    yield Same("token_embedding_table", "embed.table")
    for index, block in enumerate(spec.blocks):
        ours, attn = f"blocks.{index}.", block.attention
        yield Same(f"rms_att_weight.{index}", f"{ours}attn_norm.gain")
        yield Interleaved(f"wq.{index}", f"{ours}attn.q_proj.weight", attn.n_heads)
        yield Interleaved(f"wk.{index}", f"{ours}attn.k_proj.weight", attn.n_kv_heads)
        for name, theirs in _NAMES.items():
            yield Same(f"{theirs}.{index}", f"{ours}attn.{name}_proj.weight")
        yield Same(f"rms_ffn_weight.{index}", f"{ours}mlp_norm.gain")
        for name, theirs in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
            yield Same(f"{theirs}.{index}", f"{ours}mlp.{name}.weight")
    yield Same("rms_final_weight", "final_norm.gain")
    if not spec.ties_embeddings:
        yield Same("wcls", "head.table")


FAMILY = Family(
    name="llama2c",
    model_types=(),
    architecture="llama2.c",
    ties_by_default=True,
    read=read,
    write=write,
    rules=rules,
    embed="token_embedding_table",
    head="wcls",
    tie_rule="the sign of the vocabulary size",
    ignored=(Ignored(r"freq_cis_(real|imag)", "cosines and sines that run.c itself computes anew"),),
)
