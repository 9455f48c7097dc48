"""The loss: logits against the tokens that should have come, in nats. Softmax lives here and in sampling, nowhere else.

Losses come as a sum and a count, so that batches of unequal length can be added up without weighing short ones too much:
the mean of all tokens is the sum of sums over the sum of counts, never a mean of means. A label of `IGNORED` is not
counted, and a batch without any label has loss sum 0, count 0 and gradient 0. The next file to read is chunked.py.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import ShapeError

# Source: torch.nn.functional.cross_entropy's default, used all over the field.
IGNORED = -100


class LossSum(NamedTuple):
    """Negative log-probabilities in nats added up over the counted tokens, and how many tokens that were."""

    total: Float[Tensor, ""]
    n_tokens: Int[Tensor, ""]

    def mean(self) -> Float[Tensor, ""]:
        """Nats per counted token; 0 when none is counted, so that nothing turns into NaN."""
        return self.total / self.n_tokens.clamp(min=1)


def next_token_loss(
    logits: Float[Tensor, "batch pos vocab"], targets: Int[Tensor, "batch pos"], *, z_loss: float = 0.0
) -> LossSum:
    """Cross entropy of each position's scores with its target id: -log softmax(logits)[target].

    For a causal model the caller gives targets moved one place to the left; for a masked one, the hidden ids at masked
    places and IGNORED elsewhere. `z_loss` adds z_loss * logsumexp^2 for each counted token, which keeps the scores from
    drifting (PaLM, arXiv:2204.02311, section 5). Half-precision logits are taken in float32: in float16 the log-sum-exp of
    60,000 overflows.
    Raises: ShapeError when shapes or target ids do not fit.
    """
    if logits.shape[:-1] != targets.shape:
        raise ShapeError(f"loss: logits are for {list(logits.shape[:-1])} tokens, targets for {list(targets.shape)}")
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    try:
        total = F.cross_entropy(wide.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    except IndexError as error:
        raise ShapeError(why_no_score(targets, logits.shape[-1])) from error
    counted = targets != IGNORED
    if z_loss:
        total = total + z_loss * wide.logsumexp(-1).square().masked_fill(~counted, 0.0).sum()
    return LossSum(total, counted.sum())


def why_no_score(targets: Int[Tensor, "*axes"], n_ids: int) -> str:
    """The sentence about targets of which at least one is not among the scored ids, 0 to n_ids - 1."""
    ids = targets[targets != IGNORED]
    return (
        f"loss: targets run from {int(ids.min())} to {int(ids.max())}, but there are scores for ids 0 to {n_ids - 1} "
        "only. Was the text encoded with another model's tokenizer?"
    )


def bits_per_byte(total_nats: float, n_bytes: int) -> float:
    """A loss that does not depend on the tokenizer: nats over all tokens, in bits, per byte of the text they spell.

    >>> round(bits_per_byte(math.log(2) * 80, 10), 6)
    8.0
    """
    return total_nats / math.log(2) / n_bytes
