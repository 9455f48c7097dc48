"""Claim: the lens at the last layer is the model itself: what it reads there are the logits of a forward nobody looked into."""

import torch

from unembed.lenses.reading import read
from unembed.lenses.states import take_states
from unembed.verify.claim import Claim, Subject, judged, tolerance_for, worst_of

NAME = "lens identity"


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Compares the lens's own norm, product, bias, scale and cap with `model.unembed`, and that with a plain forward.

    The tolerance is half of what other claims allow: there are the same numbers, in another order of summation.
    """
    model, ids = subject.model, subject.probe(2)
    states = take_states(model, ids)
    reading = read(model, states.values.flatten(1, 2), statistics=("logsumexp",), n_known=subject.n_known)
    logits = model(ids)
    worst = max(_number(reading.identity_error), worst_of(model.unembed(states.values[-1]), logits))
    ours = reading.numbers["logsumexp_nats"][-1].view(ids.shape)
    theirs = logits[..., : subject.n_known].to(ours.dtype).logsumexp(-1)
    return judged(
        NAME,
        max(worst, worst_of(ours, theirs)),
        tolerance_for(logits) / 2,
        f"logits and log-sum-exp of 2 x {ids.shape[1]} random ids, read from the stream after the last of "
        f"{model.spec.n_layers} layers",
    )


def _number(error: float | None) -> float:
    """What is not a number is no agreement: `max` would pass over it."""
    return float("inf") if error is None or error != error else error
