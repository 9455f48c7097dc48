"""The page of the checkpoint families, asked from the families themselves. Next to read: generate.py, which writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from markup import markdown_table
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import GatedMlp, Parallel, TransformerSpec

if TYPE_CHECKING:
    from unembed.checkpoints.families.base import Family

Held = tuple[str, str, str]
HEADER = ("what", "how", "why")


def families_page() -> str:
    """Every family of checkpoints: what opens it, what an absent tie flag means, what is refused, excused and renamed."""
    # torch comes with them: the other pages are written without
    from unembed.checkpoints.families import FAMILIES
    from unembed.checkpoints.families.base import COMMON_EXCUSES

    families = [one for one in FAMILIES if one.model_types]
    held = {one.name: held_keys(one) for one in families}
    common = [key for key in held[families[0].name] if all(key in keys for keys in held.values())]
    rows = (
        (
            f"`{one.name}`",
            ", ".join(f"`{kind}`" for kind in one.model_types),
            f"`{one.architecture}`",
            "tied" if one.ties_by_default else "not tied",
        )
        for one in families
    )
    parts = [
        "# Families",
        "",
        "Checkpoints of transformers that can be opened and written, by the `model_type` in their config.json. Each is a",
        "translation in one file of `src/unembed/checkpoints/families`; [add/family.md](add/family.md) tells how to add one.",
        "The last column is what a config means that has no `tie_word_embeddings`. Where a file holds a head that differs",
        "from its embedding, the file is believed and the load report says so.",
        "",
        *markdown_table(("family", "model_type", "transformers' class", "without a flag"), rows),
        "",
        "Every key of a config and every tensor of a file is used once, or excused with a reason; anything else stops the load",
        "by name. A tensor that no rule knows and the model does without is left out with `--ignore-tensor NAME`, or",
        "`ignore_tensors=[...]` from Python. What follows is what is excused or held to one value, family by family.",
        "",
        "## All families",
        "",
        *markdown_table(HEADER, (*map(held_row, common), *map(excused_row, COMMON_EXCUSES.items()))),
    ]
    for one in families:
        own = [key for key in held[one.name] if key not in common]
        parts += ["", f"## {one.name}", "", *markdown_table(HEADER, family_rows(one, own))]
    return "\n".join(parts)


def family_rows(family: Family, held: list[Held]) -> Iterator[tuple[str, str, str]]:
    """What a family holds to one value, excuses, takes twice and renames."""
    yield from map(held_row, held)
    yield from map(excused_row, family.excuses.items())
    yield from ((f"tensor `{one.pattern}`", "excused", one.reason) for one in family.ignored)
    yield from ((f"tensor `{one.theirs}`", "may repeat", f"`{one.original}`") for one in family.duplicates)
    yield from ((f"tensor `{one.pattern}`", "renamed", f"`{one.name}`") for one in family.renamed)


def held_row(held: Held) -> tuple[str, str, str]:
    """A key for which one value is accepted; that of an older name is the newer one's, whatever it is."""
    key, values, reason = held
    return f"key `{key}`", "the same value" if reason.startswith("an older name") else f"only {values}", reason


def excused_row(excuse: tuple[str, str]) -> tuple[str, str, str]:
    """A key that may hold anything."""
    return f"key `{excuse[0]}`", "excused", excuse[1]


def held_keys(family: Family) -> list[Held]:
    """The keys for which a family accepts one value only, found by reading the config that it writes for a model of its kind.

    Each with its values and the reason.
    """
    from unembed.checkpoints.families.base import read_spec
    from unembed.checkpoints.rules.accounting import ConfigReader

    config = ConfigReader(family.write(example_of(family)), family=family.name, where="docs")
    read_spec(family, config)
    return config.held


def example_of(family: Family) -> TransformerSpec:
    """A model of the family's kind: the first preset that it describes exactly, or one that is changed to be of that kind."""
    from unembed.checkpoints.foreign.export import why_not

    pythia = preset("pythia-70m").spec
    block, replace = pythia.blocks[0], msgspec.structs.replace
    gated = GatedMlp(d_mlp=block.mlp.d_mlp, activation="silu", has_bias=False)
    attention = replace(block.attention, biases=("q", "k", "v"))
    side_by_side = replace(block, mlp=gated, attention=attention, residual=Parallel(shares_norm=True))
    changed = replace(pythia, blocks=(side_by_side,) * pythia.n_layers)
    specs = (*(preset(name).spec for name in PRESETS), changed)
    return next(spec for spec in specs if why_not(family, spec) is None)
