"""Small random models in llama.cpp: what our GGUF export writes is the same function there, token for token.

stories260K (test_stories.py) shows this for a real model of Llama's shape; here are the shapes that it does not have:
GPT-2's, a head of its own, rotary scaling, padded rows. Both programs compute in float32; the greedy path is only
compared where no two tokens are nearly level, and each test says how close the closest were.
"""

import pytest
import torch

from llama_cpp import continued
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints import gguf_export
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.tokenizers.training import train_bpe

TEXT = "the cat sat on the mat. El niño comió año tras año. 깰 때 깨다 🙂🙂 it's 1948 " * 8
PROMPT = "the cat sat. El niño 깰"
N_TOKENS = 40
SMALLEST_MARGIN = 1e-3  # fifty times what the two programs differ by

COMMON = changed(
    base(),
    context_length=96,
    embedding__vocab_size=304,
    embedding__d_model=64,
    block__attention__n_heads=4,
    block__attention__d_head=16,
    block__attention__score_scale=16**-0.5,
)
GPT2 = changed(
    COMMON,
    embedding__position={"type": "learned", "n_rows": 96, "offset": 0},
    block__attention__n_kv_heads=4,
    block__attention__biases=["q", "k", "v", "o"],
    block__mlp={"type": "plain", "d_mlp": 96, "activation": "gelu_tanh", "has_bias": True},
)
ROTARY = {"type": "rotary", "theta": 10_000.0, "pairing": "half", "fraction": 1.0, "scaling": None}
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
LLAMA = changed(
    COMMON,
    block__attention__position=ROTARY,
    block__attention__n_kv_heads=2,
    block__norm=RMS,
    block__mlp={"type": "gated", "d_mlp": 96, "activation": "silu", "has_bias": False},
    final_norm=RMS,
)
LLAMA3 = {"type": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
LINEAR = {"type": "linear", "factor": 4.0}
CASES = {
    "gpt2": GPT2,
    "gpt2, untied": changed(GPT2, head__type="untied"),
    "llama": LLAMA,
    "llama, untied": changed(LLAMA, head__type="untied"),
    "llama, linear scaling": changed(LLAMA, block__attention__position=ROTARY | {"scaling": LINEAR}),
    "llama, llama3 scaling": changed(
        LLAMA,
        block__attention__position=ROTARY | {"theta": 5e5, "scaling": LLAMA3 | {"original_context": 8192}},
    ),
    "llama, half of each head turns": changed(LLAMA, block__attention__position=ROTARY | {"fraction": 0.5}),
}


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return train_bpe(TEXT, vocab_size=300)


def greedy(model, ids, n_tokens):
    """Ids, log-probabilities and margins of the greedy path, by plain forwards over the whole text so far."""
    made, logprobs, margins = list(ids), [], []
    for _ in range(n_tokens):
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([made]))[0, -1].double(), -1)
        best, second = scores.topk(2).values.tolist()
        made.append(int(scores.argmax()))
        logprobs.append(best)
        margins.append(best - second)
    return made[len(ids) :], torch.tensor(logprobs), min(margins)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_parity_llama_cpp_continues_as_we_do(tmp_path, tokenizer, case):
    model = small_model(CASES[case], dtype=torch.float32, seed=1)
    model.tokenizer = tokenizer
    _, notes = gguf_export.write(model, tmp_path / "m.gguf", name="m")
    assert notes == []
    prompt_ids = list(tokenizer.encode(PROMPT).ids)
    ids, logprobs, margin = greedy(model, prompt_ids, N_TOKENS)
    assert margin > SMALLEST_MARGIN
    assert len(set(ids)) > 5  # no model that repeats itself: each position matters
    theirs = continued(tmp_path / "m.gguf", PROMPT, N_TOKENS)
    assert theirs.n_prompt == len(prompt_ids)
    assert theirs.ids == ids
    assert torch.allclose(torch.tensor(theirs.logprobs, dtype=torch.float64), logprobs, rtol=0, atol=2e-5)
