"""GGUF files that we write: read back by ourselves and by the `gguf` package; whole or not there at all."""

import gguf
import numpy as np
import pytest
import torch

from unembed.checkpoints.files import Disk
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.errors import CheckpointError, ResourceError

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "big": 2**40,
    "low": -5,
    "lowest": -(2**63),
    "eps": 1e-5,
    "flag": True,
    "tokens": ["a", "ñ 깰", ""],
    "types": [1, 3, -1],
    "scores": [0.5, -1.0, 3],
    "bytes": np.array([1, 255], dtype=np.uint8),
    "flags": np.array([True, False]),
    "empty": [],
}


def tensors(generator):
    base = torch.randn(6, 4, generator=generator)
    return {
        "token_embd.weight": base,
        "turned": base.T,
        "half": base.half(),
        "brain": base.bfloat16()[1:4],
        "scalar": torch.tensor(3.0),
        "none": torch.zeros(0, 4),
        "cube": torch.arange(24.0).reshape(2, 3, 4),
    }


def test_oracle_read_back_by_the_gguf_package(tmp_path, generator):
    given = tensors(generator)
    write_gguf(tmp_path / "m.gguf", METADATA, given)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    found = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(found) == list(METADATA)
    for key, value in METADATA.items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert found[key] == pytest.approx(plain, rel=1e-6) if key == "eps" else found[key] == plain, key
    assert [tensor.name for tensor in reader.tensors] == list(given)
    for tensor in reader.tensors:
        wanted = given[tensor.name]
        assert tuple(reversed(tensor.shape.tolist())) == tuple(wanted.shape)
        assert tensor.data_offset % 32 == 0
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(wanted.shape)
        assert np.array_equal(numbers, wanted.float().numpy()), tensor.name
    assert len((tmp_path / "m.gguf").read_bytes()) % 32 == 0


def test_round_trip(tmp_path, generator):
    given = tensors(generator)
    write_gguf(tmp_path / "m.gguf", METADATA, given)
    found = read_gguf(tmp_path / "m.gguf")
    assert found.version == 3
    assert {name: info.type for name, info in found.tensors.items()} == {
        name: {"half": "F16", "brain": "BF16"}.get(name, "F32") for name in given
    }
    for name, tensor in given.items():
        assert torch.equal(found.tensor(name), tensor.float()), name
    for key, value in METADATA.items():
        back = found.metadata[key]
        plain = back.tolist() if isinstance(back, np.ndarray) else back
        assert plain == (pytest.approx(1e-5) if key == "eps" else value.tolist() if hasattr(value, "tolist") else value)


ONE = torch.ones(2)


@pytest.mark.parametrize(
    ("metadata", "given", "message"),
    [
        ({}, {"t": torch.ones(2, dtype=torch.float64)}, "'t' cannot be stored: it is torch.float64; F32, F16 and BF16"),
        ({}, {"t": torch.empty(2, device="meta")}, r"'t' cannot be stored: .* no data \(device meta\)"),
        ({}, {"t": torch.eye(2).to_sparse()}, "'t' cannot be stored: it is sparse"),
        ({}, {"t": torch.ones([1] * 5)}, "'t' cannot be stored: it has 5 dimensions"),
        ({}, {"t" * 64: ONE}, "cannot be stored: its name has more than 63 bytes"),
        ({}, {"\ud800": ONE}, "cannot be stored: it is not valid Unicode"),
        ({"k": "\udfff"}, {}, "cannot be stored: it is not valid Unicode"),
        ({"k": 2**64}, {}, "key 'k': 18446744073709551616 has more than 64 bits"),
        ({"k": None}, {}, "key 'k': a NoneType .* is no value of the format"),
        ({"k": [1, "a"]}, {}, "key 'k': a list .* is no value of the format"),
        ({"k": [2**31]}, {}, "key 'k': a number of the list does not fit int32"),
        ({"k": np.ones((2, 2))}, {}, "key 'k': a float64 array of 2 dimensions is not stored"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_the_format_does_not_have_is_refused_before_a_byte_is_written(tmp_path, metadata, given, message):
    with pytest.raises(CheckpointError, match=message):
        write_gguf(tmp_path / "m.gguf", metadata, given)
    assert list(tmp_path.iterdir()) == []


class Full(Disk):
    """A disk with room for so many writes."""

    def __init__(self, n_writes: int) -> None:
        self.left = n_writes

    def write(self, handle, data):
        if not self.left:
            raise OSError(28, "No space left on device")
        self.left -= 1
        return super().write(handle, data[: 1 << 10])


@pytest.mark.parametrize("n_writes", [0, 1, 5])
def test_a_full_disk_leaves_the_old_file(tmp_path, n_writes):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"old")
    with pytest.raises(ResourceError, match=r"m\.gguf keeps its old contents"):
        write_gguf(path, {"k": "v"}, {"t": torch.ones(5000)}, files=Full(n_writes))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
