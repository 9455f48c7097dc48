"""What one token's loss is made of: loss = log-sum-exp of all scores - the target's own score.

A loss can be high because the target's score is low or because others are high; the two parts tell which. The next file
to read is ../optim/adamw.py.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.objectives.loss import IGNORED
from unembed.results import Result, Table


@torch.no_grad()
def loss_parts(logits: Float[Tensor, "batch pos vocab"], targets: Int[Tensor, "batch pos"]) -> Result:
    """Splits each counted token's loss, in nats: table `loss_parts` with a row per token.

    `log_sum_exp` - `target_logit` = `loss_nats`; `best_id` and `best_logit` are the highest score's. Values: the sums over
    all rows. Tokens whose target is IGNORED have no row.

    >>> logits = torch.tensor([[[3.1, 0.5, -0.8, 1.7, 0.2]]])
    >>> round(float(loss_parts(logits, torch.tensor([[0]])).tables["loss_parts"]["loss_nats"][0]), 4)
    0.3337
    """
    wide = logits.double()
    log_sum = wide.logsumexp(-1)
    rows = (targets != IGNORED).nonzero()
    batch, pos = rows[:, 0], rows[:, 1]
    target = targets[batch, pos]
    at_target = wide[batch, pos, target]
    best = wide[batch, pos].max(-1)
    loss = log_sum[batch, pos] - at_target
    columns = {
        "batch": batch,
        "position": pos,
        "target_id": target,
        "log_sum_exp": log_sum[batch, pos],
        "target_logit": at_target,
        "best_id": best.indices,
        "best_logit": best.values,
        "loss_nats": loss,
    }
    nats = ("log_sum_exp", "target_logit", "best_logit", "loss_nats")
    return Result(
        name="loss_parts",
        tables={
            "loss_parts": Table(
                columns={name: value.cpu().numpy() for name, value in columns.items()},
                units=dict.fromkeys(nats, "nats"),
            )
        },
        values={"loss_nats": float(loss.sum()), "n_tokens": len(rows)},
    )
