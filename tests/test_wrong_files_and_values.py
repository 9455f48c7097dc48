"""Files and values that nobody means to give, each with the sentence that says which it is.

Next to read: test_python_misuse.py, the same for arguments of another kind.
"""

import json
import os

import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.families import FAMILIES
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.inspect import inspect
from unembed.checkpoints.load import load
from unembed.cli.prompts import read_prompts
from unembed.errors import CheckpointError, InputError, UsageError
from unembed.recipes.small import check_minutes
from unembed.runtime import choose_device

ROTARY = {"type": "rotary", "theta": 10_000.0, "pairing": "half", "fraction": 1.0, "scaling": None}
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
COMMON = changed(
    base(),
    context_length=96,
    embedding__vocab_size=304,
    embedding__d_model=64,
    block__attention__n_heads=4,
    block__attention__d_head=16,
    block__attention__score_scale=16**-0.5,
)
LLAMA = changed(
    COMMON,
    block__attention__position=ROTARY,
    block__attention__n_kv_heads=2,
    block__norm=RMS,
    block__mlp={"type": "gated", "d_mlp": 96, "activation": "silu", "has_bias": False},
    final_norm=RMS,
)
LONGER = "text_is_longer_than_the_context"


def test_a_gguf_file_is_known_by_its_first_bytes(tmp_path):
    model = small_model(LLAMA, dtype=torch.float32)
    for name in ("model", "model.bin", "model.safetensors", "model.gguf"):
        gguf_export.write(model, tmp_path / name, name="m")
        again = unembed.load(tmp_path / name)
        assert again.load_report.format == "gguf"
        assert torch.equal(again.embed.table, model.embed.table)
        assert inspect(tmp_path / name).format == "gguf"
        assert unembed.count(tmp_path / name).parameters == sum(one.numel() for one in model.parameters())


def test_an_empty_file_is_called_empty_before_a_config_is_asked_for(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match=r"model.safetensors: is empty \(0 bytes\)"):
        load(file)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "config.json: is a folder, expected the file that describes the model"),
        (os.mkfifo, "config.json: is no regular file but a pipe"),
        (lambda path: path.symlink_to("nowhere"), "config.json: is a link to nowhere, where nothing is"),
        (lambda path: path.write_text('{"model_type": ["llama"]}'), r"model_type is \['llama'\], expected a word"),
    ],
)
def test_a_config_that_is_no_file_or_has_no_word_is_named(tmp_path, make, message):
    make(tmp_path / "config.json")
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    for model in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(CheckpointError, match=message):
            load(model)
        with pytest.raises(CheckpointError, match=message):
            unembed.count(model)
        assert inspect(model).problems


def test_the_file_that_a_key_belongs_into_exists():
    import unembed.checkpoints.families as families

    there = os.listdir(os.path.dirname(families.__file__))
    assert {family.file for family in FAMILIES} <= set(there)
    by_name = {family.name: family.file for family in FAMILIES}
    assert (by_name["gemma3"], by_name["qwen3"], by_name["llama"]) == ("gemma.py", "qwen.py", "llama.py")


def test_lens_notes_a_text_longer_than_the_context():
    model = unembed.load("mini-gpt")
    limit = model.spec.context_length
    assert LONGER in unembed.lens(model, ids=[1] * (limit + 1), statistics=["entropy"]).notes
    assert LONGER not in unembed.lens(model, ids=[1] * limit, statistics=["entropy"]).notes


def test_a_prompt_given_twice_in_one_line_is_refused(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a", "seed": 1}\n{"prompt": "a", "prompt": "b"}\n')
    with pytest.raises(InputError, match=r"line 2: not JSON \(the key 'prompt' is given twice\)"):
        read_prompts(str(file), 0)
    file.write_text(json.dumps({"prompt": "a", "seed": 1}) + "\n")
    assert read_prompts(str(file), 0) == [("a", 1)]


def test_minutes_that_are_none_and_devices_that_are_none_are_refused(tmp_path):
    for minutes in (float("nan"), float("inf"), 0, -1, "5", True):
        with pytest.raises(UsageError, match=r"setting minutes is .*; it must be a number above 0"):
            check_minutes(minutes)
    for device in ("tpu", "cuda0", "", "meta"):
        with pytest.raises(UsageError, match="is none of cpu, cuda, mps"):
            choose_device(device)
    assert choose_device("cpu") == "cpu"


def test_minutes_of_a_run_that_is_begun_already_are_refused(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 60)
    small = {"context_length": 8, "batch_size": 2, "steps": 1}
    run = unembed.train(tmp_path / "text.txt", recipe="nanogpt-cpu", out=tmp_path / "run", **small).run
    with pytest.raises(UsageError, match=r"setting minutes is nan; it must be a number above 0"):
        unembed.train(out=run, resume=True, minutes=float("nan"))
    with pytest.raises(UsageError, match=r"minutes can only be given when a run begins. Give --steps"):
        unembed.train(out=run, resume=True, minutes=7)


def test_like_is_refused_for_a_folder_that_says_its_shape(tmp_path):
    unembed.convert("mini-gpt", tmp_path / "hf")
    with pytest.raises(UsageError, match=r"says itself what shape it has; --like gpt2 is for a microGPT .bin"):
        load(tmp_path / "hf", like="gpt2")
    assert torch.isfinite(load(tmp_path / "hf").embed.table).all()
