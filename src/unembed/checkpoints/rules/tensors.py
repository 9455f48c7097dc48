"""How a family's tensors become ours and go back: a list of small rules, each of which can be read in both directions.

A rule names one tensor of the file and the one or more of ours that it holds. Reading gives views of the file's memory
where it can (a name, a transposition, a part of a fused matrix); writing undoes it to the last bit. Every tensor of the
file is used by one rule, or excused; every tensor of the spec is made by one rule. The next file to read is
../families/base.py; ../families/llama.py has the simplest list.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.rules.accounting import Excused, listed
from unembed.checkpoints.rules.ignoring import REASON
from unembed.errors import CheckpointError

Shape = tuple[int, ...]

# What a weight may be stored in; whole numbers and 8 bits are somebody's quantisation.
_WEIGHTS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Rule(Protocol):
    """One tensor of the file, `theirs`, and what it holds of ours, in order."""

    @property
    def theirs(self) -> str: ...

    @property
    def ours(self) -> tuple[str, ...]: ...

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shape in the file when ours have `shapes`."""
        ...

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        """Ours, as views of the stored tensor where that is possible."""
        ...

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        """The stored tensor, equal to the last bit to the one that was read."""
        ...


class Same(NamedTuple):
    """The same numbers under another name."""

    theirs: str
    name: str

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.name,)

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (stored,)

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0]


def with_bias(theirs: str, ours: str, *, weight: str = "weight") -> Iterator[Same]:
    """The two tensors of a projection with a bias, or (weight="gain") of a LayerNorm with one."""
    yield Same(theirs + ".weight", f"{ours}.{weight}")
    yield Same(theirs + ".bias", ours + ".bias")


class Transposed(NamedTuple):
    """Stored [from, to], as GPT-2's Conv1D does; ours are [to, from]. Several of ours lie side by side along `to`."""

    theirs: str
    ours: tuple[str, ...]

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0][1], sum(shape[0] for shape in shapes)

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return tuple(part.T for part in torch.split(stored, [shape[0] for shape in shapes], dim=1))

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.T for tensor in tensors], dim=1)


class Stacked(NamedTuple):
    """Several of ours one below the other: a fused q, k, v of weights or of biases."""

    theirs: str
    ours: tuple[str, ...]

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return tuple(torch.split(stored, [shape[0] for shape in shapes]))

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors))


class StackedByHead(NamedTuple):
    """NeoX's fused q, k, v: head by head, each head's q above its k above its v; rows [n_heads * 3 * d_head]."""

    theirs: str
    ours: tuple[str, str, str]
    n_heads: int

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        # flattening a head's slice with the others' needs a copy: the rows of one projection are not adjacent
        heads = torch.unflatten(stored, 0, (self.n_heads, 3, -1))
        return tuple(heads[:, part].flatten(0, 1) for part in range(3))

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.stack([torch.unflatten(tensor, 0, (self.n_heads, -1)) for tensor in tensors], dim=1).flatten(0, 2)


