"""The loss on text that was held out, and what it says of the run: which step is the best, and when to stop early.

The next file to read is samples.py.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from unembed.corpora.windows import TokenSplit
from unembed.model.transformer import Transformer
from unembed.objectives import next_token_loss
from unembed.training.processes import ALONE, Processes

# Whichever is fewer: the scores of a large vocabulary would take more memory than a training step does.
TOKENS_AT_ONCE, SCORES_AT_ONCE = 8192, 1 << 23
Batch = tuple[np.ndarray, np.ndarray]  # inputs and targets, [batch, pos] each


@torch.no_grad()
def evaluate(model: Transformer, val: TokenSplit, context_length: int, processes: Processes = ALONE) -> float:
    """Nats per token over the whole split: each token once, in windows that do not overlap, shared out over processes."""
    device = model.embed.table.device
    total, n_tokens = 0.0, 0
    at_once = min(TOKENS_AT_ONCE, SCORES_AT_ONCE // model.spec.embedding.vocab_size)
    windows = val.windows(context_length, max(1, at_once // context_length))
    for (inputs, targets), counts in _own(windows, processes):
        ids, wanted = (torch.from_numpy(array).to(device) for array in (inputs, targets))
        loss = next_token_loss(model(ids), wanted)
        if counts:
            total += loss.total.item()
            n_tokens += int(loss.n_tokens)
    total, n_all = processes.sums(total, n_tokens)
    return total / n_all


def _own(batches: Iterable[Batch], processes: Processes) -> Iterator[tuple[Batch, bool]]:
    """Every n-th batch for each of n processes, and whether it counts: at the end, who has none left repeats another's.

    A process that made fewer forwards than the others would keep them waiting for its part of a sharded model.
    """
    left = iter(batches)
    while together := list(itertools.islice(left, processes.n)):
        has_own = processes.rank < len(together)
        yield together[processes.rank if has_own else 0], has_own


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What is known after an evaluation: the last loss and its step, the best ones, and how many came since the best.

    It is saved with every checkpoint, so whether a resumed run stops early does not depend on how often it was stopped.
    """

    loss_nats: float | None = None
    step: int | None = None
    best_loss_nats: float | None = None
    best_step: int | None = None
    n_worse: int = 0

    def after(self, step: int, loss_nats: float) -> "Validation":
        """With one evaluation more. An equal loss is no better one, and one that is not finite never is."""
        if math.isfinite(loss_nats) and (self.best_loss_nats is None or loss_nats < self.best_loss_nats):
            return Validation(loss_nats=loss_nats, step=step, best_loss_nats=loss_nats, best_step=step)
        return Validation(
            loss_nats=loss_nats,
            step=step,
            best_loss_nats=self.best_loss_nats,
            best_step=self.best_step,
            n_worse=self.n_worse + 1,
        )

    def to_state(self) -> dict[str, Any]:
        """As state.json holds it."""
        best = None if self.best_step is None else {"step": self.best_step, "val_loss_nats": self.best_loss_nats}
        return {"best": best, "val_loss_nats": self.loss_nats, "val_step": self.step, "n_worse": self.n_worse}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Self:
        """What `to_state` wrote; a checkpoint from before these two were kept has neither."""
        best = state["best"] or {"step": None, "val_loss_nats": None}
        return cls(
            loss_nats=state["val_loss_nats"],
            step=state.get("val_step", best["step"]),
            best_loss_nats=best["val_loss_nats"],
            best_step=best["step"],
            n_worse=state.get("n_worse", 0),
        )
