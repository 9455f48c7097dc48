"""The same loss without ever holding all the scores: [tokens, vocabulary] is made, used and overwritten piece by piece.

A plain loss keeps the scores, their log-softmax and its gradient: for 2,048 tokens of GPT-2's vocabulary 1.2 GB. Here each
piece of scores is turned into its gradient in place and multiplied into the two gradients that are wanted, so one small
piece is all that is held. The gradients are made in the forward pass; the backward pass only scales them.

Cut over tokens it costs the three products of the plain loss. Cut over the vocabulary (for few tokens and a huge table)
scores are made twice, once for the log-sum-exp and once for the gradient: four products. The next file to read is parts.py.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import ShapeError, UsageError
from unembed.model.product import product
from unembed.model.taps import Tap, no_tap, one_use
from unembed.model.transformer import Transformer
from unembed.objectives.loss import IGNORED, LossSum, why_no_score

# Scores in one piece: 28 MB of float32, small beside any table worth cutting, large enough for full speed, and below the
# 32 MB from which glibc takes every piece anew from the system, page by page.
SCORES_AT_ONCE = 7 << 20


class _Options(NamedTuple):
    softcap: float | None
    z_loss: float
    over: Literal["tokens", "vocabulary"]
    scores_at_once: int


def chunked_next_token_loss(
    model: Transformer,
    resid: Float[Tensor, "batch pos d_model"],
    targets: Int[Tensor, "batch pos"],
    *,
    z_loss: float = 0.0,
    over: Literal["tokens", "vocabulary"] = "tokens",
    scores_at_once: int = SCORES_AT_ONCE,
    tap: Tap = no_tap,
) -> LossSum:
    """next_token_loss(model.unembed(resid), targets, z_loss=...), of `hidden`'s output, in pieces.

    Equal to it up to rounding in loss and every gradient. Only once differentiable. The taps `final_norm` and
    `unembed.table` are called as in `unembed`; there is no `logits` to tap. Raises: ShapeError when shapes or target ids do
    not fit; UsageError when a piece would hold no score.
    """
    if resid.shape[:-1] != targets.shape:
        raise ShapeError(f"loss: the stream is for {list(resid.shape[:-1])} tokens, targets for {list(targets.shape)}")
    if scores_at_once < 1 or z_loss < 0:
        raise UsageError(f"loss: scores_at_once is {scores_at_once} and z_loss {z_loss}; they must be at least 1 and 0")
    table, head = model.unembed_table(), model.head
    flat = targets.flatten()
    counted = flat != IGNORED
    if bool(((flat < 0) & counted).any()) or bool((flat >= table.shape[0]).any()):
        raise ShapeError(why_no_score(flat, table.shape[0]))
    features = head.features(tap("final_norm", model.normed(resid))).flatten(0, -2)
    options = _Options(head.spec.softcap, z_loss, over, scores_at_once)
    run = cast(Callable[..., Tensor], _ChunkedLoss.apply)  # torch leaves it untyped
    total = run(features, tap("unembed.table", one_use(table)), head.bias, flat, options)
    return LossSum(total, counted.sum())


class _ChunkedLoss(torch.autograd.Function):
    """Sums -log softmax(cap(x E^T + b))[target] over the counted rows; see the module's docstring for how."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, options: _Options
    ) -> Float[Tensor, ""]:
        """Computes the loss, and at once the gradients of whatever needs one."""
        wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        grads = [
            torch.zeros(t.shape, dtype=wide, device=t.device) if t is not None and needed else None
            for t, needed in zip((x, table, bias), ctx.needs_input_grad[:3], strict=True)
        ]
        rows = (targets != IGNORED).nonzero()[:, 0]
        cut = _over_tokens if options.over == "tokens" else _over_vocabulary
        total = cut(x, table, bias, targets, rows, grads, options, wide)
        ctx.kinds = [None if t is None else t.dtype for t in (x, table, bias)]
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """Scales the gradients that the forward pass made: in place, unless the graph is kept for another time."""
        scale = torch.mul if torch._C._autograd._get_current_graph_task_keep_graph() else Tensor.mul_
        scaled = [
            None if grad is None else scale(grad, above[0]).to(kind)
            for grad, kind in zip(ctx.saved_tensors, ctx.kinds, strict=True)
        ]
        return (*scaled, None, None)


