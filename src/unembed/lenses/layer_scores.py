"""How good each layer's reading is on a text that was held out, and how far its confidence may be believed.

A reading is calibrated when, of all the guesses that it gives a probability of 0.7, seven in ten are right. Guesses are put
into ten bins by their probability; the expected calibration error is the mean over guesses of the distance between the
share that is right in a bin and the mean probability there:

    ECE = sum over bins of n_b / N * |right_b - confidence_b|

Source: Guo et al. 2017, arXiv:1706.04599, equation 3. An early layer's score is a clue and no belief: this says how good a
clue. The logit lens and a tuned one (tuned_lens.py) are measured on the very same positions. The next file to read is
calibration.py, which makes a result of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from unembed.errors import UsageError
from unembed.lenses.asking import refuse_broken
from unembed.lenses.reading import Translator, read
from unembed.lenses.states import take_states
from unembed.lenses.tuned_lens import known_rows, windows
from unembed.model.transformer import Transformer

N_BINS = 10

# Inputs and targets, each [batch, pos]; the last of several may be shorter, so the sizes have no names here.
Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Bins:
    """Guesses by their probability, ten equal steps from 0 to 1: how many, the sum of probabilities, how many were right.

    Local axis: bin.
    """

    items: Int[np.ndarray, " bin"]
    confidence: Float[np.ndarray, " bin"]
    right: Int[np.ndarray, " bin"]

    @property
    def calibration_error(self) -> float:
        """The expected calibration error; 0 without guesses."""
        total = int(self.items.sum())
        return float(np.abs(self.right - self.confidence).sum() / total) if total else 0.0


def bins_of(confidence: Float[np.ndarray, " pos"], is_right: Bool[np.ndarray, " pos"], n_bins: int = N_BINS) -> Bins:
    """Sorts guesses into bins; a probability of exactly 1 belongs to the last.

    >>> bins_of(np.array([0.85, 0.85, 0.15]), np.array([True, False, False])).calibration_error
    0.2833333333333333
    """
    place = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    return Bins(
        items=np.bincount(place, minlength=n_bins),
        confidence=np.bincount(place, weights=confidence, minlength=n_bins).astype(np.float64),
        right=np.bincount(place[is_right], minlength=n_bins),
    )


@dataclass(frozen=True)
class LayerScores:
    """Means over all positions, layer by layer, and the bins of each layer."""

    layers: list[float]
    kl_to_final_nats: Float[np.ndarray, " layer"]
    loss_nats: Float[np.ndarray, " layer"]
    right_share: Float[np.ndarray, " layer"]
    confidence_share: Float[np.ndarray, " layer"]
    agreement_share: Float[np.ndarray, " layer"]
    bins: list[Bins]
    n_tokens: int


def score_layers(
    model: Transformer, batches: Iterable[Batch], *, translate: Translator | None = None, n_bins: int = N_BINS
) -> LayerScores:
    """Reads every layer at every position of some windows and holds it against the token that came, and the final answer.

    Positions whose next token the tokenizer does not know are left out. A model that sees both ways is held against the
    token itself. Raises: UsageError for windows without a position that counts; InputError for a model
    that scores no number.
    """
    n_known = known_rows(model)
    layers: list[float] = []
    columns: dict[str, list[np.ndarray]] = {}
    for inputs, targets in batches:
        ids = windows(model, inputs)
        states = take_states(model, ids)
        layers = states.layers
        following = torch.full_like(ids, -1)
        wanted = targets if model.spec.is_causal else inputs
        following[:, ids.shape[1] - wanted.shape[1] :] = torch.from_numpy(wanted)
        following.masked_fill_(following >= n_known, -1)
        found = read(
            model,
            states.values.flatten(1, 2),
            statistics=("top", "logsumexp", "kl_to_final", "cross_entropy"),
            n_top=1,
            n_known=n_known,
            following=following.flatten(),
            translate=translate,
            checks_identity=False,
        ).numbers
        refuse_broken("lens", found["logsumexp_nats"][-1].abs())
        counts = (following.flatten() >= 0).numpy()
        best = found["top_ids"][..., 0].cpu()
        confidence = (found["top_scores"][..., 0] - found["logsumexp_nats"]).exp()
        made = {
            "kl": found["kl_to_final_nats"],
            "loss": found["logsumexp_nats"] - found["following_logit"],
            "confidence": confidence,
            "right": best == following.flatten(),
            "agrees": best == best[-1:],
        }
        for name, value in made.items():
            columns.setdefault(name, []).append(value.cpu().double().numpy()[:, counts])
    joined = {name: np.concatenate(parts, axis=1) for name, parts in columns.items()}
    if not joined or not joined["kl"].shape[1]:
        raise UsageError("calibration: no position of this text has a next token that the model knows; give more text")
    means = {name: values.mean(axis=1) for name, values in joined.items()}
    return LayerScores(
        layers=layers,
        kl_to_final_nats=means["kl"],
        loss_nats=means["loss"],
        right_share=means["right"],
        confidence_share=means["confidence"],
        agreement_share=means["agrees"],
        bins=[bins_of(c, r > 0, n_bins) for c, r in zip(joined["confidence"], joined["right"], strict=True)],
        n_tokens=joined["kl"].shape[1],
    )
