"""Which optimizers there are, and one of them over a model. The next file to read is schedules.py."""

from typing import Protocol

from torch import nn

from unembed.optim.adamw import AdamWConfig, GroupSizes, make_adamw
from unembed.optim.base import LightOptimizer
from unembed.optim.muon import MuonConfig, make_muon
from unembed.optim.schedules import Schedule

OptimizerConfig = AdamWConfig | MuonConfig
NAMES = ("adamw", "muon")
# Source: Keller Jordan's Muon, the defaults of its reference code.
MATRIX_LEARNING_RATE, MOMENTUM = 0.02, 0.95


class Training(Protocol):
    """The part of a run's training that an optimizer is made from."""

    @property
    def optimizer(self) -> OptimizerConfig: ...
    @property
    def schedule(self) -> Schedule: ...


def make_optimizer(model: nn.Module, training: Training) -> tuple[LightOptimizer, GroupSizes]:
    """Builds the optimizer that a run's training names, over a model's parameters."""
    config = training.optimizer
    return (
        make_adamw(model, config)
        if isinstance(config, AdamWConfig)
        else make_muon(model, config, training.schedule.peak)
    )


def optimizer_of(name: str, like: OptimizerConfig) -> OptimizerConfig:
    """The config of an optimizer by name, with AdamW's numbers taken over from another."""
    numbers = {name: getattr(like, name) for name in AdamWConfig.__struct_fields__}
    if name == "adamw":
        return AdamWConfig(**numbers)
    if isinstance(like, MuonConfig):
        return like
    return MuonConfig(**numbers, matrix_learning_rate=MATRIX_LEARNING_RATE, momentum=MOMENTUM)
