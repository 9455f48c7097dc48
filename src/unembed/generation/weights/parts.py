"""One product for several projections of the same vector, kept until the last of them has taken its part.

A model asks for q, then k, then v of one tensor. What was made is taken again only for that very tensor, and only while
nothing that it was made of has been written since; several threads may ask at once. The next file to read is modules.py.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class _Made(NamedTuple):
    x: Tensor
    state: tuple[object, ...]
    parts: tuple[Tensor, ...]


class Parts:
    """The parts, of these widths, of what was made last."""

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = list(widths)
        self._made: _Made | None = None

    def take(self, x: Tensor, number: int, state: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        """Part `number` of what `make` gives for `x`; `state` says what else it depends on."""
        now = (version(x), torch.is_inference_mode_enabled(), *state)
        made = self._made  # read once: another thread may exchange it at any moment
        if made is None or made.x is not x or made.state != now:
            made = self._made = _Made(x, now, make().split_with_sizes(self._widths, dim=-1))
        if number == len(self._widths) - 1:
            self._made = None
        return made.parts[number]


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; those made under torch.inference_mode count nothing, and cannot be trained."""
    return 0 if tensor.is_inference() else tensor._version
