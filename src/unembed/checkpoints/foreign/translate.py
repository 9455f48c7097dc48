"""A file of another program becomes a model: config -> spec, tensors -> parameters, and a report of what was decided.

The same few lines serve every family and every format. Parameters are made without memory and take over the file's
mapped tensors, so nothing is held twice and nothing stays at a random value. The next file to read is export.py, the way
back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.families.base import Family, read_spec
from unembed.checkpoints.foreign.tie import TieDecision, decide_tie
from unembed.checkpoints.formats.safetensors import clean_names, short
from unembed.checkpoints.rules.accounting import ConfigReader, Excused, listed
from unembed.checkpoints.rules.ignoring import REASON, ignored_names
from unembed.checkpoints.rules.names import with_one_spelling
from unembed.checkpoints.rules.repeats import settle
from unembed.checkpoints.rules.tensors import to_ours
from unembed.errors import CheckpointError, SpecError, UsageError
from unembed.model import counts
from unembed.model.check import check
from unembed.model.spec import TransformerSpec, with_tying
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import Tokenizer

# What a loaded model computes in: the file's own types, or one type for all.
Dtype = torch.dtype | Literal["file"] | None

TIE_KEY = "tie_word_embeddings"
EMBED_TABLE, HEAD_TABLE = "embed.table", "head.table"
SPECIAL_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
_HALF = (torch.float16, torch.bfloat16)


class Source(NamedTuple):
    """What a reader of some format found: the family, the config as plain values, the tensors by the file's names.

    `format` names the format in reports, `where` the file in messages. A tensor may be made when it is asked for, each time
    anew; `types` are those of the file, where the tensors have others. `ignored` names surplus tensors to be left out, as
    rules/ignoring.py says. `generation_end` is the end that a generation_config.json names. `prompting` is what a file without
    config.json says of its tokenizer: the chat template, ids.
    """

    family: Family
    format: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    where: str
    types: Mapping[str, str] | None = None
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    generation_end: Any = None
    prompting: Mapping[str, Any] = {}


class Named(Mapping[str, Tensor]):
    """A source's tensors under other names; none is made before it is asked for."""

    def __init__(self, tensors: Mapping[str, Tensor], name_of: Mapping[str, str]) -> None:
        self._tensors, self._name_of = tensors, dict(name_of)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._name_of[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._name_of)

    def __len__(self) -> int:
        return len(self._name_of)

    @property
    def file_names(self) -> Mapping[str, str]:
        """What the source itself calls each of them."""
        return self._name_of

    def without(self, name: str) -> "Named":
        """All but one of them."""
        return Named(self._tensors, {ours: theirs for ours, theirs in self._name_of.items() if ours != name})

    def moved(self, name: str, to: str) -> "Named":
        """One of them under another name, in the place of whatever has that name."""
        return Named(self._tensors, {**self.without(name)._name_of, to: self._name_of[name]})


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
            f"; {len(self.excused)} excused{self._told()}"
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The tensors that were ignored by request."""
        return tuple(one.name for one in self.excused if one.reason == REASON)

    def _told(self) -> str:
        names = [short(one) for one in self.left_out]
        return f", of them {len(names)} left out by request: {listed(names)}" if names else ""


class Described(NamedTuple):
    """A source whose config and names are accounted for, before any number is read."""

    spec: TransformerSpec
    tie: TieDecision
    tensors: Named
    excused: list[Excused]


class Accounted(NamedTuple):
    """A source whose config and names are accounted for, its tie not decided yet; `flag` is the config's own word."""

    untied: TransformerSpec
    flag: bool | None
    tensors: Named
    excused: list[Excused]


def account(source: Source) -> Accounted:
    """The spec of a source with an untied head: every key of its config has a meaning. Raises: CheckpointError."""
    family = source.family
    config = ConfigReader(
        source.config, family=family.name, where=source.where, file=family.file, n_tensors=len(source.tensors)
    )
    flag = config.flag(TIE_KEY, None)
    untied = read_spec(family, config)
    excused = config.finish()
    try:
        check(untied)
    except SpecError as error:
        raise config.error(f"the config describes no model: {error}") from error
    known = [rule.theirs for rule in family.rules(with_tying(untied, False))]
    named = clean_names({name: name for name in source.tensors})
    names = with_one_spelling(named, family.prefix, family.renamed, known, where=source.where, ignored=source.ignored)
    return Accounted(untied, flag, Named(source.tensors, names), excused)


def describe(source: Source) -> Described:
    """The spec of a source: its config accounted for key by key, and its tie decided. Raises: CheckpointError."""
    family, (untied, flag, tensors, excused) = source.family, account(source)
    tie = decide_tie(
        flag,
        family.ties_by_default,
        family.embed,
        family.head,
        tensors,
        family=family.name,
        where=source.where,
        rule=family.tie_rule,
    )
    return Described(check(with_tying(untied, tie.tied)), tie, tensors, excused)


