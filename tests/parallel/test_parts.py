"""Checkpoints in parts: read as one model by everybody, taken up by any number of processes, and refused where damaged.

A group of two processes writes one, with PyTorch's own distributed checkpoints; the oracle of what it holds is what was in
memory then, gathered and written by NumPy. Damage is done to the files by hand.
"""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from checkpoints.faults import state_of
from parallel.ranks import Ranks
from small import run_config
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.intact import why_incomplete
from unembed.checkpoints.run.native import Checkpoint
from unembed.errors import CheckpointError
from unembed.training.parallel import Parallel

pytestmark = pytest.mark.slow
STEP = 3


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with Ranks(tmp_path_factory.mktemp("ranks")) as started:
        yield started


@pytest.fixture(scope="module")
def written(ranks, tmp_path_factory):
    """A run with one checkpoint of two processes, and what it must hold."""
    folder = tmp_path_factory.mktemp("written")
    ranks.call(2, "saved", {"run": str(folder / "run"), "out": str(folder / "memory.npz"), "steps": STEP})
    return folder / "run" / "checkpoints" / f"step-{STEP:06d}", arrays(folder / "memory.npz")


def arrays(path):
    with np.load(path) as found:
        return dict(found)


def same(found, expected):
    return set(found) == set(expected) and all(np.array_equal(found[name], expected[name]) for name in expected)


def test_parts_are_put_together_to_the_bit(written):
    folder, memory = written
    assert why_incomplete(folder) is None
    checkpoint = Checkpoint(folder, STEP)
    assert checkpoint.is_sharded
    found = {**checkpoint.weights(), **checkpoint.optimizer()}
    assert same({name: tensor.numpy() for name, tensor in found.items()}, memory)
    assert checkpoint.state["processes"] == 2
    assert checkpoint.weight_names() == set(checkpoint.weights())


def test_each_file_holds_about_half_and_nothing_is_a_pickle(written):
    folder = written[0]
    for name in ("model", "optimizer"):
        sizes = [sum(t.numel() for t in load_file(file).values()) for file in sorted((folder / name).iterdir())]
        assert len(sizes) == 2
        assert sizes[0] == pytest.approx(sum(sizes) / 2, rel=0.1)
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes == {".safetensors", ".json"}


@pytest.mark.parametrize(("n", "kind"), [(1, "none"), (2, "ddp"), (2, "fsdp"), (4, "fsdp")])
def test_any_number_of_processes_takes_it_up_bit_equal(ranks, written, tmp_path, n, kind):
    folder, memory = written
    out = tmp_path / "taken.npz"
    ranks.call(n, "taken_up", {"checkpoint": str(folder), "out": str(out), "step": STEP, "kind": kind})
    assert same(arrays(out), memory)


def test_a_whole_checkpoint_is_taken_up_in_parts_bit_equal(ranks, written, tmp_path):
    folder, memory = written
    there = Checkpoint(folder, STEP)
    with RunFolder.create(tmp_path / "run", description={}) as run:
        path = run.save_checkpoint(STEP, weights=there.weights(), optimizer=there.optimizer(), state=there.state)
    out = tmp_path / "taken.npz"
    ranks.call(2, "taken_up", {"checkpoint": str(path), "out": str(out), "step": STEP, "kind": "fsdp"})
    assert same(arrays(out), memory)


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / written[0].name)


def files(folder):
    return sorted((folder / "model").iterdir())


def test_a_file_that_lacks_has_changed_or_was_added_is_told(copy):
    first, second = files(copy)
    data = second.read_bytes()
    second.unlink()
    assert why_incomplete(copy) == f"model/{second.name} is missing"
    second.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert why_incomplete(copy) == f"model/{second.name} is not what was saved: its SHA-256 differs from the manifest's"
    second.write_bytes(data)
    shutil.copy(first, copy / "model" / "another.safetensors")
    assert why_incomplete(copy) == "model/another.safetensors is not in its manifest"


@pytest.mark.parametrize("name", ["../model.safetensors", "model/../x.safetensors", "model/x.pt", "/x/y.safetensors"])
def test_a_manifest_that_names_files_elsewhere_is_refused(copy, name):
    manifest = json.loads((copy / "MANIFEST.json").read_text())
    manifest["files"][name] = manifest["files"]["state.json"]
    (copy / "MANIFEST.json").write_text(json.dumps(manifest))
    assert why_incomplete(copy) == "its manifest does not list state.json and the shards of model and optimizer"


def rewritten(file, change):
    """A file of parts with other offsets, or other tensors."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        metadata = dict(opened.metadata())
    tensors = load_file(file)
    info = json.loads(metadata["DCP_SHARDING_INFO"])
    change(tensors, info)
    save_file(tensors, file, {**metadata, "DCP_SHARDING_INFO": json.dumps(info)})


def moved(to):
    def change(tensors, info):
        info["embed.table"]["saved_offsets"] = to

    return change


def without(tensors, info):
    del info["embed.table"]


def narrower(tensors, info):
    tensors["embed.table"] = tensors["embed.table"][:, :-1].contiguous()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved([8, 0]), r"model: row 7 of tensor 'embed\.table' is missing"),
        (moved([6, 0]), r"model: row 6 of tensor 'embed\.table' stands there twice"),
        (moved([7, 1]), r"begins at \[7, 1\]; expected a part that is cut between rows"),
        (moved([-1, 0]), r"begins at \[-1, 0\]; expected a part that is cut between rows"),
        (moved("7"), r"begins at 7; expected a part that is cut between rows"),
        (without, r"its DCP_SHARDING_INFO does not say where every tensor begins: 'embed\.table'"),
        (narrower, r"the parts of tensor 'embed\.table' do not fit together: F32 \[7, 12\] and F32 \[6, 11\]"),
    ],
)
def test_parts_that_do_not_make_a_whole_are_refused(copy, change, message):
    rewritten(files(copy)[1], change)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(copy, STEP).weights()


def test_the_tests_state_of_a_checkpoint_is_no_parts(tmp_path):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        path = run.save_checkpoint(1, **state_of(1))
    assert not Checkpoint(path, 1).is_sharded


def test_one_process_reads_it_whole_and_needs_no_group(written):
    weights, moments = Parallel().tensors_of(Checkpoint(written[0], STEP))
    assert weights["embed.table"].shape[0] == run_config().model.embedding.vocab_size
    assert moments["embed.table.exp_avg"].shape == weights["embed.table"].shape
