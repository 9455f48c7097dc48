"""Claim: reading a text piece by piece with a cache gives the logits that reading it at once gives."""

import torch

from unembed.model.kv_cache import KvCache
from unembed.verify.claim import Claim, Subject, judged, skipped, tolerance_for, worst_of

NAME = "cached = uncached"


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Compares a whole forward with a prefill of a third, single tokens, and a last chunk."""
    model = subject.model
    if not model.spec.is_causal:
        return skipped(NAME, "a masked model has no cache: every position sees the later ones")
    if not model.can_cache:
        return skipped(NAME, "this model's old keys change as a text grows, so it is never cached")
    ids = subject.probe(2)
    whole = model(ids)
    table = model.embed.table
    cache = KvCache(model.spec, batch=2, capacity=ids.shape[1], dtype=table.dtype, device=table.device)
    third = max(1, ids.shape[1] // 3)
    singles = [1] * min(8, ids.shape[1] - third)
    rest = ids.shape[1] - third - len(singles)
    pieces = torch.split(ids, [third, *singles, *([rest] if rest else [])], dim=1)
    stepwise = torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)
    return judged(
        NAME,
        worst_of(whole, stepwise),
        tolerance_for(whole),
        f"logits of 2 x {ids.shape[1]} random ids, at once and in {len(pieces)} pieces",
    )
