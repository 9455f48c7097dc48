"""AdamW with each parameter in exactly one group: matrices and tables decay, gains and biases do not.

Embedding and position tables decay like every matrix, as in nanoGPT; a shared table is one parameter and decays once.
The next file to read is schedules.py.
"""

from collections.abc import Iterable

import msgspec
import torch
from torch import nn


class AdamWConfig(msgspec.Struct, tag="adamw", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AdamW's numbers; the learning rate comes from the schedule. Source: Loshchilov and Hutter, arXiv:1711.05101."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


class GroupSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many parameters decay and how many do not: what a run's log says at its start."""

    decayed: int
    undecayed: int


def decays(name: str, parameter: nn.Parameter) -> bool:
    """True for matrices and tables, False for gains and biases, of whatever norm: they are the ones with one axis."""
    return parameter.ndim >= 2


def parameter_groups(
    named: Iterable[tuple[str, nn.Parameter]],
) -> tuple[list[tuple[str, nn.Parameter]], list[tuple[str, nn.Parameter]]]:
    """Sorts parameters into those that decay and those that do not, each parameter once however often it is named."""
    seen: set[int] = set()
    groups: tuple[list[tuple[str, nn.Parameter]], list[tuple[str, nn.Parameter]]] = ([], [])
    for name, parameter in named:
        if id(parameter) not in seen:
            seen.add(id(parameter))
            groups[0 if decays(name, parameter) else 1].append((name, parameter))
    return groups


def make_adamw(model: nn.Module, config: AdamWConfig) -> tuple[torch.optim.AdamW, GroupSizes]:
    """Builds the optimizer over a model's parameters, and says how large its two groups are.

    The fused kernel is used: one pass over each tensor instead of a dozen, with the same formula. The rate is a tensor
    nowhere; the training loop writes it into the groups before each step.
    """
    decayed, undecayed = parameter_groups(model.named_parameters())
    groups = [
        {"params": [p for _, p in decayed], "weight_decay": config.weight_decay},
        {"params": [p for _, p in undecayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    return optimizer, GroupSizes(
        decayed=sum(p.numel() for _, p in decayed), undecayed=sum(p.numel() for _, p in undecayed)
    )
