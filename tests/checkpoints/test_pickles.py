"""A file that could run code is refused without running it (A33)."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from unembed.checkpoints.formats.pickles import why_unsafe
from unembed.checkpoints.formats.safetensors import read_header, read_tensors
from unembed.errors import CheckpointError, UnsafeError


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def archive_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def saved(writer, *arguments, **options) -> bytes:
    buffer = io.BytesIO()
    writer(buffer, *arguments, **options)
    return buffer.getvalue()


def hostile_files(marker) -> dict[str, bytes]:
    trap = Trap(marker)
    objects = saved(np.save, np.array([trap], dtype=object), allow_pickle=True)
    fields = saved(np.save, np.array([(1, trap)], dtype=[("a", "i4"), ("b", "O")]), allow_pickle=True)
    torch_zip = saved(lambda buffer: torch.save({"weights": trap}, buffer))
    torch_old = saved(lambda buffer: torch.save({"weights": trap}, buffer, _use_new_zipfile_serialization=False))
    files = {f"protocol{n}.pkl": pickle.dumps(trap, protocol=n) for n in range(6)}
    return files | {
        "model.pt": torch_zip,
        "old.pt": torch_old,
        "model.ckpt": torch_zip,
        "pytorch_model.bin": torch_zip,
        "old.bin": torch_old,
        "optimizer.PTH": torch_zip,
        "renamed.safetensors": torch_zip,
        "renamed_old.safetensors": torch_old,
        "renamed_pickle.safetensors": pickle.dumps(trap),
        "no_ending": pickle.dumps(trap, protocol=2),
        "cache.npy": objects,
        "fields.npy": fields,
        "lens.npz": archive_of({"a.npy": saved(np.save, np.arange(3)), "b.npy": objects}),
        "damaged.npy": objects[:20],
        "damaged.bin": torch_zip[:200],
        "dump.joblib": pickle.dumps(trap),
    }


@pytest.mark.parametrize("name", hostile_files("x"))
def test_hostile_files_are_refused_and_nothing_runs(tmp_path, name):
    marker = tmp_path / "marker"
    path = tmp_path / name
    path.write_bytes(hostile_files(marker)[name])
    for read in (read_tensors, read_header):
        with pytest.raises(UnsafeError, match=r"refused, because it is .*\n.*\.safetensors") as caught:
            read(path)
        assert caught.value.exit_code == 5
        assert name in str(caught.value)
    assert not marker.exists()


def test_the_traps_are_real(tmp_path):
    marker = tmp_path / "marker"
    pickle.loads(hostile_files(marker)["protocol4.pkl"])
    assert marker.exists()


def test_an_innocent_name_does_not_make_a_pickle(tmp_path):
    numbers = tmp_path / "numbers.npy"
    np.save(numbers, np.arange(3))
    assert why_unsafe(numbers) is None
    assert why_unsafe(tmp_path / "absent.pt") is None
    (tmp_path / "a.pt").write_bytes(b"text")
    assert why_unsafe(tmp_path / "a.pt") == "named .pt, the ending of a Python pickle"
    zipped = tmp_path / "book.zip"
    zipped.write_bytes(archive_of({"a.txt": b"", "b.npy": numbers.read_bytes()}))
    assert why_unsafe(zipped) is None


@pytest.mark.parametrize("length", [0x0280, 0x0580, 0x010480])
def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path, length):
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}".ljust(length))
    assert path.read_bytes()[0] == 0x80
    assert read_tensors(path) == {}


def test_text_is_no_pickle(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("just a text, long enough")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its first 8 bytes announce a header of"):
        read_tensors(path)
