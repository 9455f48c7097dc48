"""PyTorch's own files: tensors come out as they went in; programs, lies and bombs are refused without being run (A33)."""

import io
import json
import os
import pickle
import threading
import zipfile

import numpy as np
import pytest
import torch

from checkpoints.test_pickles import Trap, archive_of
from unembed.checkpoints.foreign.huggingface import read_weights
from unembed.checkpoints.formats.torch_files import read_torch
from unembed.errors import CheckpointError, UnsafeError

MODEL_ARGS = {"n_layer": 2, "n_head": 2, "bias": False, "dropout": 0.0, "vocab_size": None}


def trained():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))).sum().backward()
    optimizer.step()
    return layer, optimizer


def test_a_nanogpt_checkpoint(tmp_path):
    layer, optimizer = trained()
    whole = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "model_args": MODEL_ARGS, "iter_num": 5}
    torch.save(
        whole | {"best_val_loss": torch.tensor(1.5), "config": {"out_dir": "out", "betas": [0.9, 0.95]}},
        tmp_path / "ckpt.pt",
    )
    found = read_torch(tmp_path / "ckpt.pt")
    assert found.others["model_args"] == MODEL_ARGS
    assert found.others["iter_num"] == 5
    assert list(found.tensors) == list(layer.state_dict())
    for name, tensor in layer.state_dict().items():
        assert torch.equal(found.tensors[name], tensor)
    before = (tmp_path / "ckpt.pt").read_bytes()
    found.tensors["linear1.weight"].zero_()
    assert (tmp_path / "ckpt.pt").read_bytes() == before


def test_state_dictionaries_of_every_kind(tmp_path):
    layer, _ = trained()
    table = torch.arange(12.0).reshape(3, 4)
    path = tmp_path / "pytorch_model.bin"
    for given in (
        layer.state_dict(),
        {"state_dict": dict(layer.named_parameters()), "epoch": 3},
        {"embed": table, "head": table, "part": table[1:], "turned": table.T, "none": table[:0], "one": table[0, 0]},
        {
            str(dtype): torch.ones(3).to(dtype)
            for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.float64)
        },
    ):
        torch.save(given, path)
        found = read_torch(path).tensors
        wanted = given.get("state_dict", given)
        assert list(found) == list(wanted)
        for name, tensor in wanted.items():
            assert torch.equal(found[name], tensor), name
            assert found[name].dtype == tensor.dtype
    torch.save({"embed": table, "head": table}, path)
    found = read_torch(path).tensors
    assert found["embed"].data_ptr() == found["head"].data_ptr()  # what was shared is shared again


class Module(torch.nn.Module):
    pass


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (lambda marker: {"model": Trap(marker)}, "posix.mkdir"),
        (lambda _: {"model": {"w": np.float64(1)}}, "numpy"),
        (lambda _: Module(), "Module"),
        (lambda _: {"w": torch.ones(2).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
        (lambda _: {"w": bytearray(9)}, "bytearray"),
        (lambda _: {"w": torch.Size([1])}, "torch.Size"),
        (lambda _: {"w": {1, 2}}, ".set"),
    ],
)
def test_anything_but_tensors_and_plain_values_is_refused_by_name(tmp_path, given, named):
    path = tmp_path / "model.pt"
    torch.save(given(tmp_path / "marker"), path)
    with pytest.raises(UnsafeError, match=r"model\.pt: refused, because its pickle asks for ") as caught:
        read_torch(path)
    assert named in str(caught.value)
    assert ".safetensors" in str(caught.value)
    assert not (tmp_path / "marker").exists()


def test_other_pickles_are_refused_without_running_them(tmp_path):
    old = io.BytesIO()
    torch.save({"w": torch.ones(1)}, old, _use_new_zipfile_serialization=False)
    trap = pickle.dumps(Trap(tmp_path / "marker"))
    for content, message in [
        (trap, "no archive as PyTorch has written them since version 1.6"),
        (old.getvalue(), "an older form or another kind of pickle"),
        (archive_of({"a/data.pkl": trap, "a/constants.pkl": trap}), "this one has 'a/data.pkl', 'a/constants.pkl'"),
        (archive_of({"a/data.pkl": trap}), "asks for posix.mkdir|the instruction"),
        (archive_of({"readme": b""}), "this one has none"),
    ]:
        (tmp_path / "m.pt").write_bytes(content)
        with pytest.raises(UnsafeError, match=message):
            read_torch(tmp_path / "m.pt")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("ending", ["bin", "safetensors"])
