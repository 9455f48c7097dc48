"""Who may look on while a run is trained: observers of its records, and a watch over single steps.

The loop knows neither what they look for nor what they do with it. The next file to read is finite.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from jaxtyping import Int
from torch import Tensor

from unembed.model.taps import Tap, no_tap

if TYPE_CHECKING:
    from unembed.training.loop import Trainer


class Observer(Protocol):
    """Somebody who watches a run: a progress line, a sampler, a recorder of gradients."""

    def __call__(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Called after each record is made, before it is written.

        A record of split `train` or `val` goes to metrics.jsonl; one of split `sample` has a `text` and goes to samples.jsonl.
        """
        ...


class StepWatch(Protocol):
    """Somebody who looks into single steps, from inside the forward to what the optimizer made of the gradient."""

    def tap(self, step: int, ids: Int[Tensor, "batch pos"]) -> Tap:
        """What the forward on `ids`, one micro-batch of `step`, is handed."""
        ...

    def before_update(self, step: int) -> None:
        """Called when every gradient of the step is there, and none is clipped yet."""
        ...

    def after_update(self, step: int, clip_factor: float) -> Mapping[str, Any] | None:
        """Called after the optimizer, the gradients being what it saw: `clip_factor` of what they were.

        What is returned is a record of the step for tying.jsonl; None is none.
        """
        ...


class NoWatch:
    """Looks at nothing: a forward then has the tap that it has by itself."""

    def tap(self, step: int, ids: Int[Tensor, "batch pos"]) -> Tap:
        """The tap that passes everything on."""
        return no_tap

    def before_update(self, step: int) -> None:
        """Nothing."""

    def after_update(self, step: int, clip_factor: float) -> None:
        """Nothing."""


no_watch: Final = NoWatch()
