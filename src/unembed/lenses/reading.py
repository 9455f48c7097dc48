"""Any states of a model's residual stream, read through its own final norm and head, without ever holding all the scores.

Scores of a whole text are [layers, positions, vocabulary]: 0.7 GB for 256 tokens of GPT-2, and every statistic of them is a
pass over all of it. Here a chunk of positions with all their layers goes through the head in one product, and is gone when
the next one is made; slabs of it that fit in the processor's cache are measured (measures.py). Memory grows
with the states, never with vocabulary x positions x layers. The last layer's scores are held against `model.unembed` on the
way. Before it: measures.py. The next file to read is states.py, which takes the states from a forward.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.lenses.measures import STATISTICS, Room, Wanted, measure, outputs
from unembed.model.product import product
from unembed.model.transformer import Transformer

# Scores in one product: 28 MB of float32. A smaller product reads the table more often; pieces from 32 MB on are taken from
# the system anew by glibc, page by page, which costs more than a larger product wins.
SCORES_AT_ONCE = 7 * 2**20
# Scores in one slab, about the size of a core's cache; one position may need more.
SLAB_SCORES = 2**18

# Changes states on their way to the head: called with the indices of the layers and their states, [layer, pos, d_model].
Translator = Callable[[Sequence[int], Tensor], Tensor]


class Reading(NamedTuple):
    """Numbers as arrays [layer, pos] ([layer, pos, rank] for the best tokens), by name, and how far the identity is off.

    Names: `top_ids`, `top_scores`, `entropy_nats`, `logsumexp_nats`, `kl_to_final_nats`, `js_to_final_nats`, `tv_to_final`,
    `target_logit`, `target_rank`, `following_logit`; of these what the statistics need. Numbers of positions without a
    target mean nothing. `identity_error` is None where it was not asked for.
    """

    numbers: dict[str, Tensor]
    identity_error: float | None


@torch.no_grad()
def read(
    model: Transformer,
    states: Float[Tensor, "layer pos d_model"],
    *,
    statistics: Sequence[str] = STATISTICS,
    n_top: int = 5,
    n_known: int | None = None,
    targets: Int[Tensor, " pos"] | None = None,
    following: Int[Tensor, " pos"] | None = None,
    translate: Translator | None = None,
    normalises: bool = True,
    checks_identity: bool = True,
) -> Reading:
    """Measures what the head makes of each state; the last layer is the answer that the others are held against.

    `n_known` leaves out the rows of the table from that one on. `translate` changes states before the norm; the last
    layer is read as it is, whatever it returns. `targets` and `following` are the ids for the statistics `target` and
    `cross_entropy`, -1 for none. `checks_identity` holds the last layer's scores against `model.unembed` of its states.
    Without `normalises` the states go to the head as they are: for directions, which have no size of their own.
    Half-precision models score in their own type, as they do by themselves; everything after the scores is float32.
    """
    n_layers, n_pos, _ = states.shape
    none = torch.full((n_pos,), -1, device=states.device)
    head = _Head(model, n_known, normalises)
    wanted = Wanted(
        statistics=frozenset(statistics),
        n_top=min(n_top, head.n_vocab),
        targets=none if targets is None else targets,
        following=none if following is None else following,
    )
    depth = min(n_layers, max(2, SCORES_AT_ONCE // head.n_vocab))
    step = max(1, min(n_pos, SCORES_AT_ONCE // (head.n_vocab * depth)))
    thick = max(1, min(step, SLAB_SCORES // (head.n_vocab * depth)))
    if states.device.type != "cpu":
        thick = step  # an accelerator wants few large passes, not many small ones
    like = torch.empty(0, head.n_vocab, dtype=head.wide, device=states.device)
    room = Room.of(thick, depth, like)
    found = outputs(n_pos, n_layers, wanted, like)
    check = _Identity(model, states[-1:], step * depth, head.n_vocab) if checks_identity else None
    for start in range(0, n_pos, step):
        at = slice(start, min(start + step, n_pos))
        for layers in _groups(n_layers, depth):
            chunk = states[:, at] if len(layers) == n_layers else states[layers, at]
            if translate is not None:
                chunk = torch.cat((translate(layers, chunk)[:-1], chunk[-1:]))
            scores = head(chunk.transpose(0, 1))
            if check is not None and layers[0] == 0:
                check(start, scores[:, -1])
            here = outputs(scores.shape[0], len(layers), wanted, like)
            for first in range(0, scores.shape[0], thick):
                part = slice(first, first + thick)
                measure(
                    scores[part],
                    room.part(scores[part]),
                    wanted.part(slice(start + first, start + min(first + thick, scores.shape[0]))),
                    {name: value[part] for name, value in here.items()},
                )
            for name, value in here.items():
                found[name][at, layers] = value
            del scores  # before the next ones are made, not after
    numbers = {name: value.transpose(0, 1) for name, value in found.items()}
    return Reading(numbers, None if check is None else float(check.worst))


def _groups(n_layers: int, depth: int) -> Iterator[list[int]]:
    """The layers that go through the head together: all of them, or as many as fit, each group with the last one."""
    if n_layers <= depth:
        yield list(range(n_layers))
        return
    for first in range(0, n_layers - 1, depth - 1):
        yield [*range(first, min(first + depth - 1, n_layers - 1)), n_layers - 1]


class _Identity:
    """Holds the last layer's scores against `model.unembed` of its states, which scores many positions in one product.

    For the few positions of one chunk a product would read the whole table as well, and take several times as long.
    """

    def __init__(self, model: Transformer, last: Float[Tensor, "1 pos d_model"], many: int, n_vocab: int) -> None:
        self._model, self._last, self._many, self._n_vocab = model, last, many, n_vocab
        self._own, self._first = last.new_empty(0, n_vocab), 0
        self.worst = last.new_zeros((), dtype=torch.float32 if last.dtype != torch.float64 else None)

    def __call__(self, start: int, scores: Float[Tensor, "pos vocab"]) -> None:
        """Compares the scores of the positions from `start` on. Chunks come in order, and divide `many`."""
        if start >= self._first + len(self._own):
            self._own = self._model.unembed(self._last[:, start : start + self._many])[0, :, : self._n_vocab]
            self._first = start
        own = self._own[start - self._first : start - self._first + len(scores)]
        # not a number stays one, so a broken model is not passed off as a perfect reading
        self.worst = torch.maximum(self.worst, (own - scores).abs_().max())


class _Head:
    """What `model.unembed` does, without taps, for states of many layers at once."""

    def __init__(self, model: Transformer, n_known: int | None, normalises: bool) -> None:
        self._model, self._head, self._normalises = model, model.head, normalises
        table = model.unembed_table()
        self.n_vocab = len(table) if n_known is None else min(n_known, len(table))
        self._table = table[: self.n_vocab]
        self._bias = None if model.head.bias is None else model.head.bias[: self.n_vocab]
        is_half = table.dtype in (torch.float16, torch.bfloat16)
        self.wide = torch.float32 if is_half else table.dtype

    def __call__(self, states: Float[Tensor, "pos layer d_model"]) -> Float[Tensor, "pos layer vocab"]:
        """The scores of some states, in the wide type."""
        normed = self._model.normed(states) if self._normalises else states
        features = self._head.features(normed).flatten(0, 1)
        scores = product(features, self._table, self._bias)
        if (cap := self._head.spec.softcap) is not None:
            scores.div_(cap).tanh_().mul_(cap)
        return scores.to(self.wide).view(*states.shape[:2], self.n_vocab)
