"""When a number is not finite: which tensor it is, and what to try.

The advice looks at what the user set: a learning rate is no remedy where the decay or the start is at fault. Nothing
here changes a number. The next file to read is samples.py.
"""

import math
from collections.abc import Mapping

from torch import Tensor, nn

from unembed.checkpoints.run.shards import local
from unembed.checkpoints.run.state import clean
from unembed.errors import NotFiniteError
from unembed.model.init import AndreaInit
from unembed.training.config import RunConfig
from unembed.training.processes import ALONE, Processes

# Adam divides by the root of a mean of squares plus eps, and the mean of squares of gradients below 1e-19 is 0 in float32.
SMALLEST_EPS = 1e-18


def bad_weights(model: nn.Module, processes: Processes = ALONE) -> str:
    """The first parameters that hold a number that is not finite, as words for a message; empty when there are none.

    Where each process has a part of the model, all are asked.
    """
    return _named("weights", {clean(name): p for name, p in model.named_parameters()}, processes)


def bad_gradients(model: nn.Module, processes: Processes = ALONE) -> str:
    """As `bad_weights`, for gradients."""
    gradients = {clean(name): p.grad for name, p in model.named_parameters() if p.grad is not None}
    return _named("gradients of", gradients, processes)


def where_not_finite(model: nn.Module, loss_nats: float, norm: float, processes: Processes = ALONE) -> str:
    """What went wrong first, as far as can be told: a weight, else a gradient, else the loss or the norm itself."""
    found = bad_weights(model, processes) or bad_gradients(model, processes)
    return found or ("the norm, for its square overflows" if math.isfinite(loss_nats) else "the loss")


def not_finite_step(
    model: nn.Module,
    config: RunConfig,
    n_steps_done: int,
    loss_nats: float,
    norm: float,
    rate: float,
    processes: Processes = ALONE,
) -> NotFiniteError:
    """The error of a step that was not taken."""
    return NotFiniteError(
        f"step {n_steps_done + 1}: loss {loss_nats} nats, gradient norm {norm}; not finite: "
        f"{where_not_finite(model, loss_nats, norm, processes)}. The step was not taken "
        f"and the last checkpoint is as it was. {advice(config, n_steps_done, rate)}"
    )


def not_finite_validation(
    model: nn.Module,
    config: RunConfig,
    n_steps_done: int,
    loss_nats: float,
    rate: float,
    processes: Processes = ALONE,
) -> NotFiniteError:
    """The error of an evaluation."""
    bad = bad_weights(model, processes) or "the loss"
    return NotFiniteError(
        f"step {n_steps_done}: validation loss {loss_nats} nats; not finite: {bad}. "
        f"The last checkpoint is as it was. {advice(config, n_steps_done, rate)}"
    )


def advice(config: RunConfig, n_steps_done: int, rate: float) -> str:
    """What to change, by what the run was told; `rate` is the learning rate of the step in question.

    Before the first step only the start can be at fault. A rate above 1 is too high whatever else is set. Below it, a decay of
    more than 2 / rate makes weights grow, whatever the gradient says, and a tiny eps lets Adam divide by next to nothing.
    """
    optimizer = config.training.optimizer
    if n_steps_done == 0 and not isinstance(config.init, AndreaInit):
        return f"No step was taken yet, so the start is at fault: try a lower init.std (now {config.init.std:.3g})."
    if rate <= 1 and rate * optimizer.weight_decay >= 2:
        return (
            f"Each step takes learning_rate x weight_decay = {rate * optimizer.weight_decay:.3g} times a weight off it, which "
            f"makes it grow: try a lower weight_decay (now {optimizer.weight_decay:.3g})."
        )
    if rate <= 1 and optimizer.eps < SMALLEST_EPS:
        return (
            f"Adam divides by little more than training.optimizer.eps: try a higher one (now {optimizer.eps:.3g}), "
            "such as 1e-8."
        )
    clip = "" if config.training.clip_norm is not None else ", training.clip_norm=1"
    return f"Try a lower learning_rate (now {rate:.3g}){clip} or a longer warm-up."


def _named(what: str, tensors: Mapping[str, Tensor], processes: Processes) -> str:
    flags = processes.any_of([not local(tensor).isfinite().all() for tensor in tensors.values()])
    names = [name for name, is_bad in zip(tensors, flags, strict=True) if is_bad]
    return f"{what} {names[:3]}" if names else ""
