"""What a file says and holds: its config's word, the family's default, and one table, two equal ones, two others, or none.

Nothing is built: a file that loading refuses because of its tie is read all the same. The next file to read is repair.py.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

from unembed.checkpoints.foreign.translate import account
from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.load import Found, spec_of
from unembed.model.spec import TransformerSpec
from unembed.tying.evidence import Check, Meaning, joined
from unembed.tying.memory import sharing
from unembed.tying.quantised import MOST_TIMES, times_rounding
from unembed.tying.relation import Relation, compare, relative_difference

Holds = Literal[
    "one_table",
    "head_missing",
    "table_missing",
    "both_missing",
    "one_storage",
    "equal_twice",
    "rounded_twice",
    "cast_twice",
    "two_tables",
    "two_shapes",
]
# A table that embeds and scores with something learned in between is shared in another way than plainly.
HOW_SHARED = {"mapped": " through a map", "pseudo_inverse": " by pseudo-inverse"}
OURS = ("embed.table", "head.table")


class FileTables(NamedTuple):
    """The two tables of a file under its own names; `meaning` is what the file says of its tie."""

    place: str
    format: str
    untied: TransformerSpec
    meaning: Meaning
    embed: str
    head: str
    stored: Mapping[str, Tensor]
    types: tuple[str, str] | None

    @property
    def means_tied(self) -> bool:
        """A file always means one of the two: where its config is silent, the family's default holds."""
        assert self.meaning.tied is not None
        return self.meaning.tied


class Held(NamedTuple):
    """What a file holds, in one word, and in a sentence's part with its numbers."""

    kind: Holds
    detail: str
    difference: float | None = None

    @property
    def is_loadable(self) -> bool:
        """Whether anything more can be asked of the model."""
        return self.kind not in ("head_missing", "table_missing", "both_missing")


def read_tables(found: Found) -> FileTables | None:
    """The tables of what a MODEL turned out to be; None for a preset. Raises: CheckpointError as loading does, but not
    because of the tie."""
    if found.source is not None:
        source, family = found.source, found.source.family
        untied, flag, tensors, _ = account(source)
        default = f"{family.name}'s default (the config is silent)"
        rule = family.tie_rule.partition(":")[0]
        rule = f"{rule.split()[0]}'s rule" if " ties " in rule else rule  # "nanoGPT ties always"
        meaning = Meaning(family.ties_by_default, default) if flag is None else Meaning(flag, rule)
        types = source.types or {}
        kinds = (types[family.embed], types[family.head]) if family.embed in types and family.head in types else None
        return FileTables(source.where, source.format, untied, meaning, family.embed, family.head, tensors, kinds)
    if found.run is not None and found.checkpoint is not None:
        spec = spec_of(found.run)
        weights = found.checkpoint.weights()
        meaning = Meaning(spec.ties_embeddings, "run.json")
        return FileTables(str(found.checkpoint.path), "native", spec, meaning, *OURS, weights, None)
    return None


def held(tables: FileTables) -> Held:
    """Looks what the file holds of the two tables."""
    has = [name for name in (tables.embed, tables.head) if name in tables.stored]
    embed, head = short(tables.embed), short(tables.head)
    if not has:
        return Held("both_missing", f"the file holds neither {embed} nor {head}")
    if has == [tables.head]:
        return Held("table_missing", f"the file holds {head} and no {embed}")
    if has == [tables.embed]:
        kind: Holds = "one_table" if tables.means_tied else "head_missing"
        return Held(kind, f"the file holds one table, {embed}" if kind == "one_table" else f"the file holds no {head}")
    first, second = tables.stored[tables.embed], tables.stored[tables.head]
    if sharing(first, second).kind == "alias":
        return Held("one_storage", f"the file holds one storage under two names, {embed} and {head}", 0.0)
    return _two(tables, first, second)


def _two(tables: FileTables, first: Tensor, second: Tensor) -> Held:
    embed, head = short(tables.embed), short(tables.head)
    both = f"{embed} and {head}"
    if first.shape == second.shape and tables.types is not None and first.ndim == 2:
        times = times_rounding(first, second, tables.types)
        if times is not None and 0 < times <= MOST_TIMES:
            difference = relative_difference(first, second)
            told = (
                f"{embed} ({tables.types[0]}) and {head} ({tables.types[1]}) differ by {difference:.2g} of their size, "
                f"{times:.2f} times what rounding one table twice leaves"
            )
            return Held("rounded_twice", told, difference)
    relation: Relation = compare(first, second)
    match relation.kind:
        case "equal_copy" | "transposed_copy":
            return Held("equal_twice", f"the file holds the table twice, equal, as {both}", 0.0)
        case "cast_copy":
            return Held("cast_twice", f"the file holds the table twice, as {both}, in two types", relation.difference)
        case "other_shape" | "resized_alone":
            return Held("two_shapes", f"{both} have other shapes: {relation.detail}")
    told = "" if relation.difference is None else f", which differ by {relation.difference:.2g} of their size"
    return Held("two_tables", f"the file holds two tables, {both}{told}", relation.difference)


def checks_of(tables: FileTables, found: Held) -> list[Check]:
    """What the file says, what it holds, and whether these agree."""
    through = HOW_SHARED.get(str(tables.untied.head.__struct_config__.tag), "")
    says = f"{tables.meaning.source} says {f'tied{through}' if tables.means_tied else 'untied'}"
    lies = found.kind in ("two_tables", "two_shapes", "cast_twice") and tables.means_tied
    config = Check("config", "broken" if lies else "ok", says)
    is_whole = found.is_loadable and found.kind != "two_shapes"
    return [config, Check("file", "ok" if is_whole else "broken", found.detail)]


def loads_tied(tables: FileTables, found: Held) -> bool | None:
    """Whether what the file gives is one table; None where it gives no model."""
    if not found.is_loadable or found.kind == "two_shapes":
        return None
    if found.kind == "one_table":
        return True
    return tables.means_tied and found.kind in ("one_storage", "equal_twice")


def against_memory(tables: FileTables, live: Mapping[str, Tensor]) -> Check:
    """Whether the file holds what is in memory: `live` has the two matrices by the file's names."""
    pairs = [(name, tables.stored[name], one) for name, one in live.items() if name in tables.stored]
    if not pairs:
        return Check("file_and_memory", "unknown", "the file holds neither of the two matrices under these names")
    other = [
        name for name, stored, one in pairs if compare(one.detach(), stored).kind not in ("equal_copy", "cast_copy")
    ]
    if other:
        told = f"the file's {joined(other)} is another than in memory; was it trained on since?"
        return Check("file_and_memory", "unknown", told)
    return Check("file_and_memory", "ok", f"the file holds {joined([name for name, _, _ in pairs])} as it is in memory")
