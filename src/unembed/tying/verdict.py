"""One sentence for what was found, and one for what to do about it.

Each kind of finding has its sentence here, so that they can be read side by side; {a} is the matrix that embeds, {b} the one
that scores. Where the config says otherwise, or something else is broken, the sentence goes on and says so. Before it:
relation.py and file_evidence.py. The next file to read is doctor.py.
"""

from collections.abc import Mapping, Sequence

from unembed.model.spec import MappedHead, PseudoInverseHead, TransformerSpec
from unembed.tying.evidence import Check, Meaning
from unembed.tying.file_evidence import FileTables, Held
from unembed.tying.quantised import is_quantised
from unembed.tying.relation import Relation
from unembed.tying.tables import Pair

SENTENCES: Mapping[str, str] = {
    "same_parameter": "Tied: one parameter, {a}, embeds and scores",
    "through_map": "Shared through a map: {a} embeds, and scores what head.map, a learned square matrix, makes of the stream",
    "through_inverse": "Shared by pseudo-inverse: rows of {a} embed through the inverse of T, and score what T makes of the "
    "stream, T made of head.factor",
    "two_parameters": "Tied in memory alone: {a} and {b} are two parameters over one storage, so each learns from its own "
    "use and the numbers are stepped twice",
    "view": "Tied: {b} is a view of {a}",
    "transposed_view": "Tied: {b} is {a}, transposed, in one storage",
    "rows_view": "Tied: {a} and {b} lie in one storage and share {detail}",
    "detached_view": "Tied in memory alone: {a} and {b} are one storage, and one of the two uses teaches it nothing",
    "computed": "Tied: the scores use a matrix made from {a} in each forward",
    "computed_detached": "Tied in memory alone: the scores use a matrix made from {a} in each forward, and teach it nothing",
    "computed_apart": "Not tied: the scores use a matrix made in each forward, and not from {a}",
    "overlap": "Broken: {a} and {b} overlap in memory and are not one table ({detail})",
    "equal_copy": "Not tied: {b} is an equal copy of {a} and will drift apart from it with the first training step",
    "transposed_copy": "Not tied: {b} is an equal copy of {a}, transposed, and will drift apart from it with the first "
    "training step",
    "cast_copy": "Not tied: {b} is a copy of {a} in another type ({detail})",
    "quantised_copy": "Not tied: {whole} holds {table} in whole numbers, {detail}, and does not follow it",
    "drifted": "Not tied: {a} and {b} differ by {difference:.2g} of their size: one table once, they have drifted apart",
    "resized_alone": "Not tied: one of {a} and {b} was resized alone ({detail})",
    "differing": "Not tied: {a} and {b} are two matrices",
    "other_shape": "Not tied: {a} and {b} are two matrices of other shapes ({detail})",
    "no_memory": "Not known: {a} and {b} are two parameters without numbers (meta); filled as they are, they will not be tied",
    "one_without_memory": "Broken: of {a} and {b} one was never filled and is without numbers (meta)",
    "no_head": "Not known: {a} embeds, and no matrix of {root} scores a vocabulary",
    # of files
    "one_table": "Tied: the file holds one table, {a}",
    "head_missing": "Broken: {source} says untied, and the file holds no {b}",
    "table_missing": "Broken: the file holds {b}, which scores, and no {a}, which embeds",
    "both_missing": "Broken: the file holds neither {a} nor {b}",
    "one_storage": "Tied: the file holds one storage under two names, {a} and {b}",
    "one_storage_untied": "Not tied: {b} and {a} are one storage in the file, and {source} says untied: they are loaded as "
    "equal copies, which will drift apart with the first training step",
    "equal_twice": "Tied: the file holds one table twice, equal, as {a} and {b}",
    "equal_twice_untied": "Not tied: {b} is an equal copy of {a} in the file and will drift apart from it with the first "
    "training step",
    "rounded_twice": "Not tied: {b} is a copy of {a}, rounded in another way: {detail}",
    "cast_twice": "Not tied: {b} is a copy of {a} in another type",
    "two_tables": "Not tied: the file holds two tables, {a} and {b}{apart}",
    "two_shapes": "Broken: {detail}",
    "preset_tied": "Tied: the preset has one table, {a}",
    "preset_untied": "Not tied: the preset has a head of its own, {b}",
}
_MULTIPLIED_OUT = (
    "None is needed; where no such head is known, unembed tie MODEL --repair untie --out DIR writes two tables."
)
REPAIRS: Mapping[str, str] = {
    "two_parameters": "Assign the parameter itself, {b} = {a}, and make the optimizer anew.",
    "detached_view": "Assign the parameter itself, {b} = {a}, not its .data or .detach().",
    "computed_detached": "Leave the .detach() out of the forward.",
    "overlap": "Assign the parameter itself, {b} = {a}, or a clone of its own.",
    "equal_copy": "To tie them assign the parameter itself, {b} = {a}, and make the optimizer anew.",
    "transposed_copy": "To tie them use {a}.T in the forward in place of {b}.",
    "no_memory": "Assign {b} = {a} before filling, and again after.",
    "one_without_memory": "Assign {b} = {a} again after filling.",
    "head_missing": "unembed tie MODEL --repair tie --out DIR, if it is meant to be tied; else find the head.",
    "table_missing": "unembed tie MODEL --repair tie --out DIR, if the head is the table; else find the table.",
    "two_tables": "unembed tie MODEL --repair untie --out DIR writes a config that says so.",
    "equal_twice_untied": "unembed tie MODEL --repair tie --out DIR makes one table of the two.",
    "through_map": _MULTIPLIED_OUT,
    "through_inverse": _MULTIPLIED_OUT,
    "rounded_twice": "Ask for the file that was quantised: it may hold one table.",
}
_SAID_ALREADY = ("config", "storage", "gradient", "file")


