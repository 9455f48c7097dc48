"""From the ids of one micro-batch to its loss: the forward pass of a training step.

The model is used in its two halves, so that the scores can be made and used in pieces (`chunked_loss`). Dropout draws from
generators of its own. The next file to read is watching.py.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unembed.corpora.windows import TokenSplit
from unembed.model.taps import Tap
from unembed.model.transformer import Transformer
from unembed.objectives import IGNORED, LossSum, chunked_next_token_loss, next_token_loss
from unembed.training.config import RunConfig, TrainingConfig
from unembed.training.processes import Processes
from unembed.training.profile import Parts, no_profile

# ids, their targets, and how many of these count
Batch = tuple[Tensor, Tensor, int]


def own_batch(
    split: TokenSplit, config: RunConfig, step: int, micro: int, processes: Processes, device: torch.device
) -> Batch:
    """This process's rows of a micro-batch: process r of n takes the r-th of n equal parts of what one process would take."""
    training = config.training
    index = (step * training.accumulate + micro) * processes.n + processes.rank
    size = training.batch_size // processes.n
    inputs, targets = split.batch(config.seed, index, size, config.model.context_length)
    ids, wanted = (torch.from_numpy(array).to(device) for array in (inputs, targets))
    return ids, wanted, int((targets != IGNORED).sum())


def micro_loss(
    model: Transformer,
    training: TrainingConfig,
    ids: Int[Tensor, "batch pos"],
    targets: Int[Tensor, "batch pos"],
    *,
    tap: Tap,
    seed: int,
    profile: Parts = no_profile,
) -> LossSum:
    """The loss of one micro-batch, as a sum over its counted tokens. `seed` is that of its dropout, and of nothing else."""
    if training.dropout == 0:
        return _loss(model, training, ids, targets, tap, profile)
    with torch.random.fork_rng([] if ids.device.type == "cpu" else [ids.device]):
        torch.manual_seed(seed)
        return _loss(model, training, ids, targets, tap, profile)


def _loss(
    model: Transformer, training: TrainingConfig, ids: Tensor, targets: Tensor, tap: Tap, profile: Parts
) -> LossSum:
    with profile.part("forward"):
        resid = profile.turns_at(model.hidden(ids, tap=tap, dropout=training.dropout))
    with profile.part("loss"):
        if training.chunked_loss:
            return chunked_next_token_loss(model, resid, targets, tap=tap)
        return next_token_loss(model.unembed(resid, tap=tap), targets)


def dropout_seed(seed: int, step: int, micro: int, *, rank: int) -> int:
    """One number for each place where a training step draws at random, different for every place."""
    return int(np.random.SeedSequence([seed, step, micro, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))
