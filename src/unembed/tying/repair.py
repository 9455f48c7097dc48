"""Writes a model anew, tied or untied: the repair of a file whose config and tables disagree, or a decision that was changed.

To tie keeps one of two tables and drops the other; where they differ, which one is for the user to say. To untie begins with
a head that is a copy of the table, so the function stays what it was. The source is never written to. Before it:
doctor.py. The next file to read is ../checkpoints/convert.py.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.convert import Converted, free_place, write_model
from unembed.checkpoints.foreign.carrying import carried
from unembed.checkpoints.foreign.tie import TieDecision
from unembed.checkpoints.foreign.translate import Described, Named, account, assemble
from unembed.checkpoints.load import TOKENIZER, Found, model_from_tensors, open_found
from unembed.errors import CheckpointError, UsageError
from unembed.model.check import check
from unembed.model.spec import MappedHead, PseudoInverseHead, with_tying
from unembed.model.transformer import Transformer
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers import foreign
from unembed.tying.effective import effective_tables
from unembed.tying.file_evidence import FileTables, held, read_tables
from unembed.tying.relation import compare

_FOLDERS = ("huggingface", "safetensors")


class Repaired(NamedTuple):
    """What was written, and in a sentence what became of the two tables."""

    converted: Converted
    told: str


def repair(found: Found, to: str, out: str | Path, *, keep: str | None = None) -> Repaired:
    """Writes the model of a file at `out`, tied or untied: as a folder for transformers where it came as one, else as a run.

    Raises: UsageError where there is nothing to repair, or something stands at `out`; CheckpointError where two tables differ
    and `keep` does not say which one stays, or a table is missing that cannot be made.
    """
    if to not in ("tie", "untie") or keep not in (None, "embed", "head"):
        raise UsageError(
            f'tie: repair is {to!r} and keep {keep!r}; expected "tie" or "untie", and "embed" or "head" or none'
        )
    place = free_place(out)
    tables = read_tables(found)
    if tables is None:
        raise UsageError(
            "tie: a preset is a shape; there is no file to repair. Train it with --set tied=true or false."
        )
    if keep is not None and to == "untie":
        raise UsageError("tie: --keep says which table stays when one is dropped; --repair untie drops none")
    if to == "untie" and isinstance(tables.untied.head, MappedHead | PseudoInverseHead):
        model, told = _apart(found)
    else:
        weights, told = _tied(tables, keep) if to == "tie" else _untied(tables)
        model = _build(found, tables, weights, is_tied=to == "tie")
    is_folder = tables.format in _FOLDERS
    prefers = None if found.source is None else found.source.family.name
    along = carried(found.source, found.path, None, model)
    to_format = "hf" if is_folder else "native"
    written = write_model(model, place, to=to_format, source=str(found.path), prefers=prefers, along=along)
    return Repaired(written, told)


def _tied(tables: FileTables, keep: str | None) -> tuple[dict[str, Tensor], str]:
    """The one table under the embedding's name."""
    holds = held(tables)
    match holds.kind:
        case "both_missing":
            raise CheckpointError(f"{tables.place}: {holds.detail}; there is nothing to make a table of")
        case "one_table":
            raise UsageError(f"{tables.place}: is tied already: {holds.detail}. There is nothing to repair.")
        case "head_missing":
            return {tables.embed: tables.stored[tables.embed]}, f"{tables.embed} is used twice; nothing was dropped"
        case "table_missing":
            return {tables.embed: tables.stored[tables.head]}, f"{tables.head} is used twice, as {tables.embed}"
    first, second = tables.stored[tables.embed], tables.stored[tables.head]
    found = compare(first, second)
    is_equal = found.kind == "equal_copy"
    if not is_equal and keep is None:
        raise CheckpointError(
            f"{tables.place}: {tables.embed} and {tables.head} are not equal, and tying drops one of them ({holds.detail}). "
            "Say which one stays: --keep embed or --keep head."
        )
    if first.shape != second.shape:
        raise CheckpointError(
            f"{tables.place}: {tables.embed} is {list(first.shape)}, {tables.head} {list(second.shape)}; one table cannot be "
            "both. Resize one of them where it was trained."
        )
    kept, dropped = (tables.head, tables.embed) if keep == "head" else (tables.embed, tables.head)
    far = "" if found.difference is None else f"; they differed by {found.difference:.3g} of their size"
    told = f"{dropped} was dropped and {kept} kept" + ("; they were equal" if is_equal else far)
    return {tables.embed: tables.stored[kept]}, told


