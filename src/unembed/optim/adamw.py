"""AdamW with each parameter in exactly one group: matrices and tables decay, gains and biases do not.

Embedding and position tables decay like every matrix, as in nanoGPT; a shared table is one parameter and decays once.
The next file to read is muon.py.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from torch import nn

from unembed.optim.base import ADAMW_STATE, LightOptimizer


class AdamWConfig(msgspec.Struct, tag="adamw", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AdamW's numbers; the learning rate comes from the schedule. Source: Loshchilov and Hutter, arXiv:1711.05101."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


class AdamWNumbers(Protocol):
    """What has AdamW's numbers: its own config, and that of an optimizer which leaves some parameters to it."""

    @property
    def beta1(self) -> float: ...
    @property
    def beta2(self) -> float: ...
    @property
    def eps(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


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


class AdamW(LightOptimizer):
    """torch.optim.AdamW's steps to the last bit, always by its fused kernel."""

    def update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        """Moves one group."""
        self.update_adamw(group, parameters)


def adamw_groups(
    decayed: Iterable[tuple[str, nn.Parameter]], undecayed: Iterable[tuple[str, nn.Parameter]], config: AdamWNumbers
) -> list[dict[str, Any]]:
    """The two groups as an optimizer takes them; the training loop writes the rate into them before each step."""
    numbers = {"betas": (config.beta1, config.beta2), "eps": config.eps, "keeps": ADAMW_STATE}
    return [
        {"params": [p for _, p in decayed], "weight_decay": config.weight_decay, **numbers},
        {"params": [p for _, p in undecayed], "weight_decay": 0.0, **numbers},
    ]


def make_adamw(model: nn.Module, config: AdamWConfig) -> tuple[AdamW, GroupSizes]:
    """Builds the optimizer over a model's parameters, and says how large its two groups are."""
    decayed, undecayed = parameter_groups(model.named_parameters())
    return AdamW(adamw_groups(decayed, undecayed, config)), sizes(decayed, undecayed)


def sizes(decayed: Iterable[tuple[str, nn.Parameter]], undecayed: Iterable[tuple[str, nn.Parameter]]) -> GroupSizes:
    """How many numbers stand in each of the two."""
    return GroupSizes(decayed=sum(p.numel() for _, p in decayed), undecayed=sum(p.numel() for _, p in undecayed))
