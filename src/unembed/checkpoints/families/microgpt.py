"""microGPT's and ANDREA's .bin files: weights without names or shapes, so the spec is that of a preset which the user names.

Source: microGPT's train.c order of tensors: tables, head, then q, k, v, o, up, down of each layer. The next file to read is
gguf.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Rule, Same
from unembed.model.counts import tensors
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import TransformerSpec


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of the preset under `like`. Raises: CheckpointError where its shape has parts that the file cannot hold."""
    spec = preset(config.one_of("like", {name: name for name in PRESETS})).spec
    names = {name for rule in rules(spec) for name in rule.ours}
    if odd := sorted({tensor.name for tensor in tensors(spec)} ^ names):
        raise config.error(
            f"the preset has {odd[:3]} where a microGPT has none, or the other way round; name one of its kind"
        )
    return spec


def write(spec: TransformerSpec) -> dict[str, Any]:
    """Nothing of a spec stands in such a file."""
    return {}


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """token_table, position_table, head, layers.N."""
    yield Same("token_table", "embed.table")
    yield Same("position_table", "embed.pos_table")
    yield Same("head", "head.table")
    for index in range(spec.n_layers):
        for name in ("q", "k", "v", "o"):
            yield Same(f"layers.{index}.{name}", f"blocks.{index}.attn.{name}_proj.weight")
        for name in ("up", "down"):
            yield Same(f"layers.{index}.{name}", f"blocks.{index}.mlp.{name}.weight")


FAMILY = Family(
    name="microgpt",
    model_types=(),
    architecture="microGPT",
    ties_by_default=False,
    read=read,
    write=write,
    rules=rules,
    embed="token_table",
    head="head",
    tie_rule="microGPT ties never",
)
