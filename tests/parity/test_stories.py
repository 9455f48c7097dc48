"""stories260K, a real model of 260,032 parameters: one text from its own file, from our exports, and in other programs.

The reference is what llama2.c itself writes. Each export is read by us as a process would, and by the program it was
made for: transformers opens the folder, llama.cpp (through xllamacpp) the GGUF file.
"""

import functools

import pytest
import torch

from commands import run, spawn
from llama_cpp import continued
from parity.harness import quiet_transformers
from parity.test_export import heard
from unembed.checkpoints.formats.safetensors import read_tensors
from unembed.checkpoints.load import load

N_TOKENS = 200
PROMPT = "The dog and the cat"


@pytest.fixture(scope="module")
def stories(data):
    return data / "weights" / "stories260K.bin"


@pytest.fixture(scope="module")
def reference(data) -> str:
    """The text that llama2.c writes; its line ends are its own, so bytes are compared."""
    return (data / "weights" / "stories260K_greedy_200.txt").read_bytes().decode()


@pytest.fixture(scope="module")
def exports(stories, tmp_path_factory):
    """exports[name]: the model as a folder for transformers, as GGUF (F32 and F16), and as a run of our own."""
    folder = tmp_path_factory.mktemp("exports")
    kinds = {"hf": ("hf", "file"), "gguf": ("gguf", "file"), "f16": ("gguf", "float16"), "native": ("native", "file")}
    made = {}
    for name, (to, dtype) in kinds.items():
        made[name] = folder / (f"{name}.gguf" if to == "gguf" else name)
        done = run("convert", stories, made[name], "--to", to, "--dtype", dtype)
        assert done.code == 0, done
        assert "no tokenizer" not in done.err
    return made


@pytest.fixture(scope="module")
def ours(stories, exports):
    """ours(name, prompt, n): what our greedy sample gives for an export, or for the file itself; each is asked once."""

    @functools.cache
    def sample(name="bin", prompt="", n_tokens=N_TOKENS):
        place = stories if name == "bin" else exports[name]
        done = spawn("sample", place, "--prompt", prompt, "--tokens", n_tokens, "--greedy", "--format", "json")
        assert done.code == 0, done
        return done.json

    return sample


@pytest.fixture(scope="module")
def transformers_model(exports):
    """transformers' model and tokenizer of the exported folder; it has nothing to say about it."""
    with heard() as lines:
        transformers = quiet_transformers()
        model = transformers.AutoModelForCausalLM.from_pretrained(exports["hf"])
        tokenizer = transformers.AutoTokenizer.from_pretrained(exports["hf"])
        transformers.GenerationConfig.from_pretrained(exports["hf"])
    assert lines == []
    return model.eval(), tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bin", "hf", "gguf", "f16", "native"])
def test_oracle_the_text_of_llama2c_on_a_pipe(exports, stories, reference, name):
    done = spawn("sample", exports.get(name, stories), "--tokens", N_TOKENS, "--greedy")
    assert (done.code, done.out) == (0, reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf", "gguf", "f16", "native"])
def test_property_every_export_continues_a_prompt_as_the_file_does(ours, name):
    """f16 included: the margins of this text are wider than what the rounded weights change."""
    wanted, found = ours("bin", PROMPT, 40), ours(name, PROMPT, 40)
    assert found["prompt_ids"].count(1) == 1  # the start token: llama2.c begins every text with it
    for key in ("prompt_ids", "ids", "text"):
        assert found[key] == wanted[key], key


@pytest.mark.slow
def test_parity_transformers_generates_the_text_from_the_exported_folder(ours, reference, transformers_model):
    model, tokenizer = transformers_model
    settings = {"do_sample": False, "max_new_tokens": N_TOKENS}
    with heard() as lines:
        start = torch.tensor([[tokenizer.bos_token_id]])
        ids = model.generate(start, attention_mask=torch.ones_like(start), **settings)[0, 1:]
        text = tokenizer.decode(ids)
    assert lines == []
    assert text == reference
    assert ids.tolist() == ours("hf")["ids"]


@pytest.mark.slow
def test_parity_transformers_reads_a_prompt_as_the_file_does(ours, transformers_model):
    """The start token is part of it: llama2.c puts it before every text, so the exported tokenizer does, and once (A19b)."""
    model, tokenizer = transformers_model
    wanted = ours("bin", PROMPT, 40)
    asked = tokenizer(PROMPT, return_tensors="pt")
    assert asked["input_ids"][0].tolist() == wanted["prompt_ids"]
    made = model.generate(**asked, do_sample=False, max_new_tokens=40)[0, len(wanted["prompt_ids"]) :]
    assert made.tolist() == wanted["ids"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gguf", "f16"])
def test_parity_llama_cpp_writes_the_text_from_the_exported_file(exports, ours, reference, name):
    """llama.cpp multiplies 16-bit weights with vectors rounded to 16 bits; the margins of this text are wider than that."""
    theirs = continued(exports[name], [1], N_TOKENS)
    assert theirs.ids == ours(name)["ids"]
    assert theirs.text == f" {reference}"  # it shows the first space, which no prompt precedes


@pytest.mark.slow
def test_parity_llama_cpp_reads_a_prompt_as_the_file_does(exports, ours, reference):
    begun = "Once upon a time"
    assert begun + continued(exports["gguf"], begun, N_TOKENS - 4).text == reference  # its four tokens count, too
    wanted, theirs = ours("bin", PROMPT, 40), continued(exports["gguf"], PROMPT, 40)
    assert (theirs.n_prompt, theirs.ids, theirs.text) == (len(wanted["prompt_ids"]), wanted["ids"], wanted["text"])


@pytest.mark.slow
def test_parity_llama_cpp_computes_our_log_probabilities(exports, ours):
    wanted, theirs = ours(), continued(exports["gguf"], [1], N_TOKENS)
    assert torch.allclose(torch.tensor(theirs.logprobs), torch.tensor(wanted["logprobs"]), rtol=0, atol=2e-5)


def test_property_the_weights_of_the_exports_are_those_of_the_file(exports, stories):
    """float32 comes back to the last bit; 16 bits are each matrix rounded once, and vectors whole."""
    weights = dict(load(stories).named_parameters())
    for name in ("hf", "gguf", "native"):
        for key, tensor in load(exports[name]).named_parameters():
            assert torch.equal(tensor, weights[key]), (name, key)
    for key, tensor in load(exports["f16"]).named_parameters():
        assert torch.equal(tensor, weights[key].half().float()), key
    assert {tensor.dtype for tensor in read_tensors(exports["hf"] / "model.safetensors").values()} == {torch.float32}
