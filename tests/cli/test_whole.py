"""inspect and count hold a file's tensors against what its model needs, as a load does, and say what to do."""

import json

import pytest
import torch

import unembed
from commands import run as command
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.convert import convert
from unembed.checkpoints.families import gpt2
from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.formats.gguf.read import GgufFile
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.inspect import inspect
from unembed.counting import spec_of_model
from unembed.errors import CheckpointError, UsageError

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
    block__mlp__activation="gelu_tanh",
)
NORM = "transformer.ln_f.weight"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "hf"
    place.mkdir()
    write_huggingface(small_model(GPT2, dtype=torch.float32), place, family=gpt2.FAMILY)
    return place


def rewrite(folder, *, drop=(), **more):
    held = {name: tensor.clone() for name, tensor in huggingface.read_weights(folder).items() if name not in drop}
    (folder / "model.safetensors").write_bytes(b"".join(encode_tensors(held | more, label="m")))


def configured(folder, **more):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))


CASES = {
    "missing": (lambda folder: rewrite(folder, drop=[NORM]), "1 tensor is missing: 'transformer.ln_f.weight'"),
    "surplus": (
        lambda folder: rewrite(folder, **{"value.w": torch.ones(2)}),
        "1 source tensor has no rule: 'value.w' float32[2]",
    ),
    "shape": (
        lambda folder: rewrite(folder, **{NORM: torch.ones(5)}),
        "tensor 'transformer.ln_f.weight' has shape [5], the config implies [12]",
    ),
    "head": (
        lambda folder: configured(folder, architectures=["GPT2ForSequenceClassification"]),
        "architectures names 'GPT2ForSequenceClassification', whose head gives no scores over the vocabulary",
    ),
    "heads": (
        lambda folder: configured(folder, n_head=5),
        "which 5 heads (n_head) cannot share equally. One of the two is wrong: mend config.json",
    ),
    "json": (
        lambda folder: (folder / "config.json").write_text('{"a": '),
        "Mend the file, or copy or download it again.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_inspect_lists_and_count_refuses_what_a_load_refuses(name, folder):
    harm, problem = CASES[name]
    assert inspect(folder).problems == []
    harm(folder)
    assert any(problem in one for one in inspect(folder).problems), inspect(folder).problems
    with pytest.raises(CheckpointError) as caught:
        spec_of_model(folder)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "head",
    ["BertForQuestionAnswering", "BertForTokenClassification", "GPT2DoubleHeadsModel", "BertForMultipleChoice"],
)
def test_every_other_head_is_refused_by_name_and_language_heads_are_not(head, folder):
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(
        CheckpointError, match=rf"architectures names '{head}'.*Give the language model that it was made"
    ):
        huggingface.family_of(config | {"architectures": [head]}, folder / "config.json")
    for name in (
        "GPT2LMHeadModel",
        "GPT2Model",
        "BertForMaskedLM",
        "BertForPreTraining",
        "FormerModel",
        "XForCausalLMv2",
    ):
        assert huggingface.family_of(config | {"architectures": [name]}, folder / "config.json") is gpt2.FAMILY
    for odd in (None, "ForX", [3], []):
        assert huggingface.family_of(config | {"architectures": odd}, folder / "config.json") is gpt2.FAMILY


def test_a_gguf_file_is_held_against_its_model_without_reading_its_numbers(folder, tmp_path, monkeypatch):
    convert(folder, tmp_path / "m.gguf", to="gguf")
    read = []
    whole = GgufFile.tensor
    monkeypatch.setattr(GgufFile, "tensor", lambda self, name: read.append(name) or whole(self, name))
    assert inspect(tmp_path / "m.gguf").problems == []
    assert set(read) <= {"token_embd.weight", "output.weight"}  # the two that tell whether the head is tied
    from unembed.checkpoints.formats.gguf.read import read_gguf

    file = read_gguf(tmp_path / "m.gguf")
    held = {name: whole(file, name) for name in file.tensors if name != "output_norm.weight"}
    write_gguf(tmp_path / "cut.gguf", dict(file.metadata), held)
    assert "1 tensor is missing: 'output_norm.weight'" in inspect(tmp_path / "cut.gguf").problems[0]


def test_ignored_tensors_are_no_problem_for_inspect_count_and_plan(folder):
    rewrite(folder, **{"value.w": torch.ones(2)})
    for name in ("inspect", "count"):
        refused = command(name, folder)
        assert refused.code == 3
        assert "--ignore-tensor NAME" in refused.err
        assert command(name, folder, "--ignore-tensor", "value.*").code == 0
    assert unembed.count(folder, ignore_tensors=["value.w"]).parameters > 0
    with pytest.raises(UsageError, match="ignore_tensors is the text"):
        unembed.count(folder, ignore_tensors="value.w")
    wrong = command("count", "gpt2", "--ignore-tensor", "value.*")
    assert wrong.code == 2
    assert "is our own, so none of its tensors is surplus" in wrong.err
    assert command("inspect", "gpt2", "--ignore-tensor", "value.*").code == 2


def test_a_model_that_gguf_cannot_say_is_named_with_the_way_that_is_left(folder, tmp_path):
    configured(folder, activation_function="gelu")
    refused = command("convert", folder, tmp_path / "m.gguf", "--to", "gguf")
    assert refused.code == 3, refused
    assert f"error: {folder.name}: no GGUF architecture" in refused.err
    assert "embedding.position would be absent, not Learned" in refused.err
    assert "Write it with --to hf, or --to native, which says everything." in refused.err
