"""Which layers see everything and which only the last few keys: the two ways in which configs say it, and back.

Newer files list a word for each layer under `layer_types`; older ones have a rule, such as every other layer, which each
family knows. The next file to read is mistral.py.
"""

from typing import Any

from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.spec import Causal, TransformerSpec

# One for each layer; None sees everything before it.
Windows = tuple[int | None, ...]

SLIDING, FULL = "sliding_attention", "full_attention"


def no_windows(config: ConfigReader, n_layers: int) -> Windows:
    """Every layer sees everything."""
    return (None,) * n_layers


def from_types(config: ConfigReader, types: list[str], n_layers: int, window: int | None) -> Windows:
    """The window of each layer from the words of `layer_types`. Raises: CheckpointError if a list or a window is lacking."""
    if len(types) != n_layers:
        raise config.error(f"layer_types lists {len(types)} layers, num_hidden_layers says {n_layers}; they must agree")
    if SLIDING in types and window is None:
        raise config.error(f"layer {types.index(SLIDING)} has a sliding window, but sliding_window gives none")
    return tuple(window if kind == SLIDING else None for kind in types)


def layer_types(config: ConfigReader) -> list[str] | None:
    """The words of `layer_types`, or None where the file has none."""
    types: list[str] | None = config.words("layer_types", (SLIDING, FULL))
    return types


def windows_of(spec: TransformerSpec) -> Windows:
    """The windows of a causal spec."""
    sees = [block.attention.sees for block in spec.blocks]
    return tuple(one.window if isinstance(one, Causal) else None for one in sees)


def write_types(spec: TransformerSpec) -> dict[str, Any]:
    """`layer_types` and `sliding_window` of a spec; where windows differ in width, reading them back will tell."""
    windows = windows_of(spec)
    return {
        "layer_types": [SLIDING if window else FULL for window in windows],
        "sliding_window": next((window for window in windows if window), None),
    }
