"""What is measured of scores, for a few positions at a time and all their layers, in buffers that are used again and again.

A slab is [pos, layer, vocab], the last layer being the model's own answer. It is sized for the processor's cache: the scores
of one position of GPT-2 take 2.6 MB, so a pass over them costs little and dozens of passes stay cheap, while one pass over
the scores of a whole text would wait for memory. Nothing here allocates a slab. The next file to read is reading.py, which
makes the scores and cuts them into slabs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

STATISTICS = (
    "top",
    "entropy",
    "logsumexp",
    "kl_to_final",
    "js_to_final",
    "tv_to_final",
    "target",
    "cross_entropy",
    "agreement",
)
TO_FINAL = ("kl_to_final", "js_to_final", "tv_to_final")
_OF_PROBABILITIES = {"top", "entropy", "logsumexp", "target", "cross_entropy", *TO_FINAL}
# A row is searched in columns of so many numbers: their maxima first, then the best columns alone.
_COLUMN = 64


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to measure, and against which ids; -1 where a position has none."""

    statistics: frozenset[str]
    n_top: int
    targets: Int[Tensor, " pos"]
    following: Int[Tensor, " pos"]

    def any_of(self, *names: str) -> bool:
        """Whether one of these was asked for."""
        return not self.statistics.isdisjoint(names)

    def part(self, at: slice) -> "Wanted":
        """The same for some of the positions."""
        return replace(self, targets=self.targets[at], following=self.following[at])


class Room(NamedTuple):
    """Room for the passes over one slab: probabilities, a scratch of the same size, and the last layer's probabilities."""

    probs: Float[Tensor, "pos layer vocab"]
    scratch: Float[Tensor, "pos layer vocab"]
    final: Float[Tensor, "pos 1 vocab"]

    @staticmethod
    def of(n_pos: int, n_layers: int, like: Float[Tensor, "rows vocab"]) -> "Room":
        """Empty buffers for slabs of at most so many positions and layers. Local axis: rows."""
        shape = (n_pos, n_layers, like.shape[-1])
        return Room(like.new_empty(shape), like.new_empty(shape), like.new_empty(n_pos, 1, shape[-1]))

    def part(self, scores: Float[Tensor, "pos layer vocab"]) -> "Room":
        """As much of it as these scores need."""
        n_pos, n_layers = scores.shape[:2]
        return Room(self.probs[:n_pos, :n_layers], self.scratch[:n_pos, :n_layers], self.final[:n_pos])


def outputs(n_pos: int, n_layers: int, wanted: Wanted, like: Tensor) -> dict[str, Tensor]:
    """Empty arrays [pos, layer] for every number that will be measured, [pos, layer, rank] for the best tokens."""

    def numbers(*shape: int) -> Tensor:
        return like.new_empty(n_pos, n_layers, *shape)

    made: dict[str, Tensor] = {}
    if wanted.any_of("top", "agreement"):
        n_top = wanted.n_top if wanted.any_of("top") else 1
        made["top_ids"] = numbers(n_top).long()
        made["top_scores"] = numbers(n_top)
    for statistic, names in (
        ("entropy", ("entropy_nats",)),
        ("kl_to_final", ("kl_to_final_nats",)),
        ("js_to_final", ("js_to_final_nats",)),
        ("tv_to_final", ("tv_to_final",)),
        ("target", ("target_logit", "target_rank")),
        ("cross_entropy", ("following_logit",)),
    ):
        if wanted.any_of(statistic):
            made |= {name: numbers() for name in names}
    if wanted.any_of(*_OF_PROBABILITIES):
        made["logsumexp_nats"] = numbers()
    return made


