"""`unembed tie`: its keys, its exit codes, its repairs; and `unembed.tying.examine` where it is asked for the impossible.

The next file to read is test_sharded.py.
"""

import json
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from torch import nn

import unembed
from commands import environment
from commands import run as command
from oracles.specs import base, changed
from parity import BY_NAME
from small import small_model
from tying.folders import folder, llama, near, other
from tying.models import Tiny, tied
from unembed.checkpoints.convert import write_model
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.cli import tie
from unembed.errors import CheckpointError, InputError, UsageError

KEYS = {"tied", "verdict", "kind", "repair", "checks"}


@pytest.fixture
def source(tmp_path):
    place = tmp_path / "source"
    place.mkdir()
    return place


def test_json_has_the_keys_of_the_contract_and_a_tied_model_is_fine(source):
    done = command("tie", folder(source, tied=True, flag=True), "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert set(done.json) == KEYS
    assert done.json["tied"] is True
    assert all(set(check) == {"name", "status", "detail"} for check in done.json["checks"])
    assert {check["status"] for check in done.json["checks"]} == {"ok"}
    names = [check["name"] for check in done.json["checks"]]
    assert names == ["config", "file", "storage", "gradient", "export"]
    assert done.json == json.loads(json.dumps(unembed.tying.examine(source).to_dict()))


def test_equal_copies_with_the_flag_off_are_false_and_exit_0_and_the_verdict_says_copy(source):
    done = command("tie", folder(source, tied=True, flag=False, head=torch.clone), "--format", "json")
    assert done.code == 0
    assert done.json["tied"] is False
    assert "is an equal copy of" in done.json["verdict"]


@pytest.mark.parametrize(
    ("options", "tied_value", "told"),
    [
        ({"tied": True, "flag": False}, None, "1 of 2 checks say broken: file"),
        ({"tied": True, "flag": True, "head": other}, False, "1 of 5 checks say broken: config"),
    ],
)
def test_what_is_broken_is_printed_all_the_same_and_exits_3(source, options, tied_value, told):
    path = folder(source, **options)
    done = command("tie", path, "--format", "json")
    assert done.code == 3
    assert done.json["tied"] is tied_value
    assert told in done.err
    assert done.err.count("\n") <= 6
    assert f"unembed tie {shlex.quote(str(path))} --repair" in done.json["repair"]


def test_people_read_a_table_and_scripts_the_checks_as_rows(source):
    folder(source, tied=True, flag=True)
    done = command("tie", source)
    assert "verdict                  Tied: the file holds one table, transformer.wte.weight." in done.out
    assert "\nchecks\n" in done.out
    rows = command("tie", source, "--format", "csv").out.splitlines()
    assert rows[0] == "name,status,detail"
    assert rows[1].startswith("config,ok,")


@pytest.mark.parametrize(("suffix", "to"), [(".gguf", "gguf"), ("", "native")])
def test_every_format_and_the_preset(source, tmp_path, suffix, to):
    place = tmp_path / f"out{suffix}"
    if to == "gguf":
        gguf_export.write(llama(tied=True), place, name="m")
    else:
        write_model(llama(tied=True), place, to=to, source="test")
    done = command("tie", place, "--format", "json")
    assert (done.code, done.json["tied"]) == (0, True)
    assert command("tie", "gpt2", "--format", "json").json["tied"] is True
    assert command("tie", "llama-3-8b", "--format", "json").json["tied"] is False


def test_files_of_nanogpt_and_microgpt(tmp_path):
    plain = changed(
        base(),
        embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
        block__attention__n_heads=2,
        block__attention__n_kv_heads=2,
        block__attention__biases=["q", "k", "v", "o"],
        block__attention__score_scale=6**-0.5,
        block__mlp__d_mlp=48,
    )
    model = small_model(plain, dtype=torch.float32)
    family = BY_NAME["gpt2"].ours()
    stored = to_theirs(family.rules(model.spec), dict(model.named_parameters()))
    spec = model.spec
    args = {
        "n_layer": spec.n_layers,
        "n_head": spec.blocks[0].attention.n_heads,
        "n_embd": spec.embedding.d_model,
        "block_size": spec.context_length,
        "bias": True,
        "vocab_size": spec.embedding.vocab_size,
    }
    turned = {
        name: one.T.contiguous() if one.ndim == 2 and "wte" not in name and "wpe" not in name else one.clone()
        for name, one in stored.items()
    }
    head = {"lm_head.weight": turned["transformer.wte.weight"]}
    torch.save({"model": turned | head, "model_args": args}, tmp_path / "ckpt.pt")
    done = command("tie", tmp_path / "ckpt.pt", "--format", "json")
    assert (done.code, done.json["tied"], done.json["kind"]) == (0, True, "one_storage"), done
    lying = {"lm_head.weight": near(turned["transformer.wte.weight"])}
    torch.save({"model": turned | lying, "model_args": args}, tmp_path / "ckpt.pt")
    done = command("tie", tmp_path / "ckpt.pt", "--format", "json")
    assert (done.code, done.json["tied"], done.json["kind"]) == (3, False, "two_tables")
    assert "although nanoGPT's rule says tied" in done.json["verdict"]
    n = unembed.count("microgpt").parameters
    numbers = np.random.default_rng(0).standard_normal(n).astype("<f4").tobytes()
    (tmp_path / "micro.bin").write_bytes(struct.pack("<II", 1, n) + numbers + bytes(8 * n))
    done = command("tie", tmp_path / "micro.bin", "--like", "microgpt", "--format", "json")
    assert (done.code, done.json["tied"]) == (0, False), done


def test_a_repair_is_written_beside_and_examined(source, tmp_path):
    folder(source, tied=True, flag=False)
    done = command("tie", source, "--repair", "tie", "--out", tmp_path / "out", "--format", "json")
    assert done.code == 0, done
    assert done.json["tied"] is True
    assert done.json["written"] == str((tmp_path / "out").resolve())
    assert done.json["repaired"] == "transformer.wte.weight is used twice; nothing was dropped"
    assert "nothing was dropped" in done.err
    assert set(done.json) == KEYS | {"written", "repaired"}


def test_tables_that_differ_need_keep(source, tmp_path):
    folder(source, tied=False, flag=False)
    done = command("tie", source, "--repair", "tie", "--out", tmp_path / "out")
    assert done.code == 3
    assert "Say which one stays: --keep embed or --keep head." in done.err
    done = command("tie", source, "--repair", "tie", "--keep", "head", "--out", tmp_path / "out", "--format", "json")
    assert (done.code, done.json["tied"]) == (0, True)


ODD = {
    "whole numbers": lambda table: table.to(torch.int8),
    "truth values": lambda table: table > 0,
    "one axis": torch.flatten,
    "three axes": lambda table: table[None],
    "no row": lambda table: table[:0],
    "one number": lambda table: table[0, 0],
    "no number": lambda table: table * float("nan"),
    "no end": lambda table: table + float("inf"),
    "turned": lambda table: table.T,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_heads_are_bad_input_and_no_fault_of_ours(name, source, tmp_path):
    folder(source, tied=True, flag=True, head=lambda table: ODD[name](table).clone())
    done = command("tie", source, "--format", "json")
    assert done.code == 3, done
    assert "say broken" in done.err
    repaired = command("tie", source, "--repair", "tie", "--keep", "head", "--out", tmp_path / "out")
    assert repaired.code == (0 if name in ("no number", "no end") else 3), repaired
    assert (tmp_path / "out").exists() == (repaired.code == 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--out", "x"), "--out and --keep belong to --repair; say --repair tie or --repair untie"),
        (("--keep", "head"), "--out and --keep belong to --repair"),
        (("--repair", "tie"), "--repair tie writes a model; give the place with --out DIR"),
        (("--repair", "glue"), "'glue' is not one of 'tie', 'untie'"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(source, arguments, told):
    done = command("tie", folder(source, tied=True, flag=True), *arguments)
    assert done.code == 2
    assert told in done.err


def test_what_is_no_model_is_refused_as_everywhere(tmp_path):
    assert command("tie", tmp_path / "nothing").code == 3
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text("{")
    done = command("tie", tmp_path / "cut")
    assert done.code == 3
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_module_is_told():
    with pytest.raises(InputError, match=r"got a int; give a torch\.nn\.Module, or the name of a MODEL"):
        unembed.tying.examine(3)


def test_what_cannot_be_examined_is_told():
    with pytest.raises(InputError, match="Linear: no matrix of it embeds"):
        unembed.tying.examine(nn.Linear(2, 3))
    with pytest.raises(
        InputError, match=r"embed is 'wt.weight', which is no matrix of the model. Did you mean wte.weight"
    ):
        unembed.tying.examine(Tiny(), embed="wt.weight")
    with pytest.raises(InputError, match="head was given without embed"):
        unembed.tying.examine(Tiny(), head="lm_head")
    with pytest.raises(InputError, match="embed is a Tanh, which has no weight"):
        unembed.tying.examine(Tiny(), embed=nn.Tanh())
    with pytest.raises(UsageError, match="belong to a module in memory"):
        unembed.tying.examine("gpt2", torch.optim.SGD(tied().parameters()))
    with pytest.raises(UsageError, match="file names a preset, which holds no numbers"):
        unembed.tying.examine(tied(), file="gpt2")
    with pytest.raises(CheckpointError):
        unembed.tying.examine("no-such-model")


def test_examine_is_there_without_an_import_of_its_folder():
    code = "import unembed; print(unembed.tying.examine('gpt2').values['tied'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True, text=True)
    assert done.stdout == "True\n"


def test_a_result_shows_itself():
    found = unembed.tying.examine(tied())
    assert "verdict: Tied: one parameter" in repr(found)
    assert "Tied: one parameter" in found._repr_html_()


@pytest.mark.parametrize(
    ("sharing", "how", "kind"),
    [("mapped", "through a map", "mapped"), ("pseudo_inverse", "by pseudo-inverse", "pseudo_inverse")],
)
def test_a_run_that_is_shared_otherwise_is_told_so_and_names_its_way_out(sharing, how, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("".join(map(chr, range(33, 126))) * 20, encoding="utf-8")
    small = ("steps=1", "batch_size=2", "context_length=8", f"sharing={sharing}")
    line = [part for one in small for part in ("--set", one)]
    done = command("train", "t.txt", "--recipe", "shared-table", "--out", "run", *line)
    assert done.code == 0, done
    found = command("tie", "run", "--format", "json").json
    assert f"run.json says tied {how}" in [check["detail"] for check in found["checks"]]
    assert "unembed tie run --repair untie --out DIR writes two tables" in found["repair"]
    for to in ("hf", "gguf"):
        refused = command("convert", "run", "out", "--to", to)
        assert refused.code == 3
        assert f"run: its head is {kind}, which no {to} file can say" in refused.err
        assert "First: unembed tie run --repair untie --out DIR, then convert DIR." in refused.err
    assert command("tie", "run", "--repair", "untie", "--out", "plain").code == 0
    assert command("convert", "plain", "out").code == 0


def test_the_repair_is_a_command_to_copy():
    with click.Context(tie.command) as context:
        assert tie._same("-m y", None) == "unembed tie './-m y'"
        context.meta["unembed.ignored_tensors"] = ("foo.*",)
        assert tie._same("exported", None) == "unembed tie exported --ignore-tensor 'foo.*'"
        context.meta["unembed.ignored_tensors"] = ()
        assert tie._same("it's", "mini-gpt") == """unembed tie 'it'"'"'s' --like mini-gpt"""
