"""What is loaded can be written back: every bit of it, into a folder that transformers opens without a word.

One chain serves both directions: theirs -> ours -> theirs -> ours. At each arrow nothing may change.
"""

import contextlib
import json
import logging
import warnings

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from parity import BY_NAME, PARITIES
from parity.harness import exactly, quiet_transformers
from parity.tiny import model_of
from unembed.checkpoints.families.llama import FAMILY as LLAMA
from unembed.checkpoints.families.neox import FAMILY as NEOX
from unembed.checkpoints.foreign.export import family_for, split, why_not, write_huggingface
from unembed.checkpoints.foreign.huggingface import INDEX, open_folder, read_weights
from unembed.checkpoints.foreign.translate import describe, translate
from unembed.checkpoints.load import load
from unembed.checkpoints.rules.tensors import StackedByHead, Transposed
from unembed.errors import SpecError
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import RmsNorm

QUICK = ("base", "as published")
CASES = [
    pytest.param(parity, case, id=f"{parity.family}: {case}", marks=() if case in QUICK else pytest.mark.slow)
    for parity in PARITIES
    for case in parity.all_cases
]
EACH = pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)


def parameters(model):
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def assert_same_bits(a, b):
    assert set(a) == set(b)
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@contextlib.contextmanager
def heard():
    """The lines that transformers logs at warning or above, and Python's own warnings."""
    transformers = quiet_transformers()
    lines = []

    class Listener(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    listener, logger = Listener(level=logging.WARNING), logging.getLogger("transformers")
    transformers.utils.logging.warning_once.cache_clear()
    transformers.logging.set_verbosity_warning()
    logger.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield lines
        lines += [str(one.message) for one in caught]
    finally:
        logger.removeHandler(listener)
        transformers.logging.set_verbosity_error()


def open_in_transformers(parity, folder):
    """transformers' model of an exported folder. Fails where it has anything to say about it."""
    with exactly(torch.float32), heard() as lines:
        model, info = getattr(quiet_transformers(), parity.model).from_pretrained(
            folder, dtype="auto", output_loading_info=True
        )
    assert {key: value for key, value in info.items() if value} == {}
    assert lines == []
    return model


@pytest.mark.parametrize(("parity", "case"), CASES)
def test_property_there_and_back_changes_nothing(parity, case, reference, tmp_path):
    theirs = reference(parity, case, torch.float32)
    ours = load(theirs.folder)
    exported, again = tmp_path / "exported", tmp_path / "again"
    exported.mkdir()
    family = family_for(ours.spec, prefers=parity.family)
    assert family.name == parity.family
    write_huggingface(ours, exported, family=family)
    assert_same_bits(load_file(exported / "model.safetensors"), load_file(theirs.folder / "model.safetensors"))
    model = open_in_transformers(parity, exported)
    assert_same_bits(model.state_dict(), theirs.model.state_dict())
    model.save_pretrained(again)
    back = load(again)
    assert back.spec == ours.spec
    assert back.load_report.tied == ours.load_report.tied
    assert_same_bits(parameters(back), parameters(ours))


@EACH
def test_export_in_shards_with_an_index(parity, reference, tmp_path):
    ours = load(reference(parity, "base", torch.float32).folder)
    write_huggingface(ours, tmp_path, family=parity.ours(), shard_bytes=4000)
    index = json.loads((tmp_path / INDEX).read_text())
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    stored = read_weights(tmp_path)
    assert set(index["weight_map"]) == set(stored)
    assert index["metadata"]["total_size"] == sum(one.numel() * 4 for one in stored.values())
    assert all(
        sum(t.nbytes for t in load_file(tmp_path / f).values()) <= 4000 or len(load_file(tmp_path / f)) == 1
        for f in files
    )
    assert_same_bits(parameters(load(tmp_path)), parameters(ours))
    open_in_transformers(parity, tmp_path)


@EACH
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_files(parity, half, reference, tmp_path):
    theirs = reference(parity, "base", torch.float32)
    stored = {name: tensor.to(half) for name, tensor in load_file(theirs.folder / "model.safetensors").items()}
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((theirs.folder / "config.json").read_bytes())
    kept, widened = load(tmp_path, dtype="file"), load(tmp_path)
    assert {parameter.dtype for parameter in kept.parameters()} == {half}
    assert {parameter.dtype for parameter in widened.parameters()} == {torch.float32}
    for name, parameter in parameters(widened).items():
        assert torch.equal(parameter, parameters(kept)[name].float()), name
    out = tmp_path / "out"
    out.mkdir()
    write_huggingface(kept, out, family=parity.ours())
    assert_same_bits(load_file(out / "model.safetensors"), stored)
    assert json.loads((out / "config.json").read_text())["dtype"] == str(half)[6:]
    model = open_in_transformers(parity, out)
    assert {parameter.dtype for parameter in model.parameters()} == {half}


def with_types(model, norms, rest):
    """The model with its norms in one type and all else in another."""
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(norms if "norm" in name else rest)
    return model


TYPES = {
    "float32": (torch.float32, torch.bfloat16),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float64": (torch.float64, torch.float32),
}


@pytest.mark.parametrize(("declared", "types"), [*TYPES.items(), ("float32", (torch.bfloat16, torch.float16))])
def test_the_declared_type_holds_all_that_is_written(declared, types, tmp_path):
    """transformers casts every tensor to the type that config.json names, so it must be the widest needed."""
    write_huggingface(with_types(model_of(BY_NAME["llama"], tied=True), *types), tmp_path, family=LLAMA)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == declared
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == set(types)
    opened = open_in_transformers(BY_NAME["llama"], tmp_path).state_dict()
    assert all(torch.equal(opened[name].double(), tensor.double()) for name, tensor in stored.items())


@EACH
def test_loading_shares_the_mapped_file(parity, reference):
    """No second copy: every parameter is a view of the file's memory, but NeoX's q, k and v, whose rows are not adjacent."""
    source = open_folder(reference(parity, "base", torch.float32).folder)
    begins = {t.untyped_storage().data_ptr() for t in source.tensors.values()}
    copied = {name for name, p in parameters(translate(source)).items() if p.untyped_storage().data_ptr() not in begins}
    spec = describe(source).spec
    by_head = [rule for rule in parity.ours().rules(spec) if isinstance(rule, StackedByHead)]
    assert copied == {name for rule in by_head for name in rule.ours}
    assert bool(by_head) == (parity.family == "neox")
    assert any(isinstance(rule, Transposed) for rule in parity.ours().rules(spec)) == (parity.family == "gpt2")


EXPORTED = {
    "gpt2": "gpt2",
    "llama-3.2-1b": "llama",
    "mistral-7b-v0.1": "mistral",
    "qwen1.5-0.5b": "qwen",
    "qwen2.5-7b": "qwen",
    "qwen3-0.6b": "qwen3",
    "gemma-2b": "gemma",
    "gemma-2-2b": "gemma2",
    "gemma-2-27b": "gemma2",
    "gemma-3-270m": "gemma3",
    "gemma-3-27b": "gemma3",
    "pythia-70m": "neox",
    "gpt-neox-20b": "neox",
    "bert-base-uncased": "bert",
    "roberta-base": "roberta",
}


@pytest.mark.parametrize(("name", "family"), EXPORTED.items())
def test_presets_are_exported_by_their_own_family(name, family):
    assert family_for(preset(name).spec).name == family


def why_refused(name):
    try:
        family_for(preset(name).spec)
    except SpecError as error:
        return str(error)
    return None


def test_every_preset_is_exported_or_refused_with_the_difference():
    refused = {name: why for name in PRESETS if (why := why_refused(name)) is not None}
    assert {"palm-8b", "microgpt", "esm2-8m"} <= set(refused)
    assert not set(refused) & set(EXPORTED)
    for why in refused.values():
        assert "no family of transformers describes this model exactly: " in why
        assert len(why.splitlines()) <= 6


def test_a_family_says_what_it_cannot_say_of_a_model():
    llama, gpt2 = preset("llama-2-7b").spec, preset("gpt2").spec
    assert why_not(LLAMA, llama) is None
    assert why_not(NEOX, llama) == "blocks.0.mlp would be PlainMlp, not GatedMlp"
    assert "rope_theta is missing" in why_not(LLAMA, gpt2)
    changed = msgspec.structs.replace(llama, final_norm=RmsNorm(eps=1e-3, gain="plain"))
    assert why_not(LLAMA, changed) == "final_norm.eps would be 1e-05, not 0.001"


def test_split_fills_files_in_order_and_gives_large_tensors_their_own():
    tensors = {name: torch.zeros(n) for name, n in {"a": 3, "b": 3, "large": 100, "c": 1, "d": 1}.items()}
    assert [list(part) for part in split(tensors, 24)] == [["a", "b"], ["large"], ["c", "d"]]