class Interleaved(NamedTuple):
    """q or k rows stored for interleaved rotary pairs, ours for half-split ones (GGUF's llama, Meta's own files).

    Within each head, stored row 2i + j is our row i + j * d_head/2: turning then pairs the same numbers.
    """

    theirs: str
    name: str
    n_heads: int

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.name,)

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def read(self, stored: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (torch.unflatten(stored, 0, (self.n_heads, -1, 2)).transpose(1, 2).flatten(0, 2),)

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.unflatten(tensors[0], 0, (self.n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


class Ignored(NamedTuple):
    """Stored tensors that are no parameters of the model, by a pattern that the whole name must match, and why."""

    pattern: str
    reason: str


class Duplicate(NamedTuple):
    """A stored tensor that repeats another one; it may be absent, and stops the load where it differs.

    Some programs expect it in files of untied models; then it is written there.
    """

    theirs: str
    original: str
    is_written_if_untied: bool = False


def to_ours(
    rules: Iterable[Rule],
    shapes: Mapping[str, Shape],
    stored: Mapping[str, Tensor],
    *,
    family: str,
    where: str,
    file: str | None = None,
    ignored: Sequence[Ignored] = (),
    duplicates: Sequence[Duplicate] = (),
    passed_over: Sequence[str] = (),
) -> tuple[dict[str, Tensor], list[Excused]]:
    """Translates a file's tensors into ours, using each once. `shapes` are those that the spec implies.

    `file` is that of the family where it has another name; `passed_over` names tensors that the user wants left out. Gives
    ours by name, and what was excused.
    Raises: CheckpointError listing what is missing, left over or of another shape.
    """
    used = list(rules)
    left = dict.fromkeys(stored)
    for rule in used:
        left.pop(rule.theirs, None)
    requested = _pass_over(left, passed_over)
    repeated = _check_duplicates(duplicates, stored, left, family, where)
    excused = [*repeated, *_excuse(left, ignored), *requested]
    missing = [rule.theirs for rule in used if rule.theirs not in stored]
    file = file or f"{family}.py"
    if missing or left:
        raise CheckpointError(f"{where}: {family}: {_unaccounted(missing, list(left), stored, file)}")
    made: dict[str, Tensor] = {}
    for rule in used:
        tensor, wanted = stored[rule.theirs], [shapes[name] for name in rule.ours]
        expected = rule.stored_shape(wanted)
        if tuple(tensor.shape) != expected:
            raise CheckpointError(
                f"{where}: {family}: tensor {short(rule.theirs)} has shape {list(tensor.shape)}, the config implies "
                f"{list(expected)}. The config and the weights are not of one model."
            )
        if tensor.dtype not in _WEIGHTS:
            raise CheckpointError(
                f"{where}: {family}: tensor {short(rule.theirs)} is {str(tensor.dtype)[6:]}, expected one of "
                f"{', '.join(str(dtype)[6:] for dtype in _WEIGHTS)}. Quantised weights are not read; ask for the plain ones."
            )
        made.update(zip(rule.ours, rule.read(tensor, wanted), strict=True))
    assert set(made) == set(shapes), f"{family}: rules and spec disagree about {set(made) ^ set(shapes)}"
    return made, excused


def to_theirs(
    rules: Iterable[Rule], weights: Mapping[str, Tensor], repeats: Iterable[Duplicate] = ()
) -> dict[str, Float[Tensor, "*axes"]]:
    """The file's tensors by name, from ours: what `to_ours` undoes. The values are detached; some are views."""
    stored = {rule.theirs: rule.write([weights[name].detach() for name in rule.ours]) for rule in rules}
    return stored | {one.theirs: stored[one.original].clone() for one in repeats}


def _check_duplicates(
    duplicates: Sequence[Duplicate], stored: Mapping[str, Tensor], left: dict[str, None], family: str, where: str
) -> list[Excused]:
    excused = []
    for one in duplicates:
        if one.theirs not in left or one.original not in stored:
            continue
        if not torch.equal(stored[one.theirs], stored[one.original]):
            raise CheckpointError(
                f"{where}: {family}: {short(one.theirs)} should repeat {short(one.original)} and differs from it; which of "
                f"the two is meant cannot be told. Leave one of them out: --ignore-tensor {short(one.original)} "
                f"takes the first, as transformers 5 does; --ignore-tensor {short(one.theirs)} takes the second."
            )
        del left[one.theirs]
        excused.append(Excused(one.theirs, f"repeats {one.original}, number for number"))
    return excused


def _excuse(left: dict[str, None], ignored: Sequence[Ignored]) -> list[Excused]:
    excused = []
    for name in list(left):
        for one in ignored:
            if re.fullmatch(one.pattern, name):
                del left[name]
                excused.append(Excused(name, one.reason))
                break
    return excused


def _pass_over(left: dict[str, None], names: Sequence[str]) -> list[Excused]:
    surplus = [name for name in names if name in left]
    for name in surplus:
        del left[name]
    return [Excused(name, REASON) for name in surplus]


def _unaccounted(missing: list[str], left: list[str], stored: Mapping[str, Tensor], file: str) -> str:
    problems = []
    if missing:
        problems.append(
            f"{len(missing)} {_tensors(missing)} missing: {listed([short(name) for name in missing])}. The config announces "
            f"{'it' if len(missing) == 1 else 'them'}; nothing is left at a random value."
        )
    if left:
        names = [f"{short(name)} {str(stored[name].dtype)[6:]}{list(stored[name].shape)}" for name in left]
        problems.append(
            f"{len(left)} source {'tensor has' if len(left) == 1 else 'tensors have'} no rule: {listed(names)}. If the "
            f"model does without, leave {'it' if len(left) == 1 else 'them'} out: --ignore-tensor NAME, with * for any part "
            f"of a name (ignore_tensors=[...] in Python). Else map {'it' if len(left) == 1 else 'them'} in families/{file}."
        )
    return "\n".join(problems)


def _tensors(names: list[str]) -> str:
    return "tensor is" if len(names) == 1 else "tensors are"
