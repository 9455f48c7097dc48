"""Is a model really tied: in its file, in memory, in the optimizer, compiled, sharded, exported? One sentence, with evidence.

    examine("exported")                   a run, a checkpoint, a file or folder, a preset
    examine(model, optimizer)             any module in memory; its two matrices are found, or given

Nothing is written. "Tied" means that writing one entry of the matrix that embeds changes the matrix that scores. The next
file to read is tables.py, which finds the two.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from unembed.arguments import refuse_no_flag, refuse_no_path
from unembed.checkpoints.load import Found, find, open_found
from unembed.errors import CheckpointError, InputError, UsageError
from unembed.model.presets import preset
from unembed.model.transformer import Transformer
from unembed.results import Result
from unembed.tying import file_evidence, live_evidence, optimizer_evidence, verdict
from unembed.tying.evidence import Check, Meaning
from unembed.tying.relation import Relation, relate
from unembed.tying.tables import Pair, find_tables

_BROKEN = ("two_parameters", "detached_view", "computed_detached", "overlap", "one_without_memory")
_WITH_REPAIR = ("equal_twice_untied", "rounded_twice", "through_map", "through_inverse")
_UNKNOWN = ("no_memory", "no_head", "computed_apart")


def examine(
    model: nn.Module | str | Path,
    optimizer: torch.optim.Optimizer | None = None,
    file: str | Path | None = None,
    *,
    embed: str | Tensor | nn.Module | None = None,
    head: str | Tensor | nn.Module | None = None,
    means_tied: bool | None = None,
    like: str | None = None,
) -> Result:
    """Examines a module in memory, or any MODEL by name. Values: `tied`, `verdict`, `kind`, `repair`, `checks`.

    `file` is a MODEL to hold a module against. `embed` and `head` name the two matrices (a name, the tensor, or the module that
    has it) where they are not to be found; `means_tied` says what is intended where no config does. `like` is as in `load`.
    Raises: InputError where no matrix embeds; UsageError for options that do not go together; as `load` for files.

    >>> table = nn.Embedding(5, 4)
    >>> examine(nn.ModuleDict({"wte": table, "head": nn.Linear(4, 5, bias=False)})).values["verdict"]
    'Not tied: wte.weight and head.weight are two matrices.'
    """
    if isinstance(model, str | Path):
        if optimizer is not None or file is not None or embed is not None or head is not None:
            raise UsageError(
                "examine: optimizer, file, embed and head belong to a module in memory; load the MODEL first"
            )
        return examine_found(find(model, like=like))
    if not isinstance(model, nn.Module):
        raise InputError(f"examine: got a {type(model).__name__}; give a torch.nn.Module, or the name of a MODEL")
    if optimizer is not None and not isinstance(getattr(optimizer, "param_groups", None), list):
        raise UsageError(f"examine: optimizer is {repr(optimizer)[:60]}; give a torch.optim.Optimizer, or leave it out")
    for name, given in (("embed", embed), ("head", head)):
        if given is not None and not isinstance(given, str | Tensor | nn.Module):
            raise UsageError(
                f"examine: {name} is {repr(given)[:60]}; give a matrix's name, the tensor or the module that has it"
            )
    if means_tied is not None:
        refuse_no_flag("examine", "means_tied", means_tied)
    refuse_no_path("examine", "file", file, "a MODEL to hold the module against")
    pair = find_tables(model, embed=embed, head=head)
    kind, relation, checks = _in_memory(model, pair, live_evidence.meaning_of(pair.root, means_tied), optimizer)
    meaning = live_evidence.meaning_of(pair.root, means_tied)
    if file is not None:
        checks += _against(pair, relation, find(file, like=like))
    told = verdict.of_memory(kind, pair, relation, meaning, checks)
    b = pair.head.name if pair.head is not None else "the head"
    return _result(_is_tied(pair, relation), told, kind, verdict.repair_of(kind, pair.embed.name, b), checks)


def examine_found(found: Found) -> Result:
    """Examines what a MODEL turned out to be. Raises: CheckpointError where it is broken in another way than its tie."""
    tables = file_evidence.read_tables(found)
    if tables is None:
        assert found.preset is not None
        return _preset(found.preset)
    holds = file_evidence.held(tables)
    checks = file_evidence.checks_of(tables, holds)
    if holds.is_loadable and tables.format != "gguf":  # a GGUF is unpacked by loading, all of it
        checks += _loaded(found)
    if found.checkpoint is not None and holds.is_loadable:
        saved = found.checkpoint.optimizer()
        rows = tables.untied.embedding.vocab_size
        checks += optimizer_evidence.look_at_saved(
            saved, embed=tables.embed, head=tables.head, is_tied=tables.means_tied, rows=rows
        )
    kind = verdict.kind_of_file(tables, holds)
    told = verdict.of_file(tables, holds, checks)
    repair = verdict.repair_of(kind, tables.embed, tables.head) if _needs_repair(kind, checks) else None
    return _result(file_evidence.loads_tied(tables, holds), told, kind, repair, checks)


def _needs_repair(kind: str, checks: Sequence[Check]) -> bool:
    return any(check.status == "broken" for check in checks) or kind in _WITH_REPAIR


def _in_memory(
    module: nn.Module, pair: Pair, meaning: Meaning, optimizer: torch.optim.Optimizer | None
) -> tuple[str, Relation | None, list[Check]]:
    relation = None if pair.head is None else relate(pair.embed.tensor, pair.head.tensor)
    kind = _kind(pair, relation)
    checks = [Check("tables", "ok", _where(pair))]
    is_tied = _is_tied(pair, relation)
    if meaning.tied is not None:
        agrees = is_tied is None or is_tied == meaning.tied
        told = f"{meaning.source} says {'tied' if meaning.tied else 'untied'}"
        checks.append(Check("config", "ok" if agrees else "broken", told))
    checks.append(Check("storage", "broken" if kind in _BROKEN else "unknown" if kind in _UNKNOWN else "ok", kind))
    checks += live_evidence.gradients(pair, relation)
    checks += live_evidence.uses(pair)
    if optimizer is not None:
        checks += optimizer_evidence.look(optimizer, pair)
    checks += live_evidence.copies(pair)
    checks += live_evidence.wrappers(module, pair, relation)
    checks += live_evidence.export(pair, relation, meaning)
    # the sentence of the kind is the storage's detail, without what else is wrong
    plain = verdict.of_memory(kind, pair, relation, Meaning(None, ""), [])
    return kind, relation, [c._replace(detail=plain.rstrip(".")) if c.name == "storage" else c for c in checks]


def _kind(pair: Pair, relation: Relation | None) -> str:
    if relation is None:
        return "no_head"
    if pair.computed is not None:
        follows = "computed" if pair.computed.learns or not pair.embed.tensor.requires_grad else "computed_detached"
        return follows if pair.computed.moves else "computed_apart"
    if isinstance(pair.root, Transformer) and relation.kind == "same_parameter":
        return verdict.shared_kind(pair.root.spec, relation.kind)
    return relation.kind


def _is_tied(pair: Pair, relation: Relation | None) -> bool | None:
    if pair.computed is not None:
        return pair.computed.moves
    return None if relation is None else relation.moves


def _where(pair: Pair) -> str:
    if pair.head is None:
        return f"{pair.embed.name} embeds, and no head was found ({pair.found})"
    return f"{pair.embed.name} embeds and {pair.head.name} scores ({pair.found})"


def _loaded(found: Found) -> list[Check]:
    """What comes of the file in memory."""
    try:
        model = open_found(found, dtype="file")
    except CheckpointError as error:
        return [Check("load", "broken", f"it does not load: {str(error).splitlines()[0].rstrip('.')}")]
    pair = find_tables(model)
    _, _, checks = _in_memory(model, pair, Meaning(None, ""), None)
    return [check for check in checks if check.name != "tables"]


def _against(pair: Pair, relation: Relation | None, found: Found) -> list[Check]:
    """A file beside the module in memory: what it holds, and whether these are the same numbers and the same tie."""
    tables = file_evidence.read_tables(found)
    if tables is None:
        raise UsageError("examine: file names a preset, which holds no numbers; give a file, a folder or a run")
    holds = file_evidence.held(tables)
    checks = [check for check in file_evidence.checks_of(tables, holds) if check.name == "file"]
    in_file, in_memory = file_evidence.loads_tied(tables, holds), _is_tied(pair, relation)
    if in_file is not None and in_memory is not None and in_file != in_memory:
        words = {True: "tied", False: "untied"}
        told = f"the file gives a model that is {words[in_file]}, the one in memory is {words[in_memory]}"
        checks.append(Check("file_and_memory", "broken", told))
        return checks
    live = {tables.embed: pair.embed.tensor}
    if pair.head is not None and not in_memory:
        live[tables.head] = pair.head.tensor
    return [*checks, file_evidence.against_memory(tables, live)]


def _preset(name: str) -> Result:
    with torch.device("meta"):  # a shape, however large: there are no numbers to look at
        model = Transformer(preset(name).spec)
    tied = model.spec.ties_embeddings
    kind = "preset_tied" if tied else "preset_untied"
    pair = find_tables(model)
    checks = [
        Check("config", "ok", f"the preset says {'tied' if tied else 'untied'}"),
        *live_evidence.export(pair, None, Meaning(tied, "the preset")),
    ]
    told = verdict.SENTENCES[kind].format(a="embed.table", b="head.table") + "."
    return _result(tied, told, kind, None, checks)


def _result(tied: bool | None, told: str, kind: str, repair: str | None, checks: Sequence[Check]) -> Result:
    values = {"tied": tied, "verdict": told, "kind": kind, "repair": repair}
    return Result(name="tie", values=values | {"checks": [check._asdict() for check in checks]})
