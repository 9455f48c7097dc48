"""GGUF headers that lie (A32): each is refused with file, place and reason, in little time and memory."""

import random
import struct
import subprocess
import sys

import pytest
import torch

from checkpoints import gguf_bytes as raw
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.values import OBJECT_LIMIT_BYTES, TEXT_LIMIT_BYTES
from unembed.errors import CheckpointError, UnsafeError

ONE = [raw.info("t", [4], 0, 0)]
ROOM = bytes(16)
LYING = {
    "zero length": (b"", r"is empty \(0 bytes\)"),
    "magic": (raw.whole([], ONE, ROOM, magic=b"GGML"), "first bytes are b'GGML', not b'GGUF'"),
    "version 1": (raw.whole([], ONE, ROOM, version=1), "its version is 1; versions 2 and 3 are read"),
    "version 4": (raw.whole([], ONE, ROOM, version=4), "its version is 4"),
    "big endian": (raw.whole([], ONE, ROOM, version=3 << 24), "written big-endian; only little-endian"),
    "tensor count": (
        raw.whole([], ONE, ROOM, n_tensors=2**60),
        "a list of 0 keys and 1,152,921,504,606,846,976 tensors",
    ),
    "key count": (raw.whole([], ONE, ROOM, n_keys=2**60), "a list of 1,152,921,504,606,846,976 keys and 1 tensors"),
    "one key too many": (raw.whole([], ONE, ROOM, n_keys=2), "key 1 of 2|beyond|takes"),
    "key length": (
        raw.whole([raw.text("k", length=2**63) + bytes(9)], ONE, ROOM),
        "key 1 of 1: a text takes 9,223,372,036",
    ),
    "text length": (
        raw.whole([raw.text("k") + struct.pack("<I", raw.STRING) + raw.text("", length=10**6)], ONE, ROOM),
        "key 'k': a text takes 1,000,000 bytes",
    ),
    "array length": (
        raw.whole([raw.text("k") + struct.pack("<IIQ", raw.ARRAY, raw.F32, 2**62)], ONE, ROOM),
        "key 'k': an array of 4,611,686,018,427,387,904 numbers takes",
    ),
    "array of texts": (
        raw.whole([raw.text("k") + struct.pack("<IIQ", raw.ARRAY, raw.STRING, 2**62)], ONE, ROOM),
        "key 'k': a list of 4,611,686,018,427,387,904 texts takes",
    ),
    "text in an array": (
        raw.whole(
            [raw.text("k") + struct.pack("<IIQ", raw.ARRAY, raw.STRING, 2) + raw.text("a", length=999)], ONE, ROOM
        ),
        "key 'k': a text takes 999 bytes",
    ),
    "array of arrays": (
        raw.whole([raw.text("k") + struct.pack("<IIQ", raw.ARRAY, raw.ARRAY, 2**62)], ONE, ROOM),
        "key 'k': an array of 4,611,686,018,427,387,904 arrays takes",
    ),
    "nesting": (
        raw.whole([raw.text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9 + bytes(99)], ONE, ROOM),
        "key 'k': holds arrays in arrays, more than 4 deep",
    ),
    "value type": (
        raw.whole([raw.text("k") + struct.pack("<II", 13, 0)], ONE, ROOM),
        "key 'k': its value is of type 13",
    ),
    "array type": (
        raw.whole([raw.text("k") + struct.pack("<IIQ", raw.ARRAY, 99, 1) + bytes(8)], ONE, ROOM),
        "key 'k': its value is of type 99",
    ),
    "truth value": (
        raw.whole([raw.text("k") + struct.pack("<IB", 7, 2)], ONE, ROOM),
        "'k': its value is the truth value 2",
    ),
    "truth values": (
        raw.whole([raw.text("k") + struct.pack("<IIQ", raw.ARRAY, 7, 2) + bytes([1, 255])], ONE, ROOM),
        "'k': its value is the truth value 255",
    ),
    "key twice": (raw.whole([raw.key("k", raw.U8, 1)] * 2, ONE, ROOM), "key 'k': is given twice"),
    "key not UTF-8": (
        raw.whole([raw.key(b"\xff\xfe", raw.U8, 1)], ONE, ROOM),
        "key 1 of 1: the text of 2 bytes at byte .* is not",
    ),
    "text not UTF-8": (
        raw.whole([raw.key("k", raw.STRING, b"a\xc3")], ONE, ROOM),
        r"key 'k': the text of 2 bytes .*\(from its byte 1 on",
    ),
    "surrogate": (raw.whole([raw.key("k", raw.STRING, b"\xed\xa0\x80")], ONE, ROOM), "is not UTF-8"),
    "alignment 0": (
        raw.whole([raw.key("general.alignment", raw.U32, 0)], ONE, ROOM),
        "'general.alignment': is 0; .* power of two",
    ),
    "alignment 24": (raw.whole([raw.key("general.alignment", raw.U32, 24)], ONE, ROOM), "'general.alignment': is 24; "),
    "alignment text": (
        raw.whole([raw.key("general.alignment", raw.STRING, "x" * 999)], ONE, ROOM),
        "is x{40}; tensors",
    ),
    "alignment bool": (
        raw.whole([raw.key("general.alignment", raw.BOOL, True)], ONE, ROOM),
        "is True; tensors can only",
    ),
    "alignment huge": (
        raw.whole([raw.key("general.alignment", raw.U64, 2**63)], ONE, ROOM),
        "'t': its bytes .* lie beyond the data",
    ),
    "long text": (
        raw.whole([raw.key("k", raw.STRING, "x" * (TEXT_LIMIT_BYTES + 1))], []),
        "key 'k': a text has 8,388,609 bytes; the limit is 8,388,608",
    ),
    "tensor name not UTF-8": (
        raw.whole([], [raw.info(b"\x80", [4], 0, 0)], ROOM),
        "tensor 1 of 1: the text of 1 bytes",
    ),
    "tensor twice": (raw.whole([], [ONE[0], raw.info("t", [4], 0, 32)], bytes(48)), "tensor 't': is listed twice"),
    "dimensions": (raw.whole([], [raw.info("t", [1] * 5, 0, 0)], ROOM), "tensor 't': has 5 dimensions; .* at most 4"),
    "dimension count": (
        raw.whole([], [raw.info("t", [4], 0, 0, n_dimensions=2**32 - 1)], ROOM),
        "has 4,294,967,295 dimensions",
    ),
    "product over 2**64": (
        raw.whole([], [raw.info("t", [2**33, 2**33], 0, 0)], ROOM),
        "'t': its shape 8589934592x8589934592 is larger",
    ),
    "product that wraps to 4": (
        raw.whole([], [raw.info("t", [2**62 + 1, 4], 0, 0)], ROOM),
        "'t': its shape .* is larger than any memory",
    ),
    "product hidden by 0": (
        raw.whole([], [raw.info("t", [0, 2**63, 2**63], 0, 0)], ROOM),
        "'t': its shape .* is larger than any memory",
    ),
    "unread type": (
        raw.whole([], [raw.info("t", [256], 10, 0)], bytes(84)),
        "'t': its type is Q2_K. Types that are read: F32, F16",
    ),
    "unread type IQ": (raw.whole([], [raw.info("t", [32], 20, 0)], bytes(84)), "'t': its type is IQ4_NL"),
    "no type": (
        raw.whole([], [raw.info("t", [4], 77, 0)], ROOM),
        "'t': its type is number 77, which the format does not have",
    ),
    "half a block": (
        raw.whole([], [raw.info("t", [16], 8, 0)], bytes(34)),
        "'t': its rows have 16 numbers; Q8_0 has blocks of 32",
    ),
    "scalar block": (
        raw.whole([], [raw.info("t", [], 8, 0)], bytes(34)),
        "'t': its rows have 1 numbers; Q8_0 has blocks",
    ),
    "beyond the data": (
        raw.whole([], [raw.info("t", [5], 0, 0)], ROOM),
        r"'t': its bytes \[0, 20\) lie beyond the data, which has 16",
    ),
    "offset beyond": (raw.whole([], [raw.info("t", [4], 0, 2**63)], ROOM), "'t': its bytes .* lie beyond the data"),
    "offset wraps": (raw.whole([], [raw.info("t", [4], 0, 2**64 - 32)], ROOM), "'t': its bytes .* lie beyond the data"),
    "unaligned": (
        raw.whole([], [raw.info("t", [3], 0, 4)], ROOM),
        "'t': its offset 4 is no multiple of the file's alignment, 32",
    ),
    "overlap": (
        raw.whole([], [raw.info("t", [12], 0, 0), raw.info("u", [4], 0, 32)], bytes(48)),
        "'u': overlaps with 't'",
    ),
    "same place": (raw.whole([], [raw.info("t", [4], 0, 0), raw.info("u", [4], 0, 0)], ROOM), "'u': overlaps with 't'"),
    "gap": (
        raw.whole([], [raw.info("t", [4], 0, 64)], bytes(80)),
        "'t': bytes 0 to 64 of the data, before it, belong to no tensor",
    ),
    "trailing": (raw.whole([], ONE, bytes(33)), "the end: 17 bytes follow the last tensor's"),
    "trailing without tensors": (raw.whole([], [], bytes(8)), "the end: 8 bytes follow"),
}


