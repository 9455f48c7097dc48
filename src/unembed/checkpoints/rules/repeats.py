"""A tensor that a file holds under two names, one of which a program ties to the other: which of them is the model's.

transformers keeps the bias of BERT's head as `predictions.bias` and as `predictions.decoder.bias`, and adds the second. In
a tied model the two are one. In an untied one they are not: training moves the second alone, and a file holds both. The
next file to read is tensors.py, which refuses what this one cannot settle.

Source: transformers 5, `BertLMPredictionHead.forward` and `PreTrainedModel.tie_weights`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.rules.accounting import Excused
from unembed.checkpoints.rules.ignoring import REASON, matches
from unembed.checkpoints.rules.tensors import Duplicate


class Settled(NamedTuple):
    """Which tensor stands for which name of the rules, and the names that this leaves unused, with the reason."""

    instead: dict[str, str]
    excused: list[Excused]


def settle(
    duplicates: Iterable[Duplicate],
    stored: Mapping[str, Tensor],
    spelled: Mapping[str, str],
    *,
    is_tied: bool,
    patterns: Sequence[str],
) -> Settled:
    """Decides for each pair whether the repeating tensor is to be read where a rule asks for the original.

    It is where the file has no original, where the user leaves the original out, and in an untied model. A user who leaves
    the repeating one out has the last word. `spelled` gives the file's own names, as `ignoring.ignored_names` takes them.
    """

    def is_left_out(name: str) -> bool:
        return any(matches(pattern, name) or matches(pattern, spelled[name]) for pattern in patterns)

    instead: dict[str, str] = {}
    excused: list[Excused] = []
    for one in duplicates:
        if not one.is_written_if_untied or one.theirs not in stored or is_left_out(one.theirs):
            continue
        if one.original not in stored:
            instead[one.original] = one.theirs
        elif is_left_out(one.original):
            instead[one.original] = one.theirs
            excused.append(Excused(one.original, REASON))
        elif not is_tied and _were_trained_apart(stored[one.theirs], stored[one.original]):
            instead[one.original] = one.theirs
            excused.append(Excused(one.original, f"an untied head adds {one.theirs}, as transformers does"))
    return Settled(instead, excused)


def _were_trained_apart(one: Tensor, other: Tensor) -> bool:
    """Two of a kind whose numbers differ. Another shape, or whole numbers, come from a damaged file, which is not settled."""
    are_alike = one.shape == other.shape and one.is_floating_point() and other.is_floating_point()
    return are_alike and not torch.equal(one, other)
