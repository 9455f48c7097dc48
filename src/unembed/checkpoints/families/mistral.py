"""Mistral 7B: Llama's decoder, in which every layer sees only the last `sliding_window` keys, or all where it is null.

Version 0.1 has a window of 4,096; since 0.2 the files say null. Source: transformers, models/mistral/modeling_mistral.py
and configuration_mistral.py. The next file to read is qwen.py.
"""

from typing import Any

from unembed.checkpoints.families import llama
from unembed.checkpoints.families.base import Family
from unembed.checkpoints.families.windows import Windows, windows_of
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.spec import TransformerSpec


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a Mistral config. Raises: CheckpointError."""
    return llama.decoder(config, windows=_windows)


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Mistral's shape."""
    return llama.written(spec) | {"sliding_window": windows_of(spec)[0]}


def _windows(config: ConfigReader, n_layers: int) -> Windows:
    # absent means 4,096 to the config class and none to other programs, so it must stand there
    return (config.integer_or_null("sliding_window"),) * n_layers


FAMILY = Family(
    name="mistral",
    model_types=("mistral",),
    architecture="MistralForCausalLM",
    ties_by_default=False,
    read=read,
    write=write,
    rules=llama.rules,
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    prefix="model.",
    ignored=llama.IGNORED,
)
