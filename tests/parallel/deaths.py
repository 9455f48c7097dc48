"""Places at which a process of a group kills itself by SIGKILL, as if from outside: no handler runs, nothing is said. At
one of them it is only asked to end.

Each takes the place of a function that a run comes by, and goes on into it until its time has come.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from unembed.checkpoints.run import distributed, native


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(where: str, count: int) -> None:
    """Makes this process die at the `count`-th time that it comes by."""
    module, name, dying = PLACES[where]
    before, left = getattr(module, name), [count]

    def instead(*inputs: Any, **options: Any) -> Any:
        left[0] -= 1
        return (before if left[0] else dying(before))(*inputs, **options)

    setattr(module, name, instead)


def _in_backward(before: Callable[..., Any]) -> Callable[..., Any]:
    def backward(loss: torch.Tensor) -> None:
        loss.register_hook(die)
        before(loss)

    return backward


def _with_a_signal(before: Callable[..., Any]) -> Callable[..., Any]:
    def backward(loss: torch.Tensor) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        before(loss)

    return backward


def _in_collective(before: Callable[..., Any]) -> Callable[..., Any]:
    def all_reduce(tensor: torch.Tensor) -> None:
        before(tensor, async_op=True)
        die()

    return all_reduce


def _after(before: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs, **options: die(before(*inputs, **options))


def _instead(before: Callable[..., Any]) -> Callable[..., Any]:
    return die


PLACES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "backward": (torch.autograd, "backward", _in_backward),
    "terminated": (torch.autograd, "backward", _with_a_signal),
    "collective": (dist, "all_reduce", _in_collective),
    "half a save": (distributed, "write_parts", _after),
    "before the rename": (native, "_manifest", _instead),
}