def _over_tokens(
    x: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    rows: Tensor,
    grads: list[Tensor | None],
    options: _Options,
    wide: torch.dtype,
) -> Tensor:
    """A piece is some tokens against the whole table."""
    total = torch.zeros((), dtype=wide, device=x.device)
    n = max(1, options.scores_at_once // table.shape[0])
    for start in range(0, len(rows), n):
        piece = rows[start : start + n]
        scores = _scores(x[piece], table, bias, options.softcap, wide)
        target = targets[piece]
        at_target = scores.gather(-1, target[:, None])[:, 0]
        slope = None if options.softcap is None else _cap_slope(scores, options.softcap)
        log_sum = _softmax_in_place(scores)
        total += (log_sum - at_target).sum() + options.z_loss * log_sum.square().sum()
        if any(grad is not None for grad in grads):
            if options.z_loss:
                scores.mul_(1 + 2 * options.z_loss * log_sum[:, None])
            scores[torch.arange(len(piece), device=x.device), target] -= 1
            _spread(scores if slope is None else scores.mul_(slope), x, table, piece, slice(None), grads)
        del scores, slope  # before the next piece is made, not after
    return total


def _over_vocabulary(
    x: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    rows: Tensor,
    grads: list[Tensor | None],
    options: _Options,
    wide: torch.dtype,
) -> Tensor:
    """A piece is all counted tokens against some rows of the table; the log-sum-exp is gathered piece by piece."""
    if not len(rows):
        return torch.zeros((), dtype=wide, device=x.device)
    n = max(1, options.scores_at_once // len(rows))
    pieces = [slice(start, min(start + n, table.shape[0])) for start in range(0, table.shape[0], n)]
    here, target = x[rows], targets[rows]

    def scores_of(piece: slice) -> Tensor:
        return _scores(here, table[piece], None if bias is None else bias[piece], options.softcap, wide)

    log_sum = torch.full((len(rows),), float("-inf"), dtype=wide, device=x.device)
    at_target = torch.zeros(len(rows), dtype=wide, device=x.device)
    for piece in pieces:
        scores = scores_of(piece)
        inside = (target >= piece.start) & (target < piece.stop)
        at_target[inside] = scores[inside, target[inside] - piece.start]
        log_sum = torch.logaddexp(log_sum, _softmax_in_place(scores))
        del scores  # before the next piece is made, not after
    total = (log_sum - at_target).sum() + options.z_loss * log_sum.square().sum()
    for piece in pieces if any(grad is not None for grad in grads) else []:
        scores = scores_of(piece)
        slope = None if options.softcap is None else _cap_slope(scores, options.softcap)
        scores.sub_(log_sum[:, None]).exp_().mul_(1 + 2 * options.z_loss * log_sum[:, None])
        inside = (target >= piece.start) & (target < piece.stop)
        scores[inside, target[inside] - piece.start] -= 1
        _spread(scores if slope is None else scores.mul_(slope), x, table, rows, piece, grads)
        del scores, slope
    return total


def _scores(x: Tensor, table: Tensor, bias: Tensor | None, softcap: float | None, wide: torch.dtype) -> Tensor:
    """cap(x E^T + b), in the wide type."""
    out = product(x.to(wide), table.to(wide), None if bias is None else bias.to(wide))
    if softcap is not None:
        out.div_(softcap).tanh_().mul_(softcap)
    return out


def _cap_slope(capped: Tensor, softcap: float) -> Tensor:
    """The derivative of cap * tanh(s / cap), from its value: 1 - (value / cap)^2."""
    return 1 - (capped / softcap).square()


def _softmax_in_place(scores: Tensor) -> Tensor:
    """Turns each row into its softmax and returns the log-sum-exp of what it was."""
    largest = scores.amax(-1, keepdim=True)
    scores.sub_(largest).exp_()
    total = scores.sum(-1, keepdim=True)
    scores.div_(total)
    return (largest + total.log())[:, 0]


def _spread(slope: Tensor, x: Tensor, table: Tensor, rows: Tensor, columns: slice, grads: list[Tensor | None]) -> None:
    """Adds one piece's part of the three gradients: dx = dS E, dE = dS^T x, db = sum of dS."""
    grad_x, grad_table, grad_bias = grads
    if grad_x is not None:
        grad_x.index_add_(0, rows, product(slope, table[columns].to(slope.dtype).t()))
    if grad_table is not None:
        grad_table[columns].addmm_(slope.t(), x[rows].to(slope.dtype))
    if grad_bias is not None:
        grad_bias[columns] += slope.sum(0)
