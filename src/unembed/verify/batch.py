"""Claim: a text in a padded batch gets the logits that it gets alone."""

import torch

from unembed.verify.claim import Claim, Subject, judged, tolerance_for, worst_of

NAME = "batch = alone"


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Compares three texts of unequal length, padded on the left and on the right, with each of them alone."""
    model = subject.model
    longest = subject.probe(1)[0]
    lengths = sorted({1, max(1, len(longest) // 2), len(longest)})
    texts = [longest[:length] for length in lengths]
    alone = [model(text[None])[0] for text in texts]
    worst = 0.0
    for pads_left in (True, False):
        ids = torch.zeros(len(texts), len(longest), dtype=torch.long)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, text in enumerate(texts):
            place = slice(len(longest) - len(text), None) if pads_left else slice(0, len(text))
            ids[row, place], mask[row, place] = text, True
        together = model(ids, mask=mask)
        for row, expected in enumerate(alone):
            worst = max(worst, worst_of(together[row][mask[row]], expected))
    detail = f"logits of texts of {', '.join(map(str, lengths))} tokens, padded left and right"
    return judged(NAME, worst, tolerance_for(alone[-1]), detail)
