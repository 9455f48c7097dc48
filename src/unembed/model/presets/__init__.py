"""Known shapes by name, as data: what `unembed count gpt2` counts and what a recipe starts from.

A preset is a spec with its source, never weights. Each family's file holds rows of sizes and one function that turns a
row into a spec; `PRESETS` below is the visible list of them all. No torch is imported.
"""

import msgspec

from unembed.errors import UsageError, did_you_mean
from unembed.model.presets import bert_like, esm, gemma, gpt, llama, neox, qwen
from unembed.model.presets.row import Row
from unembed.model.spec import TransformerSpec


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A named shape: its spec, where the shape was published, and what is odd about it ("" if nothing)."""

    name: str
    spec: TransformerSpec
    source: str
    note: str


PRESETS: dict[str, Row] = {
    **gpt.ROWS,
    **llama.ROWS,
    **qwen.ROWS,
    **gemma.ROWS,
    **neox.ROWS,
    **bert_like.ROWS,
    **esm.ROWS,
}


def preset(name: str) -> Preset:
    """Finds a preset by name. Raises: UsageError with the closest names.

    >>> preset("gpt2").spec.n_layers
    12
    """
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS, f"There are: {', '.join(PRESETS)}.")
        raise UsageError(f"no preset is named {name!r}. {hint} docs/presets.md lists them.")
    make, source, note = PRESETS[name]
    return Preset(name=name, spec=make(), source=source, note=note)