def measure(scores: Float[Tensor, "pos layer vocab"], room: Room, wanted: Wanted, out: dict[str, Tensor]) -> None:
    """Fills the rows of `out` for one slab. The scores are overwritten.

    Order matters: ranks and the best tokens are of the raw scores, since subtracting the log-sum-exp rounds away what tells
    near scores apart.
    """
    if "top_ids" in out:
        best(scores, out["top_scores"], out["top_ids"])
    if "target_logit" in out:
        _gather(scores, wanted.targets, out["target_logit"])
        higher = torch.gt(scores, out["target_logit"][..., None], out=room.scratch)  # ones and zeros: a fast sum
        torch.sum(higher, -1, out=out["target_rank"]).add_(1)
    if "following_logit" in out:
        _gather(scores, wanted.following, out["following_logit"])
    if "logsumexp_nats" not in out:
        return
    probs, scratch = torch.softmax(scores, -1, out=room.probs), room.scratch
    # the largest probability is exp(max - logsumexp), and softmax has summed in the row's own scale
    if "top_ids" in out:
        largest, its_share = out["top_scores"][..., 0], probs.gather(-1, out["top_ids"][..., :1])[..., 0]
    else:
        largest, its_share = scores.amax(-1), probs.amax(-1)
    total = torch.sub(largest, its_share.log_(), out=out["logsumexp_nats"])
    if not ({"entropy_nats", "kl_to_final_nats"} & out.keys()) and not wanted.any_of(*TO_FINAL):
        return
    log_probs = scores.sub_(total[..., None])
    if "entropy_nats" in out or "js_to_final_nats" in out:
        entropy = torch.sum(torch.mul(probs, log_probs, out=scratch), -1).neg_().clamp_(min=0)
        if "entropy_nats" in out:
            out["entropy_nats"].copy_(entropy)
    if not wanted.any_of(*TO_FINAL):
        return
    final = room.final.copy_(probs[:, -1:])
    if "kl_to_final_nats" in out:
        # the difference first: near the last layer it is small, and two sums would hide it in their rounding
        torch.sub(log_probs[:, -1:], log_probs, out=scratch).mul_(final)
        torch.sum(scratch, -1, out=out["kl_to_final_nats"]).clamp_(min=0)
    if "tv_to_final" in out:
        torch.sum(torch.sub(probs, final, out=scratch).abs_(), -1, out=out["tv_to_final"]).mul_(0.5)
    if "js_to_final_nats" in out:
        # H(mixture) - (H(layer) + H(final)) / 2; the least number above 0 keeps log(0) out, and adds nothing to any sum
        mixture = torch.lerp(probs, final.add_(torch.finfo(final.dtype).tiny), 0.5, out=scratch)
        torch.sum(torch.log(mixture, out=probs).mul_(mixture), -1, out=out["js_to_final_nats"]).neg_()
        out["js_to_final_nats"].sub_(entropy.add(entropy[:, -1:]).mul_(0.5)).clamp_(min=0)


def best(
    scores: Float[Tensor, "pos layer vocab"],
    values: Float[Tensor, "pos layer rank"],
    ids: Int[Tensor, "pos layer rank"],
) -> None:
    """The highest scores of each row and their ids, best first. Local axis: rank.

    A row of V numbers is seen as _COLUMN rows of V // _COLUMN columns. Whatever is among the n best stands in one of the n
    columns with the highest maxima, or in what is left over at the end; so one fast pass and a search in n columns do what
    sorting heaps of 50,000 numbers would.
    """
    n_vocab, n = scores.shape[-1], values.shape[-1]
    n_columns = n_vocab // _COLUMN
    if n_columns < 4 * n:
        torch.topk(scores, n, out=(values, ids))
        return
    square = scores[..., : n_columns * _COLUMN].view(*scores.shape[:-1], _COLUMN, n_columns)
    columns = square.amax(-2).topk(n).indices
    steps = torch.arange(0, n_columns * _COLUMN, n_columns, device=scores.device)
    places = (columns[..., None] + steps).flatten(-2)
    rest = torch.arange(n_columns * _COLUMN, n_vocab, device=scores.device).expand(*places.shape[:-1], -1)
    places = torch.cat((places, rest), -1)
    torch.topk(scores.gather(-1, places), n, out=(values, ids))
    ids.copy_(places.gather(-1, ids))


def _gather(
    scores: Float[Tensor, "pos layer vocab"], ids: Int[Tensor, " pos"], out: Float[Tensor, "pos layer"]
) -> None:
    """The scores of one id a position; where it has none (-1) any number, which whoever reads the arrays leaves out."""
    index = ids.clamp(min=0)[:, None, None].expand(-1, scores.shape[1], 1)
    out.copy_(scores.gather(-1, index)[..., 0])


def settled(best_ids: Int[Tensor, "pos layer"], labels: Sequence[float]) -> list[float]:
    """The layer from which on the best token is the last layer's and never changes again, for each position.

    >>> settled(torch.tensor([[7, 3, 5, 5]]), [0, 1, 2, 3])
    [2]
    """
    differs = best_ids != best_ids[:, -1:]
    n_layers = best_ids.shape[1]
    last_change = (differs * torch.arange(1, n_layers + 1, device=differs.device)).amax(-1)
    return [labels[i] for i in last_change.tolist()]
