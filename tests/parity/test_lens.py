"""The lens on every family, causal and masked: its last layer is transformers' answer, earlier ones transformers' states."""

import numpy as np
import pytest
import torch

from oracles.lens import distribution, kl
from parity import BY_NAME, PARITIES
from parity.harness import exactly, token_ids
from unembed.checkpoints.load import load
from unembed.lenses.logit_lens import logit_lens
from unembed.lenses.states import take_states

FAMILIES = [parity.family for parity in PARITIES]
# float32's own error in the logits is that of some hundred sums; the same product in another order is all that the lens adds
FLOAT32 = 1e-5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identity_of_the_last_layer_in_every_family(reference, family, dtype):
    made = reference(BY_NAME[family], "base", dtype)
    model = load(made.folder, dtype=dtype)
    ids = token_ids(model.spec.embedding.vocab_size, 2, 13)
    with torch.no_grad():
        logits = model(ids)
    largest = max(1.0, float(logits.abs().max()))
    found = logit_lens(model, ids)
    tolerance = (FLOAT32 if dtype == torch.float32 else 1e-10) * largest
    assert found.values["identity_error"] <= tolerance
    top = found.tables["top"]
    last = top["layer"] == model.spec.n_layers
    assert [row[0] for row in top["ids"][last]] == logits.argmax(-1).flatten().tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_parity_every_layer_reads_as_transformers_states_through_its_own_head(reference, family):
    """Where transformers gives the raw states: all but the last, which it hands out after the final norm."""
    made = reference(BY_NAME[family], "base", torch.float64)
    model, theirs = load(made.folder, dtype=torch.float64), made.model
    ids = token_ids(model.spec.embedding.vocab_size, 1, 9)
    with exactly(torch.float64):
        out = theirs(input_ids=ids, output_hidden_states=True)
    states = take_states(model, ids)
    for layer in range(model.spec.n_layers):
        ours, given = states.values[layer], out.hidden_states[layer]
        assert float((ours - given).abs().max()) <= 1e-10 * max(1.0, float(given.abs().max())), layer
    found = logit_lens(model, ids[0])
    for pos in range(ids.shape[1]):
        p, total = distribution(out.logits[0, pos].tolist())
        assert found.values["logsumexp_nats"][-1][pos] == pytest.approx(total, abs=1e-9)
        with torch.no_grad():
            q, _ = distribution(model.unembed(out.hidden_states[0])[0, pos].tolist())
        assert found.values["kl_to_final_nats"][0][pos] == pytest.approx(kl(p, q), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_models_are_held_against_the_token_itself(reference, family):
    model = load(reference(BY_NAME[family], "base", torch.float64).folder, dtype=torch.float64)
    ids = token_ids(model.spec.embedding.vocab_size, 1, 7)
    found = logit_lens(model, ids[0])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids), -1)
    own = -logprobs.gather(-1, ids[..., None])[0, :, 0].numpy()
    np.testing.assert_allclose(found.values["cross_entropy_nats"][-1].astype(float), own, atol=1e-10)
    assert "lens_post_norm" in found.notes
