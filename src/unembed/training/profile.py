"""Where the time of a run goes: a stopwatch that the loop hands from part to part.

Plain clocks around named parts, so that what is measured is the run itself. The backward pass turns at the stream that
leaves the last block: before that it is the loss's and the head's, after it the blocks'. On an accelerator each boundary
waits for the work that was asked for, so a profiled run is a little slower there. The next file to read is validation.py;
../recipes/advice.py says in words what was found.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor

# In the order in which a run comes to them. `loss` is the final norm, the scores and the loss; `table` what is noted of the
# token table's two gradients.
PARTS: Final = (
    "compiling",
    "data",
    "forward",
    "loss",
    "loss_backward",
    "backward",
    "optimizer",
    "table",
    "evaluation",
    "sampling",
    "saving",
)
OF_STEPS: Final = PARTS[:8]


class Parts(Protocol):
    """Somebody who is told which part of a run begins and ends."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """Called around a part of PARTS; a part inside another takes its time from it."""
        ...

    def turns_at(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The stream that leaves the last block, to be gone on with: its gradient tells that the loss is done."""
        ...


class NoProfile:
    """Measures nothing."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """Nothing around it."""
        return _NOTHING

    def turns_at(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The very tensor."""
        return resid


class Profile:
    """Adds up the seconds of each part, and those between them. A part's time is its own, without that of parts inside it.

    A run that goes on has done `n_steps_before` and `n_tokens_before` already.

    >>> profile = Profile()
    >>> with profile.part("data"), profile.part("saving"):
    ...     pass
    >>> set(profile.seconds) == set(PARTS) and profile.total >= profile.seconds["saving"] > 0
    True
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._open: list[str] = []
        self.begins(0, 0)

    def begins(self, n_steps: int, n_tokens: int) -> None:
        """Starts from nothing: the run is about to do its first step, or to go on after so many."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.between, self.n_steps_before, self.n_tokens_before = 0.0, n_steps, n_tokens
        self._last = self._began = self._now()

    @property
    def total(self) -> float:
        """The seconds from the beginning to the last boundary."""
        return self._last - self._began

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Starts the part's clock, and stops that of the part around it."""
        self._credit(self._open[-1] if self._open else None)
        self._open.append(name)
        try:
            yield
        finally:
            self._credit(self._open.pop())

    def turns_at(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """An identity whose backward pass credits what came before it to `loss_backward`."""
        return cast(Tensor, _Turn.apply(resid, self._turned))  # type: ignore[no-untyped-call]

    def _turned(self) -> None:
        self._credit("loss_backward" if self._open == ["backward"] else None)

    def _credit(self, name: str | None) -> None:
        now = self._now()
        if name is None:
            self.between += now - self._last
        else:
            self.seconds[name] += now - self._last
        self._last = now

    def _now(self) -> float:
        if self._device != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter()


class _Turn(torch.autograd.Function):
    """Passes the stream on, and its gradient back; says when the gradient comes."""

    @staticmethod
    def forward(ctx: Any, resid: Tensor, turned: Callable[[], None]) -> Tensor:
        ctx.turned = turned
        return resid.view_as(resid)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        ctx.turned()
        return above[0], None


_NOTHING: Final = nullcontext()
no_profile: Final = NoProfile()
