"""From logits to one id, as pure functions: which ids stay possible, how probable they are, which one is drawn.

Everything is float64 on a row at a time, so a row gives the same answer alone and in any batch. Equal logits are ranked
by id, the lower first; that one rule settles ties in greedy, top-k and top-p alike. The next file to read is decode.py.
"""

import math

import msgspec
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import InputError, UsageError


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the next id is chosen. Filters apply in this order: penalty, temperature, top_k, top_p, min_p.

    temperature 0 is greedy. None means absent. top_k keeps k ids; top_p the fewest whose probabilities reach p; min_p those
    with at least min_p times the largest probability; repetition_penalty divides positive logits of ids that occurred and
    multiplies negative ones (arXiv:1909.05858, section 4.1).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


GREEDY = Sampling(temperature=0.0)

# A running sum this near to p counts as having reached it: sums of float64 softmaxes miss p by rounding alone.
REACHED = 1e-6


def check_sampling(sampling: Sampling) -> Sampling:
    """Returns the options if they can be followed. Raises: UsageError naming the option."""
    temperature, top_k, penalty = sampling.temperature, sampling.top_k, sampling.repetition_penalty
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"temperature is {temperature}; it must be 0 (greedy) or above, and finite")
    if top_k is not None and top_k < 1:
        raise UsageError(f"top-k is {top_k}; it must be at least 1")
    for name, share in (("top-p", sampling.top_p), ("min-p", sampling.min_p)):
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"{name} is {share}; it must lie between 0 and 1")
    if penalty is not None and not (math.isfinite(penalty) and penalty > 0):
        raise UsageError(f"repetition-penalty is {penalty}; it must be above 0 (1 changes nothing)")
    return sampling


def known_logits(logits: Float[Tensor, " vocab"], n_known: int) -> Float[Tensor, " vocab"]:
    """The scores in float64, with -inf for ids from n_known on: they have a row in the table but none in the tokenizer."""
    wide = logits.double().clone()
    wide[n_known:] = -math.inf
    return wide


def probabilities(
    logits: Float[Tensor, " vocab"], sampling: Sampling, seen: Int[Tensor, " seen"] | None = None
) -> Float[Tensor, " vocab"]:
    """The distribution that is drawn from: filtered, then normalised again. Local axis: seen, the ids so far.

    >>> probs = probabilities(torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log(), Sampling(top_p=0.6))
    >>> [round(p, 3) for p in probs.tolist()]
    [0.625, 0.375, 0.0, 0.0]

    Raises: InputError when the scores rank nothing: one is NaN or infinite, or none is above -inf.
    """
    if not math.isfinite(float(logits.max())):
        raise InputError(
            f"sampling: the largest of the model's scores is {float(logits.max())}, so no id can be chosen. Its weights "
            "are broken; try an earlier checkpoint"
        )
    scores = logits
    if sampling.repetition_penalty is not None and seen is not None and len(seen):
        scores = _penalise(scores, seen, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return torch.zeros_like(scores).index_fill(0, _ranked(scores)[:1], 1.0)
    # Dividing by a tiny temperature overflows; measured from the largest score, all stay at or below 0.
    scores = (scores - scores.max()) / sampling.temperature
    order = _ranked(scores)
    kept = torch.ones(len(order), dtype=torch.bool)
    if sampling.top_k is not None:
        kept[sampling.top_k :] = False
    ranked = _normalised(scores[order].exp(), kept)
    if sampling.top_p is not None and sampling.top_p < 1:
        reached_before = ranked.cumsum(-1) - ranked >= sampling.top_p - REACHED
        reached_before[0] = False  # the most probable id stays, even for p = 0
        kept &= ~reached_before
        ranked = _normalised(ranked, kept)
    if sampling.min_p is not None:
        kept &= ranked >= sampling.min_p * ranked[0]
        ranked = _normalised(ranked, kept)
    return torch.zeros_like(ranked).index_copy(0, order, ranked)


def draw(probs: Float[Tensor, " vocab"], uniform: float) -> int:
    """The id whose stretch of the cumulative distribution holds `uniform`, a number in [0, 1)."""
    cumulative = probs.cumsum(-1)
    index = int(torch.searchsorted(cumulative, torch.tensor(uniform * float(cumulative[-1])).double(), right=True))
    if index < len(probs) and probs[index] > 0:
        return index
    return int(probs.nonzero()[-1])  # rounding at the upper end may point past the last possible id


def _ranked(scores: Float[Tensor, " vocab"]) -> Int[Tensor, " vocab"]:
    return scores.sort(descending=True, stable=True).indices


def _normalised(weights: Float[Tensor, " vocab"], kept: Tensor) -> Float[Tensor, " vocab"]:
    left = weights.masked_fill(~kept, 0.0)
    return left / left.sum()


def _penalise(scores: Float[Tensor, " vocab"], seen: Int[Tensor, " seen"], penalty: float) -> Float[Tensor, " vocab"]:
    penalised = scores.clone()
    there = scores[seen]
    penalised[seen] = torch.where(there > 0, there / penalty, there * penalty)
    return penalised
