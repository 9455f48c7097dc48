"""From logits to one id, as pure functions: which ids stay possible, how probable they are, which one is drawn.

Everything is float64 on a row at a time, so a row gives the same answer alone and in any batch. Equal logits are ranked
by id, the lower first; that one rule settles ties in greedy, top-k and top-p alike. The next file to read is decode.py.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import msgspec
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unembed.errors import InputError, UsageError


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the next id is chosen. Filters apply in this order: penalty, temperature, top_k, top_p, min_p.

    temperature 0 is greedy. None means absent. top_k keeps k ids; top_p the fewest whose probabilities reach p; min_p those
    with at least min_p times the largest probability; repetition_penalty divides positive logits of ids that occurred, in
    the prompt or since, and multiplies negative ones (arXiv:1909.05858, section 4.1), once however often they occurred.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


GREEDY = Sampling(temperature=0.0)

# A running sum this near to p counts as having reached it: sums of float64 softmaxes miss p by rounding alone.
REACHED = 1e-6


@dataclass(frozen=True)
class Filtered:
    """One row of scores after all filters: the probabilities, and what each filter kept.

    `scores` are the model's after the repetition penalty, before the temperature, and `order` the ids by them, best first.
    Every filter keeps a beginning of that order: `n_kept` holds its name and how many ids it left.
    """

    probs: Float[Tensor, " vocab"]
    scores: Float[Tensor, " vocab"]
    order: Int[Tensor, " vocab"]
    n_kept: tuple[tuple[str, int], ...]

    def rule(self, token_id: int) -> str:
        """What became of an id: "kept", the filter that cut it, or "zero": cut by none, but too improbable to hold."""
        rank = int((self.order == token_id).nonzero()[0])
        cut_by = next((rule for rule, n in self.n_kept if rank >= n), None)
        return cut_by or ("kept" if self.probs[token_id] > 0 else "zero")


def check_sampling(sampling: Sampling) -> Sampling:
    """Returns the options if they can be followed. Raises: UsageError naming the option."""
    temperature, top_k, penalty = sampling.temperature, sampling.top_k, sampling.repetition_penalty
    if not (_is_number(temperature) and math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"temperature is {temperature!r}; it must be 0 (greedy) or above, and finite")
    if top_k is not None and not (_is_whole(top_k) and top_k >= 1):
        raise UsageError(f"top-k is {top_k!r}; it must be at least 1, a whole number")
    for name, share in (("top-p", sampling.top_p), ("min-p", sampling.min_p)):
        if share is not None and not (_is_number(share) and 0 <= share <= 1):
            raise UsageError(f"{name} is {share!r}; it must lie between 0 and 1")
    if penalty is not None and not (_is_number(penalty) and math.isfinite(penalty) and penalty > 0):
        raise UsageError(f"repetition-penalty is {penalty!r}; it must be above 0 (1 changes nothing)")
    return sampling


def known_ids(vocab_size: int, n_known: int, gaps: Sequence[int] = ()) -> Bool[Tensor, " vocab"]:
    """Which rows of the table have a token: not those from n_known on, nor the gaps below it."""
    is_known = torch.arange(vocab_size) < n_known
    is_known[list(gaps)] = False
    return is_known


def known_logits(logits: Float[Tensor, " vocab"], is_known: Bool[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
    """The scores in float64, with -inf for ids that no token has."""
    return logits.double().masked_fill(~is_known, -math.inf)


def probabilities(
    logits: Float[Tensor, " vocab"], sampling: Sampling, seen: Int[Tensor, " seen"] | None = None
) -> Float[Tensor, " vocab"]:
    """The distribution that is drawn from: filtered, then normalised again. Local axis: seen, the ids so far.

    >>> probs = probabilities(torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log(), Sampling(top_p=0.6))
    >>> [round(p, 3) for p in probs.tolist()]
    [0.625, 0.375, 0.0, 0.0]

    Raises: InputError as `filtered` does.
    """
    return filtered(logits, sampling, seen).probs


def filtered(logits: Float[Tensor, " vocab"], sampling: Sampling, seen: Int[Tensor, " seen"] | None = None) -> Filtered:
    """As `probabilities`, and what each filter kept. Local axis: seen, the ids so far.

    Raises: InputError when the scores rank nothing: one is NaN or infinite, or none is above -inf.
    """
    _check_ranks(logits)
    scores = penalised(logits, sampling, seen)
    order = _ranked(scores)
    if sampling.temperature == 0:
        n_kept, kept = [("greedy", 1)], torch.ones(1, dtype=scores.dtype)
    else:
        # Dividing by a tiny temperature overflows; measured from the largest score, all stay at or below 0.
        n_kept, kept = _keep_by_rank(((scores[order] - scores.max()) / sampling.temperature).exp(), sampling)
    probs = torch.zeros_like(scores).index_copy(0, order[: len(kept)], kept)
    return Filtered(probs=probs, scores=scores, order=order, n_kept=tuple(n_kept))


def penalised(
    logits: Float[Tensor, " vocab"], sampling: Sampling, seen: Int[Tensor, " seen"] | None
) -> Float[Tensor, " vocab"]:
    """The scores after the repetition penalty, the very same where there is none. Local axis: seen, the ids so far."""
    if sampling.repetition_penalty is None or seen is None or not len(seen):
        return logits
    return _penalise(logits, seen, sampling.repetition_penalty)


def greedy(scores: Float[Tensor, " vocab"]) -> int:
    """The id with the largest score, the lowest of several: what `filtered` and `draw` give at temperature 0, but sooner.

    Raises: InputError as `filtered` does.
    """
    _check_ranks(scores)
    return int(scores.argmax())


def best_two(scores: Float[Tensor, " vocab"]) -> Float[Tensor, " best"]:
    """The largest score and the next, which may equal it; one where there is only one. Local axis: best."""
    return scores.topk(min(2, len(scores))).values


def _keep_by_rank(
    weights: Float[Tensor, " vocab"], sampling: Sampling
) -> tuple[list[tuple[str, int]], Float[Tensor, " kept"]]:
    """Filters weights from the largest down: how many each filter left, and the probabilities of the last ones left.

    Local axis: kept, the ids that are left.
    """
    n_kept: list[tuple[str, int]] = []

    def keep(rule: str, n: int) -> Float[Tensor, " kept"]:
        n_kept.append((rule, n))
        return weights[:n] / weights[:n].sum()

    kept = weights / weights.sum() if sampling.top_k is None else keep("top_k", min(sampling.top_k, len(weights)))
    if sampling.top_p is not None and sampling.top_p < 1:
        reached_before = kept.cumsum(-1) - kept >= sampling.top_p - REACHED
        kept = keep("top_p", max(1, int((~reached_before).sum())))  # the most probable id stays, even for p = 0
    if sampling.min_p is not None:
        kept = keep("min_p", int((kept >= sampling.min_p * kept[0]).sum()))
    return n_kept, kept


def draw(probs: Float[Tensor, " vocab"], uniform: float) -> int:
    """The id whose stretch of the cumulative distribution holds `uniform`, a number in [0, 1)."""
    cumulative = probs.cumsum(-1)
    index = int(torch.searchsorted(cumulative, torch.tensor(uniform * float(cumulative[-1])).double(), right=True))
    if index < len(probs) and probs[index] > 0:
        return index
    return int(probs.nonzero()[-1])  # rounding at the upper end may point past the last possible id


def _check_ranks(logits: Float[Tensor, " vocab"]) -> None:
    largest = float(logits.max())
    if not math.isfinite(largest):
        raise InputError(
            f"sampling: the largest of the model's scores is {largest}, so no id can be chosen. Its weights "
            "are broken; try an earlier checkpoint"
        )


def _ranked(scores: Float[Tensor, " vocab"]) -> Int[Tensor, " vocab"]:
    return scores.sort(descending=True, stable=True).indices


def _penalise(scores: Float[Tensor, " vocab"], seen: Int[Tensor, " seen"], penalty: float) -> Float[Tensor, " vocab"]:
    penalised = scores.clone()
    there = scores[seen]
    penalised[seen] = torch.where(there > 0, there / penalty, there * penalty)
    return penalised


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)
