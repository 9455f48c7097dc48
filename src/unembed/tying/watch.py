"""The two gradients of the token table over a run: noted every so many steps, at a few hundredths of a step's time.

Holding both parts whole would cost two more tables and half as much time again. What is held instead: the lookup part on the
rows that were looked up, a few hundred of them. The projection part is the table's own gradient but for those rows, where
the lookup part is taken off again. The next file to read is ../views/tying.py, which shows both.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unembed.checkpoints.run.shards import whole
from unembed.model.taps import NoTap, Tap, no_tap
from unembed.model.transformer import Transformer
from unembed.tying.gradients import frequency_groups, touched_rows
from unembed.tying.parts import LOOKUP_TAP

NUMBERS_AT_ONCE = 1 << 18  # 1 MB of float32: what is read of three tables stays in the cache


@runtime_checkable
class Group(Protocol):
    """The processes that train one model together, as far as a watch needs them."""

    @property
    def n(self) -> int:
        """How many they are."""
        ...

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean of a tensor over all of them, in its own place."""
        ...


class TableWatch:
    """Watches the token table of a model in training; `training.watching.StepWatch` says when it is called.

    With `gradient_every` n it looks at every n-th step; 0 is never. With another `lookup_gradient_scale` than 1 it multiplies
    the lookup part by it at every step: in a shared table that part alone, in a model with two tables the whole gradient
    of the embedding's. Of a `group` that trains together each process sees its own tokens; a step that is noted adds them up,
    and gathers a sharded table. Source of the scale: "Weight Tying Biases Token Embeddings Towards the Output Space",
    arXiv:2603.26663. All else it leaves alone: weights and optimizer end bit for bit as without it.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        gradient_every: int = 0,
        lookup_gradient_scale: float = 1.0,
        group: Group | None = None,
    ) -> None:
        self.model, self.every, self.scale, self._group = model, gradient_every, lookup_gradient_scale, group
        self._step = -1
        self._counts = np.zeros(0, dtype=np.int64)
        self._touched: Tensor | None = None
        self._lookup: Tensor | None = None
        self._before: list[Tensor] = []
        self._record: dict[str, Any] = {}

    def looks_at(self, step: int) -> bool:
        """Whether this step is noted."""
        return self.every > 0 and step % self.every == 0

    def tap(self, step: int, ids: Int[Tensor, "batch pos"]) -> Tap:
        """The tap for a forward on `ids` as a part of `step`; parts of one step add up."""
        looks = self.looks_at(step)
        if not looks and self.scale == 1:
            return no_tap
        if step != self._step:
            n_rows = len(self.model.embed.table)
            self._step, self._counts = step, np.zeros(n_rows, dtype=np.int64)
            self._touched = self._lookup = None
        return _LookupTap(partial(self._arrived, ids if looks else None))

    def before_update(self, step: int) -> None:
        """Measures both parts as they stand in the gradients, before clipping, and keeps the table for the comparison."""
        if not self.looks_at(step):
            return
        self._share()
        tables, touched, lookup = self._tables(), self._rows(), self._looked_up()
        gradient = _gradient(tables[-1])
        own = gradient[touched].double()
        scaled = lookup.double() * self.scale
        there = own - scaled if len(tables) == 1 else own  # the projection part, on the rows that were looked up
        squares = torch.linalg.vector_norm(gradient, dim=1).double().square()
        squares[touched] = there.square().sum(1)
        of_lookup = torch.zeros_like(squares)
        of_lookup[touched] = scaled.square().sum(1)
        self._record = {
            "step": step,
            **_told(float(of_lookup.sum()), float(squares.sum()), float((scaled * there).sum())),
            "rows": touched_rows((of_lookup > 0).cpu().numpy(), (squares > 0).cpu().numpy()),
            "by_frequency": self._by_frequency(of_lookup.cpu().numpy(), squares.cpu().numpy()),
        }
        if len(self._before) != len(tables):
            self._before = [torch.empty_like(whole(table)) for table in tables]
        for kept, table in zip(self._before, tables, strict=True):
            kept.copy_(whole(table))

    def after_update(self, step: int, clip_factor: float) -> Mapping[str, Any] | None:
        """The record of the step, now with what the optimizer made of the two parts; None for a step that is not noted.

        `update_norm` is the length of the table's change U (of both tables' together where there are two). Its effect on the
        loss of this very step is, to first order, <U, dL/dE>, and that splits exactly: `lookup_gain_nats` = -<U, lookup
        part> and `projection_gain_nats` = -<U, projection part>, unscaled and unclipped. `update_lookup_share` is the
        first one's share of both sizes. It is approximate as an answer to "who moved the table?": with AdamW U also holds
        earlier gradients, divided row by row by their running size, and weight decay.
        """
        if not self.looks_at(step):
            return None
        tables, touched, lookup = self._tables(), self._rows(), self._looked_up().double()
        found = [_changed(table, before) for table, before in zip(tables, self._before, strict=True)]
        moved = whole(tables[0])[touched].double() - self._before[0][touched].double()
        by_lookup = float((moved * lookup).sum())
        by_projection = found[-1][1] / clip_factor - (self.scale * by_lookup if len(tables) == 1 else 0.0)
        sizes = abs(by_lookup), abs(by_projection)
        self._touched = self._lookup = None
        return self._record | {
            "update_norm": sum(square for square, _ in found) ** 0.5,
            "lookup_gain_nats": -by_lookup,
            "projection_gain_nats": -by_projection,
            "update_lookup_share": sizes[0] / sum(sizes) if sum(sizes) else None,
        }

    def _arrived(self, ids: Tensor | None, gradient: Tensor) -> Tensor | None:
        """Called by the hook on the alias: keeps the touched rows as they are, and scales what goes on to the table."""
        if ids is not None:
            self._counts += np.bincount(ids.flatten().cpu().numpy(), minlength=len(self._counts))
            rows = torch.unique(ids)
            self._keep(rows, gradient.detach()[rows])
        return None if self.scale == 1 else gradient * self.scale

    def _keep(self, rows: Tensor, values: Tensor) -> None:
        if self._touched is None or self._lookup is None:
            self._touched, self._lookup = rows, values
            return
        both = torch.unique(torch.cat([self._touched, rows]))
        summed = values.new_zeros(len(both), values.shape[1])
        summed[torch.searchsorted(both, self._touched)] = self._lookup
        summed[torch.searchsorted(both, rows)] += values
        self._touched, self._lookup = both, summed

    def _share(self) -> None:
        """Makes of this process's rows and counts those of the whole group, whose losses are multiplied by its size."""
        if self._group is None or self._group.n == 1:
            return
        dense = self._looked_up().new_zeros(self.model.embed.table.shape)
        dense[self._rows()] = self._looked_up()
        counts = torch.from_numpy(self._counts).to(dense.device, torch.float64)
        self._group.mean(dense)
        self._counts = (self._group.mean(counts) * self._group.n).round().long().cpu().numpy()
        self._touched = torch.from_numpy(self._counts.nonzero()[0]).to(dense.device)
        self._lookup = dense[self._touched]

    def _tables(self) -> list[Tensor]:
        """The one table, or the embedding's and the head's."""
        embed, head = self.model.embed.table, self.model.unembed_table()
        return [embed] if embed is head else [embed, head]

    def _rows(self) -> Tensor:
        assert self._touched is not None, "a step that is looked at has had a backward pass"
        return self._touched

    def _looked_up(self) -> Tensor:
        assert self._lookup is not None, "as above"
        return self._lookup

    def _by_frequency(self, lookup: np.ndarray, projection: np.ndarray) -> dict[str, list[Any]]:
        """Both norms for groups of rows, by how often this step looked each of them up."""
        names, groups = frequency_groups(self._counts)
        n_rows = np.bincount(groups, minlength=len(names))
        here = n_rows > 0
        norms = [np.sqrt(np.bincount(groups, weights=one, minlength=len(names)))[here] for one in (lookup, projection)]
        return {
            "frequency": [name for name, is_here in zip(names, here, strict=True) if is_here],
            "rows": n_rows[here].tolist(),
            "lookup_norm": norms[0].tolist(),
            "projection_norm": norms[1].tolist(),
        }


