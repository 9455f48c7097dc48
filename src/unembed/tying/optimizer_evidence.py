"""What an optimizer holds of the shared matrix: once, in one group, the very tensor that the model uses, and its moments.

An optimizer keeps tensors, not names. Whatever replaces a parameter after it was made (resizing, casting by hand, tying again,
sharding) leaves it stepping a matrix that nobody uses any more, without a word. Before it: live_evidence.py. The next file
to read is verdict.py.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unembed.optim.muon import Muon
from unembed.tying.evidence import Check, clean, count_of, joined, shape_of
from unembed.tying.memory import sharing
from unembed.tying.tables import Pair, Use

NAME = "optimizer"


def look(optimizer: torch.optim.Optimizer, pair: Pair) -> list[Check]:
    """All that is wrong, worst first; one check that is ok where nothing is."""
    faults = [
        *_groups(optimizer, pair),
        *_strangers(optimizer, pair),
        *_state(optimizer, pair),
        *_muon(optimizer, pair),
    ]
    if faults:
        return faults
    told = []
    for use in _parameters(pair):
        index = next((i for i, group in enumerate(optimizer.param_groups) if _holds(group, use.tensor)), None)
        if index is None:
            told.append(f"{use.name} is frozen and in no group")
            continue
        decay = optimizer.param_groups[index].get("weight_decay")
        by = "by AdamW, " if isinstance(optimizer, Muon) else ""
        decayed = "" if decay is None else f" ({by}weight decay {decay:g})"
        told.append(f"{use.name} is once in group {index}{decayed}")
    return [Check(NAME, "ok", joined(told))]


def _parameters(pair: Pair) -> list[Use]:
    """The matrices that are parameters, one that is used twice once."""
    uses = [pair.embed, *([] if pair.head is None else [pair.head])]
    if pair.computed is not None:
        uses = [pair.embed]
    found = [use for use in uses if use.tensor.is_leaf and isinstance(use.tensor, torch.nn.Parameter)]
    return [use for i, use in enumerate(found) if not any(use.tensor is other.tensor for other in found[:i])]


def _holds(group: Mapping[str, Any], tensor: Tensor) -> int:
    return sum(one is tensor for one in group["params"])


def _groups(optimizer: torch.optim.Optimizer, pair: Pair) -> list[Check]:
    faults = []
    uses = _parameters(pair)
    held = {use.name: [i for i, group in enumerate(optimizer.param_groups) for _ in range(_holds(group, use.tensor))]
            for use in uses}  # fmt: skip
    if len(uses) == 2 and sharing(uses[0].tensor, uses[1].tensor).kind in ("alias", "transposed", "rows", "overlap"):
        n_held = sum(bool(groups) for groups in held.values())
        if n_held == 2:
            told = f"the optimizer steps one memory twice, as {uses[0].name} and as {uses[1].name}"
            faults.append(Check(NAME, "broken", told))
        elif n_held == 1:
            missing = next(use.name for use in uses if not held[use.name])
            there = next(use.name for use in uses if held[use.name])
            told = f"the optimizer holds {there} and not {missing}, whose part of the gradient is never used"
            faults.append(Check(NAME, "broken", told))
        return faults
    for use in uses:
        groups = held[use.name]
        if not groups and use.tensor.requires_grad:
            faults.append(Check(NAME, "broken", f"the optimizer does not hold {use.name}, which is never stepped"))
        elif len(groups) > 1:
            where = joined([f"group {i}" for i in groups])
            faults.append(Check(NAME, "broken", f"the optimizer holds {use.name} {len(groups)} times, in {where}"))
    return faults


def _muon(optimizer: torch.optim.Optimizer, pair: Pair) -> list[Check]:
    """A table among the matrices that Muon moves, ours or torch's: every row is moved, of tokens too that did not occur."""
    if not isinstance(optimizer, Muon | torch.optim.Muon):
        return []
    groups = [group for group in optimizer.param_groups if "momentum" in group]
    moved = [use.name for use in _parameters(pair) if any(_holds(group, use.tensor) for group in groups)]
    told = f"{joined(moved)} is moved by Muon, which suits matrices that every token passes; leave it to AdamW"
    return [Check(NAME, "unknown", told)] if moved else []


def _strangers(optimizer: torch.optim.Optimizer, pair: Pair) -> list[Check]:
    """Tensors in the groups that the model does not have: one of the table's width was the table once."""
    own = {id(parameter) for parameter in pair.root.parameters()}
    strangers = [one for group in optimizer.param_groups for one in group["params"] if id(one) not in own]
    width = pair.embed.tensor.shape[-1]
    old = [one for one in strangers if one.ndim == 2 and width in one.shape and max(one.shape) > width]
    if old:
        told = f"the optimizer holds {count_of(len(old), 'old table')}, {shape_of(old[0])}, no longer in the model"
        return [Check(NAME, "broken", told)]
    if strangers:
        told = f"the optimizer holds {count_of(len(strangers), 'tensor')} that this model does not have"
        return [Check(NAME, "unknown", told)]
    return []


def _state(optimizer: torch.optim.Optimizer, pair: Pair) -> list[Check]:
    faults = []
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    gone = [one for one in optimizer.state if isinstance(one, Tensor) and id(one) not in held]
    if gone:
        told = f"the optimizer keeps state for {count_of(len(gone), 'tensor')} that no group holds, {shape_of(gone[0])}"
        faults.append(Check(NAME, "broken", told))
    for use in _parameters(pair):
        for entry, value in optimizer.state.get(use.tensor, {}).items():
            if isinstance(value, Tensor) and value.ndim and value.shape != use.tensor.shape:
                told = f"the optimizer's {entry} of {use.name} is {shape_of(value)}, the table {shape_of(use.tensor)}"
                faults.append(Check(NAME, "broken", told))
                break
    return faults


def look_at_saved(saved: Mapping[str, Tensor], *, embed: str, head: str, is_tied: bool, rows: int) -> list[Check]:
    """The same of a checkpoint's optimizer: moments by the parameter's name. Nothing is said where none are saved."""
    owners = {clean(name.rpartition(".")[0]) for name in saved}
    if not owners:
        return []
    if is_tied and head in owners:
        return [Check(NAME, "broken", f"the saved optimizer has moments for {head}, which a tied model does not have")]
    lacking = [name for name in ((embed,) if is_tied else (embed, head)) if name not in owners]
    if lacking:
        return [Check(NAME, "broken", f"the saved optimizer has no moments for {joined(lacking)}")]
    wrong = [n for n, one in saved.items() if n.rpartition(".")[0] in (embed, head) and one.ndim and len(one) != rows]
    if wrong:
        told = f"the saved optimizer's {wrong[0]} is {shape_of(saved[wrong[0]])}, the table has {rows} rows"
        return [Check(NAME, "broken", told)]
    held = joined([embed] if is_tied else [embed, head])
    return [Check(NAME, "ok", f"the saved optimizer has moments for {held}")]