def translate(source: Source, *, dtype: Dtype = None) -> Transformer:
    """The model of a source, with `load_report` set.

    dtype None widens half-precision files to float32, which is exact, since products in half precision are not; "file"
    keeps the file's types. Raises: CheckpointError, SpecError.
    """
    return assemble(source, describe(source), dtype=dtype)


def assemble(source: Source, described: Described, *, dtype: Dtype = None) -> Transformer:
    """The model of a source once it is decided whether it is tied, as `translate` says."""
    family, spec, tie = source.family, described.spec, described.tie
    weights, excused = ours_of(source, described)
    if dtype is None and any(tensor.dtype == torch.float64 for tensor in weights.values()):
        dtype = torch.float64  # of types mixed in one file all are widened to the widest, which is exact
    for name in weights:  # one at a time: a file is never held in both types at once
        weights[name] = as_dtype(weights[name], dtype)
    if HEAD_TABLE in weights and weights[HEAD_TABLE].data_ptr() == weights[EMBED_TABLE].data_ptr():
        # one storage under two names in a PyTorch file: left so, an untied model would learn as a tied one by accident
        weights[HEAD_TABLE] = weights[HEAD_TABLE].clone()
    with torch.device("meta"):
        model = Transformer(spec)
    model.load_state_dict(weights, assign=True)
    kinds = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    model.special_ids = special_ids(source, spec.embedding.vocab_size)
    model.load_report = LoadReport(
        family=family.name,
        format=source.format,
        tied=tie.tied,
        tie_reason=tie.reason,
        file_dtypes=_types(source),
        dtype=" and ".join(kinds),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        excused=tuple(excused),
        warnings=(*source.notes, *([tie.reason] if tie.is_surprising else [])),
    )
    return model


def ours_of(source: Source, described: Described) -> tuple[dict[str, Tensor], list[Excused]]:
    """The parameters by our names, each tensor of the file used once, and what was excused. Raises: CheckpointError."""
    family, (spec, tie, tensors, excused) = source.family, described
    rules = list(family.rules(spec))
    names = tensors.file_names
    settled = settle(family.duplicates, tensors, names, is_tied=spec.ties_embeddings, patterns=source.ignored)
    needed = {rule.theirs: rule.ours for rule in rules if rule.theirs not in settled.instead}
    ignored = ignored_names(source.ignored, names, needed, where=f"{source.where}: {family.name}")
    for original, theirs in settled.instead.items():
        tensors = tensors.moved(theirs, original)
    excused = [*excused, *settled.excused]
    if tie.repeats:
        tensors = tensors.without(family.head)
        excused = [*excused, Excused(family.head, f"repeats {family.embed}, number for number")]
    shapes = {tensor.name: tensor.shape for tensor in counts.tensors(spec)}
    weights, unused = to_ours(
        rules,
        shapes,
        tensors,
        family=family.name,
        where=source.where,
        file=family.file,
        ignored=family.ignored,
        duplicates=family.duplicates,
        passed_over=ignored,
    )
    return weights, [*excused, *unused]


def special_ids(source: Source, vocab_size: int) -> dict[str, Any]:
    """The ids that a config gives to start, end and padding; those without a row in the table name nothing and are left out.

    An end may be several ids; that of a generation_config.json comes before the config's, as in transformers.
    Raises: CheckpointError for what is no id.
    """
    found: dict[str, Any] = {}
    for key in SPECIAL_KEYS:
        value, file = source.config.get(key, source.prompting.get(key)), "config.json"
        if key == "eos_token_id" and source.generation_end is not None:
            value, file = source.generation_end, "generation_config.json"
        several: list[Any] = value if isinstance(value, list) and key == "eos_token_id" else [value]
        if value is None:
            continue
        if not all(type(one) is int for one in several):
            raise CheckpointError(f"{source.where}: {key} is {str(value)[:60]!r}, expected a token's id. Mend {file}.")
        if rows := [one for one in several if 0 <= one < vocab_size]:
            found[key] = rows if isinstance(value, list) else value
    return found


def _types(source: Source) -> dict[str, int]:
    types = source.types
    if types is None:
        types = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in source.tensors.items()}
    return dict(sorted(Counter(types.values()).items()))


# What a model can compute in, and what its files can be written in.
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16", "float64")}


def named_dtype(dtype: object) -> Dtype:
    """A number type by its name, by torch's object, "file", or None. Raises: UsageError for types that no model is in."""
    if dtype is None:
        return None
    if isinstance(dtype, str) and dtype == "file":
        return "file"
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    given = repr(dtype)[:60]
    raise UsageError(f"dtype is {given}; it must be {', '.join(DTYPES)}, or file for the types that the file has")


def as_dtype(tensor: Tensor, dtype: Dtype) -> Tensor:
    """The tensor in the type that was asked for, as `translate` says; itself where that is its own."""
    if dtype == "file":
        return tensor
    if dtype is None:
        return tensor.float() if tensor.dtype in _HALF else tensor
    return tensor.to(dtype)
