"""A file of another program becomes a model: config -> spec, tensors -> parameters, and a report of what was decided.

The same few lines serve every family and every format. Parameters are made without memory and take over the file's
mapped tensors, so nothing is held twice and nothing stays at a random value. The next file to read is export.py, the way
back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.accounting import ConfigReader, Excused
from unembed.checkpoints.families.base import Family, read_spec
from unembed.checkpoints.names import with_one_spelling
from unembed.checkpoints.rules import to_ours
from unembed.checkpoints.safetensors import clean_names
from unembed.checkpoints.tie import TieDecision, decide_tie
from unembed.model import counts
from unembed.model.check import check
from unembed.model.spec import TransformerSpec, with_tying
from unembed.model.transformer import Transformer

# What a loaded model computes in: the file's own types, or one type for all.
Dtype = torch.dtype | Literal["file"] | None

TIE_KEY = "tie_word_embeddings"
_HALF = (torch.float16, torch.bfloat16)


class Source(NamedTuple):
    """What a reader of some format found: the family, the config as plain values, the tensors by the file's names.

    `format` names the format in reports, `where` the file in messages. Tensors may be made when they are asked for.
    """

    family: Family
    format: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    where: str


class LoadReport(NamedTuple):
    """What loading decided. `file_dtypes` counts the file's tensors by type; `dtype` is that of the model in memory."""

    family: str
    format: str
    tied: bool
    tie_reason: str
    file_dtypes: dict[str, int]
    dtype: str
    parameters: int
    excused: tuple[Excused, ...]
    warnings: tuple[str, ...]

    def summary(self) -> str:
        """One line for people: family, format, size, types, and the tie with its reason."""
        return (
            f"{self.family} ({self.format}), {self.parameters:,} parameters, {self.dtype}, {self.tie_reason}"
            f"; {len(self.excused)} excused"
        )


class Described(NamedTuple):
    """A source whose config and names are accounted for, before any number is read."""

    spec: TransformerSpec
    tie: TieDecision
    tensors: dict[str, Tensor]
    excused: list[Excused]


def describe(source: Source) -> Described:
    """The spec of a source: its config accounted for key by key, and its tie decided. Raises: CheckpointError, SpecError."""
    family = source.family
    config = ConfigReader(source.config, family=family.name, where=source.where)
    flag = config.flag(TIE_KEY, None)
    untied = read_spec(family, config)
    excused = config.finish()
    check(untied)
    known = [rule.theirs for rule in family.rules(with_tying(untied, False))]
    tensors = with_one_spelling(clean_names(source.tensors), family.prefix, family.renamed, known, where=source.where)
    tie = decide_tie(
        flag, family.ties_by_default, family.embed, family.head, tensors, family=family.name, where=source.where
    )
    return Described(check(with_tying(untied, tie.tied)), tie, tensors, excused)


def translate(source: Source, *, dtype: Dtype = None, ignore: Sequence[str] = ()) -> Transformer:
    """The model of a source, with `load_report` set. `ignore` names surplus tensors to be left out; none is otherwise.

    dtype None widens half-precision files to float32, which is exact, since products in half precision are not; "file"
    keeps the file's types. Raises: CheckpointError, SpecError.
    """
    family, (spec, tie, tensors, excused) = source.family, describe(source)
    if tie.repeats:
        del tensors[family.head]
        excused = [*excused, Excused(family.head, f"repeats {family.embed}, to the last bit")]
    shapes = {tensor.name: tensor.shape for tensor in counts.tensors(spec)}
    weights, unused = to_ours(
        family.rules(spec),
        shapes,
        tensors,
        family=family.name,
        where=source.where,
        ignored=family.ignored,
        duplicates=family.duplicates,
        passed_over=ignore,
    )
    file_dtypes: dict[str, int] = {}
    for name in tensors:
        kind = str(tensors[name].dtype).removeprefix("torch.")
        file_dtypes[kind] = file_dtypes.get(kind, 0) + 1
    for name in weights:  # one at a time: a file is never held in both types at once
        weights[name] = as_dtype(weights[name], dtype)
    with torch.device("meta"):
        model = Transformer(spec)
    model.load_state_dict(weights, assign=True)
    kinds = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    model.load_report = LoadReport(
        family=family.name,
        format=source.format,
        tied=tie.tied,
        tie_reason=tie.reason,
        file_dtypes=file_dtypes,
        dtype=" and ".join(kinds),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        excused=(*excused, *unused),
        warnings=(f"{source.where}: {tie.reason}",) if tie.is_surprising else (),
    )
    return model


def as_dtype(tensor: Tensor, dtype: Dtype) -> Tensor:
    """The tensor in the type that was asked for, as `translate` says; itself where that is its own."""
    if dtype == "file":
        return tensor
    if dtype is None:
        return tensor.float() if tensor.dtype in _HALF else tensor
    return tensor.to(dtype)