def of_memory(kind: str, pair: Pair, relation: Relation | None, meaning: Meaning, checks: Sequence[Check]) -> str:
    """The verdict on a model in memory."""
    b = pair.head.name if pair.head is not None else "the head"
    a = pair.embed.name
    if a == b and pair.head is not None and pair.head.tensor is not pair.embed.tensor:
        a, b = f"{a} (embedding)", f"{b} (head)"
    detail = relation.detail if relation is not None else ""
    difference = relation.difference if relation is not None and relation.difference is not None else float("nan")
    table, whole = (b, a) if is_quantised(pair.embed.tensor) else (a, b)
    sentence = SENTENCES[kind].format(
        a=a, b=b, table=table, whole=whole, detail=detail, difference=difference, root=type(pair.root).__name__
    )
    is_tied = relation.moves if relation is not None else None
    is_tied = pair.computed.moves if pair.computed is not None else is_tied
    if meaning.tied is not None and is_tied is not None and meaning.tied != is_tied:
        sentence += f", although {meaning.source} says {'tied' if meaning.tied else 'untied'}"
    return _with_more(sentence, checks)


def of_file(tables: FileTables, found: Held, checks: Sequence[Check]) -> str:
    """The verdict on a file."""
    kind = kind_of_file(tables, found)
    is_near = found.difference is not None and found.kind == "two_tables"
    apart = f", which differ by {found.difference:.2g} of their size" if is_near else ""
    sentence = SENTENCES[kind].format(
        a=tables.embed, b=tables.head, detail=found.detail, source=tables.meaning.source, apart=apart
    )
    if tables.means_tied and found.kind in ("two_tables", "rounded_twice", "cast_twice", "two_shapes"):
        sentence += f", although {tables.meaning.source} says tied"
    return _with_more(sentence, checks)


def kind_of_file(tables: FileTables, found: Held) -> str:
    """What the file holds, in the light of what it says."""
    if found.kind == "one_table":
        return shared_kind(tables.untied, found.kind)
    is_copy = found.kind in ("one_storage", "equal_twice") and not tables.means_tied
    return f"{found.kind}_untied" if is_copy else found.kind


def shared_kind(spec: TransformerSpec, plain: str) -> str:
    """The kind of one table, which a map may stand beside: `plain` where none does."""
    match spec.head:
        case MappedHead():
            return "through_map"
        case PseudoInverseHead():
            return "through_inverse"
    return plain


def repair_of(kind: str, a: str, b: str) -> str | None:
    """What to do about a finding, where there is anything."""
    return REPAIRS[kind].format(a=a, b=b) if kind in REPAIRS else None


def _with_more(sentence: str, checks: Sequence[Check]) -> str:
    more = [check.detail for check in checks if check.status == "broken" and check.name not in _SAID_ALREADY]
    return f"{sentence}, but {more[0]}." if more else f"{sentence}."
