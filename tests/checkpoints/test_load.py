"""Whatever names a MODEL: runs, checkpoints in them, presets; and nothing that does not fit is loaded in silence."""

import math

import msgspec
import pytest
import torch

from oracles.specs import base, changed
from small import run_config, small_model, trainer_of
from unembed.checkpoints.load import CONFIG_KEY, load, model_from_tensors
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.state import clean, model_tensors
from unembed.errors import CheckpointError, UnsafeError
from unembed.model.check import from_plain
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.characters import CharacterTokenizer

IDS = torch.tensor([[1, 2, 3, 4]])


@pytest.fixture
def run(tmp_path):
    """A run of ten steps with checkpoints 0, 5 and 10, and a tokenizer; and its trained model."""
    config = run_config()
    with RunFolder.create(tmp_path / "run", description={CONFIG_KEY: msgspec.to_builtins(config)}) as folder:
        tokenizer_files.save(CharacterTokenizer.from_text("abcdefghijklm"), folder.path / "tokenizer.json")
        trainer = trainer_of(config, run=folder)
        trainer.run()
    return folder.path, trainer.model


def test_run_folder_gives_its_newest_weights_spec_and_tokenizer(run):
    path, trained = run
    model = load(path)
    assert model.spec == trained.spec
    assert torch.equal(model(IDS), trained(IDS))
    assert model.tokenizer.vocab_size == 13
    assert torch.equal(load(str(path))(IDS), trained(IDS))


def test_checkpoint_folder_and_step_name_the_same_weights(run, monkeypatch):
    path, trained = run
    five = load(path, step=5)(IDS)
    folder = path / "checkpoints" / "step-000005"
    assert torch.equal(load(folder)(IDS), five)
    assert not torch.equal(five, trained(IDS))
    monkeypatch.chdir(folder.parent)
    assert torch.equal(load("step-000005")(IDS), five)
    monkeypatch.chdir(path)
    assert torch.equal(load(".")(IDS), trained(IDS))


def test_tied_table_is_one_storage_after_loading(run):
    """A01b, A02a: writing into the table changes both of its uses; the file holds one table."""
    path, _ = run
    model = load(path)
    assert model.unembed_table().data_ptr() == model.embed.table.data_ptr()
    with torch.no_grad():
        model.embed.table[0, 0] += 1
    assert model.unembed_table()[0, 0] == model.embed.table[0, 0]
    assert [name for name in model.state_dict() if "table" in name] == ["embed.table"]


def test_loaded_model_can_be_trained_on_and_does_not_touch_the_file(run):
    path, trained = run
    model = load(path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(load(path)(IDS), trained(IDS))


def test_preset_has_random_weights_that_are_always_the_same():
    first, again = load("mini-gpt"), load("mini-gpt")
    assert torch.equal(first.embed.table, again.embed.table)
    assert first.tokenizer is None


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."])
def test_names_lose_what_compiling_and_wrapping_put_before_them(prefix):
    """A31a, in either order."""
    assert clean(prefix + "blocks.0.mlp.up.weight") == "blocks.0.mlp.up.weight"
    assert clean("blocks.0._orig_mod.mlp.up.weight") == "blocks.0.mlp.up.weight"


@pytest.mark.usefixtures("unchecked")
def test_compiled_model_is_saved_under_clean_names():
    model = small_model()
    whole = torch.compile(model, backend="eager")
    wrapped = torch.nn.Sequential()
    wrapped.module = whole
    assert any("_orig_mod" in name for name, _ in wrapped.named_parameters())
    assert list(model_tensors(wrapped)) == list(model_tensors(whole)) == list(model_tensors(model))


def test_nothing_is_missing_left_over_or_of_another_shape():
    """A31b: names and counts are listed, and no parameter stays at a random value."""
    spec = from_plain(base())
    weights = model_tensors(small_model())
    assert torch.equal(model_from_tensors(spec, weights, where="here")(IDS), small_model()(IDS))
    three = from_plain(base(n_layers=3))
    with pytest.raises(
        CheckpointError, match=r"here: 12 parameters have no tensor \['blocks.2.attn.k_proj.weight'.*and 0 tensors"
    ):
        model_from_tensors(three, weights, where="here")
    one = from_plain(base(n_layers=1))
    with pytest.raises(
        CheckpointError, match=r"0 parameters have no tensor .* 12 tensors have no parameter \['blocks.1"
    ):
        model_from_tensors(one, weights, where="here")
    untied = from_plain(changed(base(), head__type="untied"))
    with pytest.raises(CheckpointError, match=r"1 parameters have no tensor \['head.table'\]"):  # A01c: no random head
        model_from_tensors(untied, weights, where="here")
    wide = from_plain(changed(base(), embedding__vocab_size=14))
    with pytest.raises(CheckpointError, match=r"embed.table has shape \[13, 12\], the spec implies \[14, 12\]"):
        model_from_tensors(wide, weights, where="here")


def test_what_is_no_model_is_refused_with_a_way_on(run, tmp_path):
    path, _ = run
    with pytest.raises(CheckpointError, match=r"no complete checkpoint of step 3; there are \[0, 5, 10\]"):
        load(path, step=3)
    with pytest.raises(
        CheckpointError, match=r"there is no such file or folder, and no preset of that name. Did you mean mini-gpt"
    ):
        load("mini-gtp")
    with pytest.raises(CheckpointError, match=r"Did you mean .*run"):
        load(tmp_path / "rum")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty: holds no run.json and no config.json, so it is no MODEL"):
        load(tmp_path / "empty")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(CheckpointError, match="this kind of file is no model"):
        load(tmp_path / "text.txt")
    RunFolder.create(tmp_path / "young", description={}).close()
    with pytest.raises(CheckpointError, match=r"no checkpoint is complete. +Train on with --resume"):
        load(tmp_path / "young")
    for step in (0, 5, 10):
        file = path / "checkpoints" / f"step-{step:06d}" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError, match=r"no checkpoint is complete. Train on with --resume.\nstep-000010 is passed over: "
    ):
        load(path)


def test_run_without_a_model_in_its_description_is_refused(tmp_path):
    with RunFolder.create(tmp_path / "run", description={"config": {}}) as run:
        trainer_of(run_config(steps=1), run=run).run()
    with pytest.raises(CheckpointError, match=r"holds no model under config.model, as training writes it"):
        load(tmp_path / "run")


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"weights": torch.tensor(math.pi)}, path)
    with pytest.raises((UnsafeError, CheckpointError)):
        load(path)