def test_a_pipe_among_the_files_of_an_index_is_refused_and_not_waited_for(tmp_path, ending):
    os.mkfifo(tmp_path / f"s.{ending}")
    index = {"bin": "pytorch_model.bin.index.json", "safetensors": "model.safetensors.index.json"}[ending]
    (tmp_path / index).write_text(json.dumps({"weight_map": {"lm_head.weight": f"s.{ending}"}}))
    seen = []

    def reads():
        with pytest.raises(CheckpointError, match=rf"s\.{ending}: is no regular file but a pipe\. Write its content"):
            read_weights(tmp_path)
        seen.append(True)

    thread = threading.Thread(target=reads, daemon=True)  # a reader that waits must not hang the tests
    thread.start()
    thread.join(timeout=20)
    assert seen


def rewritten(path, change, *, compression=zipfile.ZIP_STORED):
    """The archive again, with records changed: {name inside its folder: bytes or None}."""
    with zipfile.ZipFile(path) as archive:
        records = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    folder = next(iter(records)).split("/")[0]
    for name, data in change(folder, records).items():
        records[f"{folder}/{name}"] = data
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in records.items():
            if data is not None:
                archive.writestr(name, data)


def replaced(old: bytes, new: bytes):
    def change(folder, records):
        data = records[f"{folder}/data.pkl"]
        assert data.count(old) == 1, data.count(old)
        return {"data.pkl": data.replace(old, new)}

    return change


LIES = {
    "a record too short": (lambda f, r: {"data/0": r[f"{f}/data/0"][:-4]}, "has 44 bytes, but its tensor claims 48"),
    "a record too long": (lambda f, r: {"data/0": bytes(52)}, "has 52 bytes, but its tensor claims 48"),
    "a record missing": (lambda f, r: {"data/0": None}, "record '.*data/0' of a tensor is missing"),
    "a storage of 2**31-1": (
        replaced(b"K\x0ct", b"J\xff\xff\xff\x7ft"),
        "has 48 bytes, but its tensor claims 8,589,934,588",
    ),
    "a shape too large": (
        replaced(b"K\x03K\x04\x86", b"K\x04K\x04\x86"),
        "of shape 4x4 has more numbers than are stored",
    ),
    "one number seen often": (replaced(b"K\x04K\x01\x86", b"K\x00K\x00\x86"), None),
    "a shape that is no shape": (replaced(b"K\x03K\x04\x86", b"NK\x04\x86"), "a tensor in it has an impossible shape"),
    "cut": (lambda f, r: {"data.pkl": r[f"{f}/data.pkl"][:40]}, "the pickle in it cannot be followed"),
    "empty": (lambda f, r: {"data.pkl": b""}, "the pickle in it cannot be followed"),
    "long": (
        lambda f, r: {"data.pkl": r[f"{f}/data.pkl"] + bytes(2**19)},
        "its pickle has 524,.* the limit is 524,288",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_archives_that_lie(tmp_path, name):
    change, message = LIES[name]
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(12.0).reshape(3, 4)}, path)
    rewritten(path, change)
    if message is None:
        assert read_torch(path).tensors["w"].shape == (3, 4)  # 12 numbers, 12 stored: odd, and harmless
        return
    with pytest.raises(CheckpointError, match=rf"m\.pt: .*{message}"):
        read_torch(path)


def test_a_number_seen_many_times_is_refused(tmp_path):
    torch.save({"w": torch.ones(1).expand(10**5, 10**5)}, tmp_path / "m.pt")
    with pytest.raises(CheckpointError, match="of shape 100000x100000 has more numbers than are stored for it"):
        read_torch(tmp_path / "m.pt")


def test_bombs_cuts_and_repeated_records(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(100_000)}, path)
    data = path.read_bytes()
    for at in (0, 3, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at])
        with pytest.raises((CheckpointError, UnsafeError), match=r"m\.pt: "):
            read_torch(path)
    path.write_bytes(data)
    rewritten(path, lambda f, r: {}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="is compressed; PyTorch stores records as they are"):
        read_torch(path)
    path.write_bytes(archive_of({"a/data.pkl": b"", "a/data.pkm": b""}).replace(b"data.pkm", b"data.pkl"))
    with pytest.raises(CheckpointError, match=r"record 'a/data\.pkl' is there twice"):
        read_torch(path)
    path.write_bytes(archive_of({f"a/{i}": b"" for i in range(25_000)}))
    with pytest.raises(CheckpointError, match=r"the list of its archive has 1,.* the limit is 1,048,576"):
        read_torch(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([torch.ones(1)], "holds a list; a checkpoint is a dictionary"),
        ({}, "holds no tensors"),
        ({"a": 1}, "'a' is a int, expected a tensor. Weights are looked for .* under model and state_dict"),
        ({"model": {1: torch.ones(1)}}, "'1' is a Tensor, expected a tensor"),
    ],
)
def test_files_without_weights(tmp_path, given, message):
    torch.save(given, tmp_path / "m.pt")
    with pytest.raises(CheckpointError, match=message):
        read_torch(tmp_path / "m.pt")