class _LookupTap:
    """Hooks the gradient of `embed.table` and of nothing else; blocks get no tap, so a compiled graph serves them all."""

    def __init__(self, arrived: Callable[[Tensor], Tensor | None]) -> None:
        self._arrived = arrived

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        if name == LOOKUP_TAP and value.requires_grad:
            value.register_hook(self._arrived)  # type: ignore[no-untyped-call]
        return value

    def inside(self, layer: int, /) -> NoTap:
        return no_tap


def _gradient(table: Tensor) -> Tensor:
    assert table.grad is not None, "training gives every table a gradient"
    return whole(table.grad)


def _told(lookup: float, projection: float, dot: float) -> dict[str, float | None]:
    """Norms, cosine and share from squares and an inner product."""
    norms = lookup**0.5, projection**0.5
    return {
        "lookup_norm": norms[0],
        "projection_norm": norms[1],
        "sum_norm": max(0.0, lookup + projection + 2 * dot) ** 0.5,
        "cosine": dot / (norms[0] * norms[1]) if norms[0] and norms[1] else None,
        "lookup_share": norms[0] / sum(norms) if sum(norms) else None,
    }


def _changed(table: Tensor, before: Tensor) -> tuple[float, float]:
    """|U|^2 and <U, gradient> of the change U = table - before, a few rows at a time."""
    gradient, now, n_rows = _gradient(table), whole(table), max(1, NUMBERS_AT_ONCE // table.shape[1])
    square = inner = 0.0
    for start in range(0, len(now), n_rows):
        piece = slice(start, start + n_rows)
        moved = (now[piece] - before[piece]).flatten()
        square += float(torch.dot(moved, moved))
        inner += float(torch.dot(moved, gradient[piece].flatten()))
    return square, inner
