"""Every claim of `unembed verify` holds for every family's files, or is skipped for a reason that is expected."""

import pytest
import torch

from parity import PARITIES
from unembed.verify import CLAIMS, subject_of, verify

SKIPPED = {
    "tokenizer round trip": "tokenizer",
    "exact resume": "run",
    "checkpoints": "no run",
    "cached = uncached": "a masked model has no cache",
}


@pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
def test_all_claims_hold(parity, reference, unchecked):
    claims = verify(subject_of(reference(parity, "base", torch.float32).folder))
    assert [one.name for one in claims] == list(CLAIMS)
    for one in claims:
        if one.status == "skipped":
            assert SKIPPED[one.name] in one.detail
        else:
            assert one.status == "proved", one
    statuses = {one.name: one.status for one in claims}
    assert statuses["parity with transformers"] == statuses["export round trip"] == "proved"
    assert (statuses["cached = uncached"] == "proved") == parity.is_causal
