"""Is a model tied? Asked of its function alone: one entry of the table is changed in a row that no id looks up.

Where the scores of just that row move, the table scores; where none move, another matrix does. It imports nothing of unembed
and looks at no storage, so it is an oracle for whoever does. The next file to read is ../tying/cases.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def moves(model: nn.Module, table: Tensor, *, scores: Callable[[Tensor], Tensor] | None = None) -> bool | None:
    """Nudges a few entries, one after the other, and restores each to the last bit; None where the model has no numbers."""
    if any(one.is_meta for one in model.parameters()):
        return None
    score = model if scores is None else scores
    ids = torch.tensor([[1, 2, 1]])
    rows = [0, 5, 7]
    assert not set(rows) & set(ids.flatten().tolist())
    columns = [0, 3, table.shape[1] - 1]
    return all(_moves(score, table, ids, row, column) for row in rows for column in columns)


@torch.no_grad()
def _moves(score: Callable[[Tensor], Tensor], table: Tensor, ids: Tensor, row: int, column: int) -> bool:
    part = table.to_local() if hasattr(table, "to_local") else table
    before = _logits(score, ids)
    kept = part[row, column].clone()
    try:
        part[row, column] += 1 + kept.abs()
        after = _logits(score, ids)
    finally:
        part[row, column] = kept
    moved = ((before != after) & ~(before.isnan() & after.isnan())).any(0).any(0)
    return moved.nonzero().flatten().tolist() == [row]


def _logits(score: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    out = score(ids)
    found: Tensor = getattr(out, "logits", out)
    return (found.full_tensor() if hasattr(found, "full_tensor") else found).float()