def _untied(tables: FileTables) -> tuple[dict[str, Tensor], str]:
    """Two tables, the head's made from the embedding's where the file has none."""
    holds = held(tables)
    match holds.kind:
        case "both_missing" | "table_missing":
            raise CheckpointError(f"{tables.place}: {holds.detail}; there is no table to begin with")
        case "one_table" | "head_missing":
            table = tables.stored[tables.embed]
            told = f"{tables.head} begins as a copy of {tables.embed}"
            return {tables.embed: table, tables.head: table.clone()}, told
    if not tables.means_tied:
        raise UsageError(f"{tables.place}: is untied already: {holds.detail}. There is nothing to repair.")
    both = {name: tables.stored[name] for name in (tables.embed, tables.head)}
    if holds.kind in ("equal_twice", "one_storage"):
        return both | {tables.head: both[tables.head].clone()}, f"{tables.head} begins as a copy of {tables.embed}"
    return both, "both tables were kept, and the config says so now"


def _apart(found: Found) -> tuple[Transformer, str]:
    """Two plain tables for one and a matrix: each is the product that acted in its place, so the function stays what it was."""
    model = open_found(found, dtype="file")
    embeds, scores = effective_tables(model)
    spec = check(with_tying(model.spec, False))
    with torch.device("meta"):
        made = Transformer(spec)
    own = {"embed.table": embeds, "head.table": scores}
    made.load_state_dict(
        {
            name: own.get(name, one)
            for name, one in [*model.state_dict().items(), *own.items()]
            if not name.startswith(("head.map.", "head.factor."))
        },
        assign=True,
    )
    made.tokenizer = model.tokenizer
    return made, "each table is now the product that acted in its place, and the matrix between them is gone"


class _Replaced(Named):
    """A source's tensors with the two tables in the form that is wanted."""

    def __init__(self, tensors: Named, tables: dict[str, Tensor], names: tuple[str, str]) -> None:
        others = {name: name for name in tensors if name not in names}
        super().__init__(_Both(tensors, tables), {**others, **{name: name for name in tables}})


class _Both(dict[str, Tensor]):
    """Looks a tensor up in the made ones first; the others are made when they are asked for."""

    def __init__(self, tensors: Named, tables: dict[str, Tensor]) -> None:
        super().__init__(tables)
        self._rest = tensors

    def __missing__(self, name: str) -> Tensor:
        return self._rest[name]


def _build(found: Found, tables: FileTables, made: dict[str, Tensor], *, is_tied: bool) -> Transformer:
    spec = check(with_tying(tables.untied, is_tied))
    names = (tables.embed, tables.head)
    if found.source is None:
        assert found.run is not None
        rest = {name: tensor for name, tensor in tables.stored.items() if name not in names}
        model = model_from_tensors(spec, {**rest, **made}, where=tables.place)
        if (beside := found.run.path / TOKENIZER).is_file():
            model.tokenizer = tokenizer_files.load(beside)
        return model
    accounted = account(found.source)
    decided = TieDecision(is_tied, "as it was repaired")
    described = Described(spec, decided, _Replaced(accounted.tensors, made, names), accounted.excused)
    model = assemble(found.source, described, dtype="file")
    folder = found.path if found.path.is_dir() else found.path.parent
    if found.source.tokenizer is not None:
        model.tokenizer = found.source.tokenizer
    elif (beside_it := foreign.find(folder, spec.embedding.vocab_size)) is not None:
        model.tokenizer = tokenizer_files.load(beside_it)
    return model
