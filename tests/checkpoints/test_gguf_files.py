"""GGUF files: values and numbers as the `gguf` package reads them. Headers that lie are in test_gguf_lies.py."""

import struct

import gguf
import numpy as np
import pytest
import torch

from checkpoints import gguf_bytes as raw
from unembed.checkpoints.formats.gguf.quants import BY_NAME, NUMBER_OF
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.errors import CheckpointError

QUANTISED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
HAS_QUANTISER = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def written(path, tensors, keys=None):
    """A file made by the gguf package: {name: (array, type name)}."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (keys or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(name, value)
    for name, (array, type_name) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=gguf.GGMLQuantizationType[type_name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def same_bits(found: torch.Tensor, wanted: np.ndarray) -> bool:
    """Equal to the last bit, except that any NaN equals any other."""
    a, b = found.numpy().reshape(-1), np.asarray(wanted, dtype=np.float32).reshape(-1)
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("type_name", HAS_QUANTISER)
def test_oracle_numbers_quantised_by_the_gguf_package(tmp_path, type_name):
    kind = gguf.GGMLQuantizationType[type_name]
    values = np.random.default_rng(0).standard_normal((37, 96)).astype(np.float32) * 3
    values[1, :32] = 0  # a block whose scale is 0
    packed = gguf.quantize(values, kind)
    path = written(tmp_path / "m.gguf", {"a": (packed, type_name), "after": (values[:2, :5], "F32")})
    found = read_gguf(path)
    assert same_bits(found.tensor("a"), gguf.dequantize(packed, kind))
    assert found.tensors["a"].shape == tuple(found.tensor("a").shape) == (37, 96)
    assert same_bits(found.tensor("after"), values[:2, :5])
    assert found.tensor("a").sub(torch.from_numpy(values)).abs().max() < 1.0  # the numbers, not just the oracle's code


@pytest.mark.parametrize("type_name", QUANTISED)
@pytest.mark.parametrize("n_blocks", [1, 7, 3000])
def test_oracle_blocks_of_random_bytes(tmp_path, type_name, n_blocks):
    kind = gguf.GGMLQuantizationType[type_name]
    block, width = gguf.GGML_QUANT_SIZES[kind]
    packed = np.random.default_rng(n_blocks).integers(0, 256, (n_blocks, width), dtype=np.uint8)
    found = read_gguf(written(tmp_path / "m.gguf", {"a": (packed, type_name)})).tensor("a")
    with np.errstate(all="ignore"):
        wanted = gguf.dequantize(packed, kind)
    assert found.shape == (n_blocks, block)
    assert found.dtype == torch.float32
    assert same_bits(found, wanted)


def test_block_sizes_and_numbers_are_those_of_the_gguf_package():
    for name, kind in BY_NAME.items():
        number = gguf.GGMLQuantizationType[name]
        assert NUMBER_OF[name] == number
        assert (kind.numbers, kind.n_bytes) == gguf.GGML_QUANT_SIZES[number]


def test_worked_example_of_q4_1(tmp_path):
    # scale 0.5, offset -1; the first byte holds 3 (number 0) and 12 (number 16)
    block = struct.pack("<ee", 0.5, -1.0) + bytes([0xC3]) + bytes(15)
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.whole([], [raw.info("a", [32], 3, 0)], block))
    expected = torch.full((32,), -1.0)
    expected[0], expected[16] = 0.5, 5.0
    assert torch.equal(read_gguf(path).tensor("a"), expected)


def test_values_of_every_type(tmp_path):
    nested = (raw.ARRAY, [(raw.U8, [1, 2]), (raw.STRING, ["x"])])
    values = {
        "u8": (raw.U8, 255, 255),
        "i8": (raw.I8, -128, -128),
        "u16": (raw.U16, 65535, 65535),
        "i16": (raw.I16, -5, -5),
        "u32": (raw.U32, 2**32 - 1, 2**32 - 1),
        "i32": (raw.I32, -7, -7),
        "f32": (raw.F32, 0.5, 0.5),
        "yes": (raw.BOOL, True, True),
        "no": (raw.BOOL, False, False),
        "text": (raw.STRING, "ñ 깰", "ñ 깰"),
        "u64": (raw.U64, 2**64 - 1, 2**64 - 1),
        "i64": (raw.I64, -(2**63), -(2**63)),
        "f64": (raw.F64, 1e-300, 1e-300),
        "texts": (raw.ARRAY, (raw.STRING, ["a", "", "깰"]), ["a", "", "깰"]),
        "floats": (raw.ARRAY, (raw.F32, [1.0, -2.5]), [1.0, -2.5]),
        "bools": (raw.ARRAY, (raw.BOOL, [True, False]), [True, False]),
        "none": (raw.ARRAY, (raw.I32, []), []),
        "nested": (raw.ARRAY, nested, [[1, 2], ["x"]]),
    }
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.whole([raw.key(name, kind, value) for name, (kind, value, _) in values.items()], []))
    found = read_gguf(path)
    assert list(found.metadata) == list(values)
    for name, (_, _, expected) in values.items():
        value = found.metadata[name]
        plain = [list(one) for one in value] if name == "nested" else value
        plain = plain.tolist() if isinstance(plain, np.ndarray) else plain
        assert plain == expected, name
        assert type(plain) is type(expected), name


def test_versions_2_and_3_and_another_alignment(tmp_path):
    path = tmp_path / "m.gguf"
    for version in (2, 3):
        for alignment in (1, 8, 256):
            keys = [raw.key("general.alignment", raw.U32, alignment)]
            second = -(-12 // alignment) * alignment
            infos = [raw.info("b", [2], 0, second), raw.info("a", [3, 1], 0, 0)]
            data = struct.pack("<3f", 1, 2, 3) + bytes(second - 12) + struct.pack("<2f", 4, 5)
            path.write_bytes(raw.whole(keys, infos, data, version=version, alignment=alignment))
            found = read_gguf(path)
            assert found.version == version
            assert list(found.tensors) == ["b", "a"]
            assert found.tensor("a").tolist() == [[1, 2, 3]]
            assert found.tensor("b").tolist() == [4, 5]


def test_scalars_and_empty_tensors(tmp_path):
    path = tmp_path / "m.gguf"
    infos = [raw.info("scalar", [], 0, 0), raw.info("empty", [0, 5], 0, 32)]
    path.write_bytes(raw.whole([], infos, struct.pack("<f", 7) + bytes(28)))
    found = read_gguf(path)
    assert found.tensor("scalar").shape == ()
    assert found.tensor("scalar").item() == 7
    assert found.tensor("empty").shape == (5, 0)


def test_writing_into_a_tensor_does_not_change_the_file(tmp_path):
    path = written(tmp_path / "m.gguf", {"a": (np.ones((4, 4), dtype=np.float32), "F32")})
    before = path.read_bytes()
    read_gguf(path).tensor("a").zero_()
    assert path.read_bytes() == before
    assert read_gguf(path).tensor("a").sum() == 16


def test_a_tensor_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.whole([], []))
    with pytest.raises(CheckpointError, match=r"m\.gguf: there is no tensor 'head' among its 0"):
        read_gguf(path).tensor("head")


def test_pages_that_are_given_back_are_no_neighbours(tmp_path):
    """A half-precision tensor's pages go once it is float32; what was written into a float32 tensor beside it stays."""
    tensors = {f"{name}{i}": torch.randn(3000 + 7 * i) for i in range(4) for name in ("whole", "half")}
    stored = {name: t.half() if name.startswith("half") else t for name, t in tensors.items()}
    write_gguf(tmp_path / "m.gguf", {"general.architecture": "x"}, stored)
    file = read_gguf(tmp_path / "m.gguf")
    views = {name: file.tensor(name) for name in tensors if name.startswith("whole")}
    for view in views.values():
        view.fill_(7.0)
    for _ in range(2):
        for name in tensors:
            wanted = torch.full_like(tensors[name], 7.0) if name in views else stored[name].float()
            assert torch.equal(file.tensor(name), wanted), name
    assert all((view == 7.0).all() for view in views.values())
