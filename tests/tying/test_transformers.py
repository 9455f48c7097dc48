"""Models of transformers in memory: what it says of its own tie, what was done to it, and what it would save.

What is said of saving is tried: the model is saved and loaded by transformers itself. The next file to read is
test_sharded.py.
"""

import copy
import logging

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import unembed
from oracles import nudge

transformers = pytest.importorskip("transformers")

TIED = "Tied: one parameter, transformer.wte.weight, embeds and scores"
COPY = (
    "Not tied: lm_head.weight is an equal copy of transformer.wte.weight and will drift apart from it with the first training "
    "step"
)
TWO = "Not tied: transformer.wte.weight and lm_head.weight are two matrices"


@pytest.fixture(autouse=True)
def silent():
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()


def gpt2(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 13, "n_embd": 12, "n_layer": 1, "n_head": 2, "n_positions": 8, "n_inner": 8}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **options)
    return transformers.GPT2LMHeadModel(config).eval()


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=13,
        hidden_size=12,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
        **options,
    )
    return transformers.LlamaForCausalLM(config).eval()


def cloned(model):
    model.lm_head.weight = nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    return model


def retied(model):
    model.tie_weights()
    return model


def assigned(model):
    model.lm_head.weight = model.get_input_embeddings().weight
    return model


def resized(model):
    model.resize_token_embeddings(15, mean_resizing=False)
    return model


def head_cast(model):
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().to(torch.bfloat16))
    return model


def other_head(model):
    model.lm_head.weight = nn.Parameter(torch.randn(13, 12))
    return model


LLAMA_TIED = "Tied: one parameter, model.embed_tokens.weight, embeds and scores"
LLAMA_TWO = "Not tied: model.embed_tokens.weight and lm_head.weight are two matrices"
RANDOM = "but save_pretrained writes the table alone, and loading that gives a head at random values"
CASES = {
    "gpt2 as it is made": (gpt2, True, TIED),
    "gpt2 untied by its config": (lambda: gpt2(tie_word_embeddings=False), False, TWO),
    "gpt2 with a cloned head": (lambda: cloned(gpt2()), False, f"{COPY}, although the config says tied"),
    "gpt2 with a head of its own": (lambda: other_head(gpt2()), False, f"{TWO}, although the config says tied"),
    "gpt2 tied again": (lambda: retied(cloned(gpt2())), True, TIED),
    "gpt2 tied by hand, the flag off": (
        lambda: assigned(gpt2(tie_word_embeddings=False)),
        True,
        f"{TIED}, although the config says untied, {RANDOM}",
    ),
    "gpt2 resized": (lambda: resized(gpt2()), True, TIED),
    "gpt2 untied and resized": (lambda: resized(gpt2(tie_word_embeddings=False)), False, TWO),
    "gpt2 in half precision": (lambda: gpt2().to(torch.bfloat16), True, TIED),
    "gpt2, its head cast alone": (
        lambda: head_cast(gpt2()),
        False,
        "Not tied: lm_head.weight is a copy of transformer.wte.weight in another type (torch.float32 and torch.bfloat16), "
        "although the config says tied",
    ),
    "gpt2 copied deeply": (lambda: copy.deepcopy(gpt2()), True, TIED),
    "llama as it is made": (llama, False, LLAMA_TWO),
    "llama tied by its config": (lambda: llama(tie_word_embeddings=True), True, LLAMA_TIED),
    "llama tied by hand": (
        lambda: assigned(llama()),
        True,
        f"{LLAMA_TIED}, although the config says untied, {RANDOM}",
    ),
    "gpt2 without a head": (
        lambda: gpt2().transformer,
        None,
        "Not known: wte.weight embeds, and no matrix of GPT2Model scores a vocabulary",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_right_and_a_nudge_agrees(name):
    build, tied, sentence = CASES[name]
    model = build()
    found = unembed.tying.examine(model)
    assert found.values["verdict"] == f"{sentence}."
    assert found.values["tied"] is tied
    is_lie = "although" in sentence
    assert any(check["status"] == "broken" for check in found.values["checks"]) == is_lie
    if tied is not None and not name.endswith("cast alone"):
        assert nudge.moves(model, model.get_input_embeddings().weight) is tied


def exported(model, folder):
    model.save_pretrained(folder)
    names = [name for name in load_file(folder / "model.safetensors") if "wte" in name or "lm_head" in name]
    return names, transformers.GPT2LMHeadModel.from_pretrained(folder)


def export_of(model):
    (check,) = [one for one in unembed.tying.examine(model).values["checks"] if one["name"] == "export"]
    return check["status"], check["detail"]


def test_what_is_said_of_saving_is_what_transformers_does(tmp_path):
    table = "transformer.wte.weight"
    tied = gpt2()
    assert export_of(tied) == ("ok", "save_pretrained writes the table once and leaves lm_head.weight out")
    names, _ = exported(tied, tmp_path / "tied")
    assert names == [table]

    lying = assigned(gpt2(tie_word_embeddings=False))
    assert export_of(lying) == ("broken", RANDOM.removeprefix("but "))
    names, back = exported(lying, tmp_path / "lying")
    assert names == [table]
    assert not torch.equal(back.lm_head.weight, lying.lm_head.weight)

    copied = cloned(gpt2())
    assert export_of(copied) == ("unknown", "both matrices are written, and become one when they are loaded")
    names, back = exported(copied, tmp_path / "copied")
    assert sorted(names) == ["lm_head.weight", table]
    assert back.lm_head.weight is back.transformer.wte.weight

    untied = gpt2(tie_word_embeddings=False)
    assert export_of(untied) == ("ok", "save_pretrained writes both matrices")
    names, back = exported(untied, tmp_path / "untied")
    assert torch.equal(back.lm_head.weight, untied.lm_head.weight)


def test_an_optimizer_made_before_resizing_keeps_moments_of_another_size():
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    resized(model)
    found = unembed.tying.examine(model, optimizer)
    assert found.values["verdict"].startswith(f"{TIED}, but the optimizer")
    assert found.values["tied"] is True


def test_the_file_beside_the_module_is_held_against_it(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    checks = {one["name"]: one for one in unembed.tying.examine(model, file=tmp_path).values["checks"]}
    assert checks["file_and_memory"]["status"] == "ok"
    assert checks["file_and_memory"]["detail"] == "the file holds transformer.wte.weight as it is in memory"
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    checks = {one["name"]: one for one in unembed.tying.examine(model, file=tmp_path).values["checks"]}
    assert checks["file_and_memory"]["status"] == "unknown"
    assert "is another than in memory; was it trained on since?" in checks["file_and_memory"]["detail"]
    found = unembed.tying.examine(cloned(model), file=tmp_path)
    assert "the file gives a model that is tied, the one in memory is untied" in found.values["verdict"]
