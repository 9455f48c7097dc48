"""The two gradients that meet in a token table, read where they arrive: at the aliases through which the table is used.

    ids ── lookup ── blocks ── final norm ── projection ── loss
              │                                  │
        embed.table                        unembed.table          aliases of one parameter, or of two
              └──────────────┬───────────────────┘
                      dL/dE = lookup part + projection part

Each alias has its own gradient before PyTorch adds them up in the parameter, and a hook on a tensor sees it there. The
next file to read is gradients.py, which makes tables of the two; watch.py does the same for a run's steps at little cost.
"""

from functools import partial
from types import TracebackType
from typing import Final, Self

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import TapError
from unembed.model.taps import NoTap, no_tap

LOOKUP_TAP: Final = "embed.table"
PROJECTION_TAP: Final = "unembed.table"


class TableGradients:
    """A tap that adds up what every backward pass brings to the table's two aliases, while it is open.

        with TableGradients() as parts:
            next_token_loss(model(ids, tap=parts), targets).mean().backward()
        parts.lookup, parts.projection                  # [vocab, d_model] each, the parameter's type and place

    Several forwards add up, as accumulation does. The hooks sit on the aliases, which live as long as one graph; leaving
    the `with` removes them, whatever was raised. No value changes: loss and gradients are those without it, bit for bit.
    Under FSDP2 the alias is that of the gathered table, so the parts are this rank's own, before they are averaged.
    """

    def __init__(self) -> None:
        self._found: dict[str, Tensor] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Hooks the alias of the two named steps; passes every value on."""
        if name in (LOOKUP_TAP, PROJECTION_TAP) and value.requires_grad:
            self._hooks.append(value.register_hook(partial(self._add, name)))  # type: ignore[no-untyped-call]
        return value

    def inside(self, layer: int, /) -> NoTap:
        """No tap: no table is used inside a block, and so all blocks still look the same to a compiler."""
        return no_tap

    @property
    def lookup(self) -> Float[Tensor, "vocab d_model"]:
        """What came through looking rows up: for each row, the gradients of the places where its id stood, added up."""
        return self._part(LOOKUP_TAP)

    @property
    def projection(self) -> Float[Tensor, "vocab d_model"]:
        """What came through the scores: for each row, the features weighted by its score's gradient."""
        return self._part(PROJECTION_TAP)

    def scale_by(self, factor: float) -> None:
        """Multiplies both parts, as clipping does."""
        for name in self._found:
            self._found[name] = self._found[name] * factor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _add(self, name: str, gradient: Tensor) -> None:
        # a copy: what autograd hands over it may go on writing into
        before = self._found.get(name)
        self._found[name] = gradient.detach().clone() if before is None else before + gradient.detach()

    def _part(self, name: str) -> Tensor:
        if name not in self._found:
            raise TapError(
                f"tap {name}: no gradient came through it. Was backward called, does the table require a gradient, and was "
                "the forward (or the chunked loss) given this tap?"
            )
        return self._found[name]
