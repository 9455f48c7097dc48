"""What looks inside a model, on every family's own files: terms add up to transformers' score, weights are its weights."""

import numpy as np
import pytest
import torch

from parity import PARITIES
from parity.harness import exactly, token_ids
from unembed.checkpoints.load import load
from unembed.lenses.attention_maps import attention_maps
from unembed.lenses.attribution import attribute
from unembed.lenses.patching import patch

N_TOKENS = 12
POSITION = 9
FAMILIES = [
    pytest.param(parity, case, id=f"{parity.family}: {case}", marks=() if case == "base" else pytest.mark.slow)
    for parity in PARITIES
    for case in parity.all_cases
]


@pytest.mark.parametrize(("parity", "case"), FAMILIES)
@pytest.mark.parametrize(("dtype", "worst"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["64", "32"])
def test_terms_add_up_to_the_score_of_transformers(parity, case, dtype, worst, reference, unchecked):
    theirs = reference(parity, case, dtype)
    ours = load(theirs.folder, dtype="file")
    ids = token_ids(ours.spec.embedding.vocab_size, 1, N_TOKENS)
    with exactly(dtype):
        logits = theirs.model(ids, use_cache=False).logits[0, POSITION].double()
    for target, against in ((5, None), (6, 7)):
        values = attribute(ours, ids[0].tolist(), position=POSITION, target=target, against=against).values
        size = values["sum_of_absolute_parts"]
        assert values["check_error"] <= worst * size
        score = float(logits[target] - (0 if against is None else logits[against]))
        if ours.spec.head.softcap is None:
            assert values["sum"] == pytest.approx(score, abs=worst * size)
        else:
            assert values["logit"] == pytest.approx(score, abs=1e-5 * max(1, abs(score)))


@pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
def test_weights_are_those_of_transformers_and_patching_holds(parity, reference, unchecked):
    theirs = reference(parity, "base", torch.float64)
    ours = load(theirs.folder, dtype="file")
    ids = token_ids(ours.spec.embedding.vocab_size, 2, N_TOKENS)
    with exactly(torch.float64):
        expected = theirs.model(ids[:1], output_attentions=True, use_cache=False).attentions
    assert len(expected) == ours.spec.n_layers
    for layer, pattern in enumerate(expected):
        found = attention_maps(ours, ids[0].tolist(), layer=layer).values["patterns"]
        np.testing.assert_allclose(found, pattern[0].numpy(), atol=1e-10)
    found = patch(ours, ids[0].tolist(), ids[1].tolist(), target=5, metric="logit")
    assert found.values["check_error"] < 1e-10
    assert found.tables["layers"]["score"] == pytest.approx(found.values["clean"], abs=1e-9)
