"""Claim: every number of the model is finite, and so is what it computes; without that no comparison means anything."""

import torch

from unembed.verify.claim import Claim, Subject, failed, judged

NAME = "finite"


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Looks at every parameter, and at the logits of a text of random ids."""
    broken = [name for name, parameter in subject.model.named_parameters() if not parameter.isfinite().all()]
    if broken:
        return failed(NAME, f"{len(broken)} tensors hold NaN or infinity: {', '.join(broken[:4])}")
    ids = subject.probe(1)
    n_broken = int((~subject.model(ids).isfinite()).sum())
    return judged(NAME, float(n_broken), 0.0, f"all parameters, and the logits of {ids.shape[1]} random ids")
