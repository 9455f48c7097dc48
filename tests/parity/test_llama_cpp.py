"""Small random models in llama.cpp: what our GGUF export writes is the same function there, token for token.

stories260K (test_stories.py) shows this for a real model of Llama's shape; here are the shapes that it does not have:
GPT-2's, a head of its own, rotary scaling, padded rows. Both programs compute in float32.
"""

import pytest
import torch

from llama_cpp import next_logprobs
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError, SpecError
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.tokenizers.training import train_bpe

TEXT = "the cat sat on the mat. El niño comió año tras año. 깰 때 깨다 🙂🙂 it's 1948 " * 8
PROMPT = "the cat sat. El niño 깰"
N_TOKENS = 40
TOLERANCE = 2e-5  # of the largest logit, in float32
GELU_TOLERANCE = 1e-3  # llama.cpp looks the tanh GELU up in a table of 16-bit numbers

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
    "llama, llama3 scaling of its own": changed(
        LLAMA, block__attention__position=ROTARY | {"scaling": LLAMA3 | {"original_context": 16}}
    ),
}
# Keys that other programs write and we do not.
FACTORS = {
    "a factor without a type": {"scaling.factor": 4.0},
    "the older key": {"scale_linear": 4.0},
    "no factor for type none": {"scaling.type": "none", "scaling.factor": 4.0},
}


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return train_bpe(TEXT, vocab_size=300)


@pytest.fixture
def written(tmp_path, tokenizer):
    """written(case): a random model with its file for llama.cpp."""

    def write(case):
        model = small_model(CASES[case], dtype=torch.float32, seed=1)
        model.tokenizer = tokenizer
        _, _, notes = gguf_export.write(model, tmp_path / "m.gguf", name="m")
        assert notes == []
        return model, tmp_path / "m.gguf"

    return write


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_parity_llama_cpp_gives_every_token_our_probability(written, tokenizer, generator, case):
    """After texts of many lengths, one of them given as text, and along our own greedy path: so it would go the same way."""
    model, file = written(case)
    start = list(tokenizer.encode(PROMPT).ids)
    asked = [start, *(torch.randint(0, 300, (n,), generator=generator).tolist() for n in (1, 2, 17, 40, 80)), start]
    with torch.no_grad():
        while len(asked[-1]) < len(start) + N_TOKENS:
            asked.append([*asked[-1], int(model(torch.tensor([asked[-1]]))[0, -1].argmax())])
        scores = torch.cat([model(torch.tensor([ids]))[:, -1].double() for ids in asked])
    ours, largest = torch.log_softmax(scores, -1), float(scores.abs().max())
    theirs = next_logprobs(file, [PROMPT, *asked[1:]], ours.shape[-1], shown=start[0])
    tolerance = (GELU_TOLERANCE if "gpt2" in case else TOLERANCE) * largest
    assert float((theirs - ours).abs().max()) < tolerance
    best = ours.topk(2).values
    clear = best[:, 0] - best[:, 1] > 2 * tolerance  # nearly level tokens may change places
    assert int(clear.sum()) >= len(asked) - 2
    assert torch.equal(theirs.argmax(-1)[clear], ours.argmax(-1)[clear])


@pytest.mark.slow
@pytest.mark.parametrize("case", FACTORS)
def test_parity_llama_cpp_takes_a_rotary_factor_as_we_do(written, tmp_path, tokenizer, case):
    plain, file = written("llama")
    held = read_gguf(file)
    keys = {f"llama.rope.{key}": value for key, value in FACTORS[case].items()}
    write_gguf(tmp_path / "new.gguf", dict(held.metadata) | keys, {name: held.tensor(name) for name in held.tensors})
    model, start = load(tmp_path / "new.gguf"), list(tokenizer.encode(PROMPT).ids)
    with torch.no_grad():
        scores, unscaled = (one(torch.tensor([start]))[:, -1].double() for one in (model, plain))
    ours, largest = torch.log_softmax(scores, -1), float(scores.abs().max())
    theirs = next_logprobs(tmp_path / "new.gguf", [PROMPT], ours.shape[-1], shown=start[0])
    assert float((theirs - ours).abs().max()) < TOLERANCE * largest
    is_scaled = float((scores - unscaled).abs().max()) > 100 * TOLERANCE * largest
    assert is_scaled == (case != "no factor for type none")


def test_a_llama_whose_heads_turn_in_part_is_no_llama_for_llama_cpp(tmp_path):
    """It refuses to open such a file ("invalid n_rot"), so none is written, and none is read as if it could be."""
    half = changed(LLAMA, block__attention__position=ROTARY | {"fraction": 0.5})
    with pytest.raises(SpecError, match="no GGUF architecture that is written here describes this model exactly"):
        gguf_export.write(small_model(half, dtype=torch.float32), tmp_path / "m.gguf", name="m")
    gguf_export.write(small_model(LLAMA, dtype=torch.float32), tmp_path / "m.gguf", name="m")
    file = read_gguf(tmp_path / "m.gguf")
    metadata = dict(file.metadata) | {"llama.rope.dimension_count": 8}
    write_gguf(tmp_path / "half.gguf", metadata, {name: file.tensor(name) for name in file.tensors})
    with pytest.raises(CheckpointError, match=r"rope\.dimension_count.* llama\.cpp turns whole heads"):
        load(tmp_path / "half.gguf")