@pytest.mark.parametrize("name", LYING)
def test_headers_that_lie_are_refused_with_file_place_and_reason(tmp_path, name):
    data, message = LYING[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_gguf(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 600 + len(str(path))


def test_a_file_cut_anywhere_is_refused(tmp_path):
    keys = [
        raw.key("x", raw.STRING, "text"),
        raw.key("y", raw.ARRAY, (raw.STRING, ["a", "bc"])),
        raw.key("z", raw.U8, 3),
    ]
    infos = [raw.info("a", [64, 8], 8, 0), raw.info("b", [64, 8], 0, 544)]
    data = raw.whole(keys, infos, bytes(544 + 2048))
    (tmp_path / "whole.gguf").write_bytes(data)
    assert list(read_gguf(tmp_path / "whole.gguf").tensors) == ["a", "b"]
    path = tmp_path / "cut.gguf"
    draw = random.Random(0)
    for at in [*range(400), *(draw.randrange(400, len(data)) for _ in range(100)), len(data) - 1]:
        path.write_bytes(data[:at])
        with pytest.raises(CheckpointError, match="cut"):
            read_gguf(path)


def test_a_pickle_under_the_name_is_refused(tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "m.gguf")
    with pytest.raises(UnsafeError, match="PyTorch archive"):
        read_gguf(tmp_path / "m.gguf")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read: "):
            read_gguf(path)


GREEDY = {
    "texts": lambda n: raw.whole([raw.key("k", raw.ARRAY, (raw.STRING, ["ab"] * n))], []),
    "wide texts": lambda n: raw.whole([raw.key(f"{i}", raw.STRING, "x" * 2 * n + "😀") for i in range(9)], []),
    "empty texts": lambda n: raw.whole([raw.key("k", raw.ARRAY, (raw.STRING, [""] * n))], []),
    "arrays": lambda n: raw.whole([raw.key("k", raw.ARRAY, (raw.ARRAY, [(raw.U8, [])] * (n // 4)))], []),
    "keys": lambda n: raw.whole([raw.key(f"{i:x}", raw.U8, 1) for i in range(n // 4)], []),
    "tensors": lambda n: raw.whole([], [raw.info(f"{i:x}", [], 0, 0) for i in range(n // 8)], ROOM),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GREEDY)
def test_a_file_of_tiny_things_takes_neither_time_nor_memory(tmp_path, name):
    """A megabyte of file may be tens of megabytes of objects: refused at the stated limit, or below 64 MB and its size."""
    path = tmp_path / "m.gguf"
    path.write_bytes(GREEDY[name](2_000_000))
    code = (
        "import resource, sys, time; from pathlib import Path\n"
        "from unembed.checkpoints.formats.gguf.read import read_gguf; from unembed.errors import CheckpointError\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before, seconds = used(), []\n"
        "for _ in range(3):\n"  # the least: another program on the core makes the clock of this one run too
        "    start = time.process_time()\n"
        "    try:\n        read_gguf(Path(sys.argv[1])); said = 'read'\n"
        "    except CheckpointError as error: said = str(error)\n"
        "    seconds.append(time.process_time() - start)\n"
        "print(used() - before, min(seconds), said, sep='|')"
    )
    found = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    n_bytes, seconds, said = found.stdout.split("|", 2)
    assert int(n_bytes) < 64 * 2**20 + path.stat().st_size
    assert float(seconds) < 1
    assert f"{OBJECT_LIMIT_BYTES:,}" in said
