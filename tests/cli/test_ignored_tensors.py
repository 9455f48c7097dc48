"""--ignore-tensor: every command that opens a MODEL takes it, and opens with it what it refuses without."""

import json

import click
import pytest
import torch

from commands import run as command
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.families import gpt2
from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.cli.main import cli
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.characters import CharacterTokenizer

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
)
OPEN = {
    "sample": ["--prompt", "abc", "--tokens", "2"],
    "lens": ["abc"],
    "stream": ["abc"],
    "attention": ["abc"],
    "attribute": ["abc"],
    "verify": ["--claim", "counts"],
    "tie": ["--repair", "untie", "--out", "there"],
    "convert": ["there"],
}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "hf"
    place.mkdir()
    write_huggingface(small_model(GPT2, dtype=torch.float32), place, family=gpt2.FAMILY)
    tokenizer_files.save(CharacterTokenizer.from_text("abcdefghijklm"), place / "tokenizer.json")
    more = {"extra.one": torch.ones(2), "extra.two": torch.ones(2)}
    data = b"".join(encode_tensors(huggingface.read_weights(place) | more, label="m"))
    (place / "model.safetensors").write_bytes(data)
    return place


@pytest.mark.parametrize("name", OPEN)
def test_a_file_with_surplus_tensors_opens_once_they_are_named(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = command(name, folder, *OPEN[name])
    assert refused.code == 3, refused
    assert "--ignore-tensor NAME" in refused.err
    done = command(name, folder, *OPEN[name], "--ignore-tensor", "extra.*", "--format", "json")
    assert done.code == 0, done
    assert json.loads(done.out)


def test_every_name_may_be_given_by_itself_and_is_said(folder):
    done = command("sample", folder, *OPEN["sample"], "--ignore-tensor", "extra.one", "--ignore-tensor", "extra.two")
    assert done.code == 0, done
    assert "; 8 excused" in done.err  # six keys of the config with them
    one = command("sample", folder, *OPEN["sample"], "--ignore-tensor", "extra.one")
    assert "1 source tensor has no rule: 'extra.two' float32[2]" in one.err
    wrong = command("sample", folder, *OPEN["sample"], "--ignore-tensor", "extra.three")
    assert wrong.code == 3
    assert "'extra.three' was to be ignored, and matches none of the file's 30 tensors. Did you mean" in wrong.err
    needed = command("sample", folder, *OPEN["sample"], "--ignore-tensor", "transformer.ln_f.*")
    assert "the model needs them: the first is needed by final_norm." in needed.err


def test_whatever_takes_a_tokenizer_takes_it():
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    options = {name: {one for p in found.params for one in p.opts} for name, found in commands.items()}
    opening = {name for name, its in options.items() if {"--tokenizer", "--like"} <= its}
    assert opening >= {"sample", "lens", "convert", "verify", "patch", "tune-lens", "flow", "calibration"}
    assert [name for name in opening if "--ignore-tensor" not in options[name]] == []


def test_convert_says_what_was_left_out_wherever_it_tells_of_the_model(folder, tmp_path):
    done = command("convert", folder, tmp_path / "out", "--ignore-tensor", "extra.*", "--format", "json")
    assert "2 tensors left out: 'extra.one', 'extra.two'" in done.err
    assert done.json["left_out"] == ["extra.one", "extra.two"]
    assert "| left out | extra.one, extra.two |" in (tmp_path / "out" / "README.md").read_text()
    command("convert", folder, tmp_path / "run", "--to", "native", "--ignore-tensor", "extra.*")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["left_out"] == ["extra.one", "extra.two"]
    sampled = command("sample", folder, *OPEN["sample"], "--ignore-tensor", "extra.*")
    assert "of them 2 left out by request: 'extra.one', 'extra.two'" in sampled.err
