"""Qwen 1.5, 2 and 2.5 (`qwen2` in files), and Qwen3: Llama's decoder with other biases, and windows on some layers.

The older ones have biases on q, k and v alone; Qwen3 normalises q and k of each head instead. Windows exist only where
`use_sliding_window` says so: then from layer `max_window_layers` on, or as `layer_types` lists. Source: transformers,
models/qwen2 and models/qwen3. The next file to read is gemma.py.
"""

from typing import Any

from unembed.checkpoints.families import llama
from unembed.checkpoints.families.base import Family
from unembed.checkpoints.families.windows import (
    FULL,
    SLIDING,
    Windows,
    from_types,
    layer_types,
    windows_of,
    write_types,
)
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.presets.row import EVERY_BIAS
from unembed.model.spec import TransformerSpec


def read_qwen2(config: ConfigReader) -> TransformerSpec:
    """The spec of a config of Qwen 1.5, 2 or 2.5. Raises: CheckpointError."""
    return llama.decoder(config, biases=("q", "k", "v"), windows=_windows)


def read_qwen3(config: ConfigReader) -> TransformerSpec:
    """The spec of a Qwen3 config, which must give the width of a head. Raises: CheckpointError."""
    if "head_dim" not in config:
        raise config.error("head_dim is missing. The config must give it; heads together may be wider than the stream.")
    biases = EVERY_BIAS if config.flag("attention_bias", False) else ()
    return llama.decoder(config, biases=biases, norms_qk=True, windows=_windows)


def write_qwen2(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Qwen2's shape; `head_dim` only where it does not follow from the width."""
    config = llama.written(spec) | _written_windows(spec)
    if config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]:
        del config["head_dim"]
    return config


def write_qwen3(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of Qwen3's shape."""
    return llama.written(spec) | _written_windows(spec) | {"attention_bias": "o" in spec.blocks[0].attention.biases}


def _windows(config: ConfigReader, n_layers: int) -> Windows:
    uses, window, types = config.flag("use_sliding_window"), config.integer("sliding_window", None), layer_types(config)
    first = config.integer("max_window_layers", None, least=0)
    if not uses:
        window = None
    elif types is None and first is None:
        raise config.error("max_window_layers is missing. With use_sliding_window and no layer_types it must be given.")
    if types is not None and SLIDING in types and not uses:
        raise config.error("layer_types lists windows, and use_sliding_window says that there are none")
    if types is None:
        types = [SLIDING if window and layer >= (first or 0) else FULL for layer in range(n_layers)]
    return from_types(config, types, n_layers, window)


def _written_windows(spec: TransformerSpec) -> dict[str, Any]:
    return write_types(spec) | {"use_sliding_window": any(windows_of(spec)), "max_window_layers": spec.n_layers}


QWEN2 = Family(
    name="qwen",
    model_types=("qwen2",),
    architecture="Qwen2ForCausalLM",
    ties_by_default=False,
    read=read_qwen2,
    write=write_qwen2,
    rules=llama.rules,
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    prefix="model.",
    ignored=llama.IGNORED,
)
QWEN3 = QWEN2._replace(
    name="qwen3",
    model_types=("qwen3",),
    architecture="Qwen3ForCausalLM",
    read=read_qwen3,
    write=write_qwen3,
)
