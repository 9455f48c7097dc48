"""A corrupted run with clean values put into it: one place a row of the batch, and the score that each row comes to.

Patching is a tap like any other: nothing is attached to the model, so nothing is left behind. The next file to read is
patching.py, which chooses the places and tells what came of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from unembed.model.attention import AttentionPath
from unembed.model.taps import Tap
from unembed.model.transformer import Transformer

BY_QUERY = ("attn_scores", "attn_pattern")  # [batch, head, pos, key_pos]; all others are [batch, pos, ...]
AFTER_THE_STREAM = ("final_norm", "logits")
ROWS_AT_ONCE = 31  # and one that is left as it is


class Place(NamedTuple):
    """What one row of a batch is patched with: a step, and of it a position, a head, or (None) all of them.

    A place without a step is the corrupted run as it is.
    """

    name: str | None
    layer: int | None
    position: int | None = None
    head: int | None = None


class Patch:
    """A tap that gives each row of a batch the clean value of its own place, and leaves all else as it comes."""

    def __init__(self, places: Sequence[Place], clean: dict[str, Tensor], prefix: str = "") -> None:
        self.places, self.clean, self.prefix = places, clean, prefix

    def __call__(self, name: str, value: Tensor, /) -> Tensor:
        """Replaces in the rows whose step this is."""
        full = self.prefix + name
        rows = [row for row, place in enumerate(self.places) if place.name == full]
        if not rows:
            return value
        patched, source = value.clone(), self.clean[full][0]
        position_axis, head_axis = (1, 0) if name in BY_QUERY else (0, 1)
        for row in rows:
            place = self.places[row]
            at: list[Any] = [slice(None)] * source.ndim
            if place.position is not None:
                at[position_axis] = place.position
            if place.head is not None:
                at[head_axis] = place.head
            patched[(row, *at)] = source[tuple(at)]
        return patched

    def inside(self, layer: int, /) -> Tap:
        """The same for one block, under its full names."""
        return Patch(self.places, self.clean, f"blocks.{layer}.")


@dataclass(frozen=True)
class Question:
    """What is read of a run: the scores at one position, of a target and perhaps of another id.

    `metric`: the lead of the first row's logit over the second's, the first's logit, or its probability among the
    `n_known` rows that stand for tokens. `is_whole` asks for all positions after the stream, where one of them is patched.
    """

    position: int
    path: AttentionPath
    is_whole: bool
    metric: str = "logit"
    rows: tuple[int, ...] = ()
    n_known: int = 0

    def logits(self, model: Transformer, ids: Int[Tensor, "batch pos"], tap: Tap) -> Float[Tensor, "batch vocab"]:
        """The scores of all rows at the position."""
        stream = model.hidden(ids, tap=tap, attention=self.path)
        if self.is_whole:
            return model.unembed(stream, tap=tap)[:, self.position]
        return model.unembed(stream[:, self.position : self.position + 1])[:, 0]

    def score(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """One number a run."""
        wide = logits.double()
        if self.metric == "probability":
            return wide[:, : self.n_known].softmax(-1)[:, self.rows[0]]
        first = wide[:, self.rows[0]]
        return first - wide[:, self.rows[1]] if self.metric == "logit_difference" else first


def scores_of(
    model: Transformer,
    corrupted: Int[Tensor, "1 pos"],
    places: Sequence[Place],
    clean: dict[str, Tensor],
    question: Question,
) -> list[tuple[float, float]]:
    """The score of the corrupted run patched at each place, and beside it that of the same run with nothing patched.

    Some places go side by side, each time with one row that is left alone: a product over many rows rounds otherwise than
    over one, and a place that changes nothing is to be held against the same rounding.
    """
    found: list[tuple[float, float]] = []
    for first in range(0, len(places), ROWS_AT_ONCE):
        some = [Place(None, None), *places[first : first + ROWS_AT_ONCE]]
        logits = question.logits(model, corrupted.expand(len(some), -1), Patch(some, clean))
        nothing, *scores = question.score(logits).tolist()
        found += [(score, nothing) for score in scores]
    return found
