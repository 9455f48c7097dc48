"""What files say and hold of their tie, in every format: the verdict, its agreement with loading, and the repairs.

Files are written by hand from the families' rules, so that flag and tensors can disagree; the oracle loads what can be loaded
and nudges it. A01 of the bug reports. The next file to read is test_gguf.py.
"""

import json

import pytest
import torch

import unembed
from oracles import nudge
from oracles.specs import base, changed
from parity import PARITIES
from parity.tiny import model_of
from tying.folders import EMBED, GPT2, HEAD, LLAMA, broken, folder, near, other, run_of, weights_of
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.checkpoints.run.native import WEIGHTS
from unembed.errors import CheckpointError

ONE = f"Tied: the file holds one table, {EMBED}"
DRIFT = "and will drift apart from it with the first training step"

CASES = {
    "none": ({"tied": True, "flag": True}, True, "one_table", ONE, ()),
    "none, two tables": (
        {"tied": False, "flag": False},
        False,
        "two_tables",
        f"Not tied: the file holds two tables, {EMBED} and {HEAD}, which differ by 1.3 of their size",
        (),
    ),
    "the flag says tied, the head is another": (
        {"tied": True, "flag": True, "head": other},
        False,
        "two_tables",
        f"Not tied: the file holds two tables, {EMBED} and {HEAD}, which differ by 2.6 of their size, although the "
        "config says tied",
        ("config",),
    ),
    "the flag says tied, the head was trained on": (
        {"tied": True, "flag": True, "head": near},
        False,
        "two_tables",
        f"Not tied: the file holds two tables, {EMBED} and {HEAD}, which differ by 0.023 of their size, although the config "
        "says tied",
        ("config",),
    ),
    "the default says tied, the head is another": (
        {"tied": True, "flag": ..., "head": other},
        False,
        "two_tables",
        f"Not tied: the file holds two tables, {EMBED} and {HEAD}, which differ by 2.6 of their size, although gpt2's default "
        "(the config is silent) says tied",
        ("config",),
    ),
    "the flag says untied, the head is missing": (
        {"tied": True, "flag": False},
        None,
        "head_missing",
        f"Broken: the config says untied, and the file holds no {HEAD}",
        ("file",),
    ),
    "none, by default": ({"tied": True, "flag": ...}, True, "one_table", ONE, ()),
    "an equal copy, the flag off": (
        {"tied": True, "flag": False, "head": torch.clone},
        False,
        "equal_twice_untied",
        f"Not tied: {HEAD} is an equal copy of {EMBED} in the file {DRIFT}",
        (),
    ),
    "written twice, the flag on": (
        {"tied": True, "flag": True, "head": torch.clone},
        True,
        "equal_twice",
        f"Tied: the file holds one table twice, equal, as {EMBED} and {HEAD}",
        (),
    ),
    "the head in another type": (
        {"tied": True, "flag": True, "head": lambda t: t.to(torch.bfloat16)},
        False,
        "cast_twice",
        f"Not tied: {HEAD} is a copy of {EMBED} in another type, although the config says tied",
        ("config",),
    ),
    "the table is missing": (
        {"tied": True, "flag": True, "drop": (EMBED,), "head": torch.clone},
        None,
        "table_missing",
        f"Broken: the file holds {HEAD}, which scores, and no {EMBED}, which embeds",
        ("file",),
    ),
    "both are missing": (
        {"tied": True, "flag": True, "drop": (EMBED,)},
        None,
        "both_missing",
        f"Broken: the file holds neither {EMBED} nor {HEAD}",
        ("file",),
    ),
    "the head has more rows": (
        {"tied": True, "flag": True, "head": lambda t: torch.cat([t, t[:3]])},
        None,
        "two_shapes",
        "Broken: ",
        ("config", "file", "load"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_on_a_folder_is_right_and_a_nudge_agrees(name, tmp_path):
    options, tied, kind, sentence, faults = CASES[name]
    place = folder(tmp_path, **options)
    found = unembed.tying.examine(place)
    assert (found.values["tied"], found.values["kind"]) == (tied, kind)
    assert found.values["verdict"].startswith(sentence)
    assert broken(found) == faults
    if tied is None:
        with pytest.raises(CheckpointError):
            unembed.load(place)
    else:
        model = unembed.load(place)
        assert nudge.moves(model, model.embed.table) is tied


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
def test_every_family_is_examined(parity, tied, tmp_path):
    found = unembed.tying.examine(folder(tmp_path, parity, tied=tied, flag=tied))
    assert found.values["tied"] is tied
    assert broken(found) == ()
    lying = tmp_path / "lying"
    lying.mkdir()
    refused = unembed.tying.examine(folder(lying, parity, tied=True, flag=False))
    assert refused.values["kind"] == "head_missing"
    assert broken(refused) == ("file",)


def test_a_default_that_contradicts_the_file_stops_and_is_told(tmp_path):
    """A01c where the flag is absent: llama's default is untied, and the file holds one table."""
    found = unembed.tying.examine(folder(tmp_path, LLAMA, tied=True, flag=...))
    assert found.values["verdict"] == (
        "Broken: llama's default (the config is silent) says untied, and the file holds no lm_head.weight."
    )


def test_runs_and_checkpoints_of_our_own(tmp_path):
    plain = base()
    weights = weights_of(plain)
    moments = {f"{name}.exp_avg": torch.zeros_like(one) for name, one in weights.items()}
    tied = run_of(tmp_path / "tied", plain, weights, moments)
    found = unembed.tying.examine(tied)
    assert found.values["verdict"] == "Tied: the file holds one table, embed.table."
    assert broken(found) == ()
    (told,) = [one["detail"] for one in found.values["checks"] if one["name"] == "optimizer"]
    assert told == "the saved optimizer has moments for embed.table"
    assert unembed.tying.examine(tied / "checkpoints" / "step-000003").values == found.values
    weights_file = tied / "checkpoints" / "step-000003" / WEIGHTS
    assert unembed.tying.examine(weights_file).values["tied"] is True

    missing = run_of(tmp_path / "missing", changed(plain, head__type="untied"), weights)
    found = unembed.tying.examine(missing)
    assert found.values["verdict"] == "Broken: run.json says untied, and the file holds no head.table."
    both = run_of(tmp_path / "both", plain, weights | {"head.table": weights["embed.table"] + 1})
    found = unembed.tying.examine(both)
    assert found.values["kind"] == "two_tables"
    assert "although run.json says tied" in found.values["verdict"]
    assert broken(found) == ("config", "load")
    stale = moments | {"embed.table.exp_avg": torch.zeros(9, 12)}
    found = unembed.tying.examine(run_of(tmp_path / "stale", plain, weights, stale))
    told = "the saved optimizer's embed.table.exp_avg is [9, 12] float32, the table has 13 rows"
    assert found.values["verdict"] == f"Tied: the file holds one table, embed.table, but {told}."
    lost = {name: one for name, one in moments.items() if not name.startswith("embed.table")}
    found = unembed.tying.examine(run_of(tmp_path / "lost", plain, weights, lost))
    assert found.values["verdict"].endswith("but the saved optimizer has no moments for embed.table.")


def test_a_nanogpt_file_has_one_storage_under_two_names(tmp_path):
    """torch.save keeps the sharing; transformers' pytorch_model.bin too, whatever its config says."""
    place = folder(tmp_path, tied=True, flag=True)
    (place / "model.safetensors").unlink()
    model = model_of(GPT2, tied=True)
    state = dict(to_theirs(GPT2.ours().rules(model.spec), dict(model.named_parameters())))
    torch.save(state | {HEAD: state[EMBED]}, place / "pytorch_model.bin")
    found = unembed.tying.examine(place)
    assert found.values["kind"] == "one_storage"
    assert found.values["verdict"] == f"Tied: the file holds one storage under two names, {EMBED} and {HEAD}."
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    found = unembed.tying.examine(place)
    assert (found.values["tied"], found.values["kind"]) == (False, "one_storage_untied")
    assert "they are loaded as equal copies" in found.values["verdict"]
    loaded = unembed.load(place)
    assert nudge.moves(loaded, loaded.embed.table) is False
    assert torch.equal(loaded.embed.table, loaded.head.table)


def test_presets_are_told_by_their_shape_however_large():
    found = unembed.tying.examine("gpt3-175b")
    assert found.values["verdict"] == "Tied: the preset has one table, embed.table."
    found = unembed.tying.examine("llama-3-8b")
    assert (found.values["tied"], found.values["kind"]) == (False, "preset_untied")


def test_a_folder_that_transformers_reads_is_written_by_write_huggingface_too(tmp_path):
    write_huggingface(model_of(GPT2, tied=True), tmp_path, family=GPT2.ours())
    assert unembed.tying.examine(tmp_path).values["verdict"] == f"{ONE}."
