"""Round trips of tensors through files, and headers that lie (A32), names with prefixes (A31a)."""

import json
import math
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from checkpoints.faults import assert_same_tensors, bits
from unembed.checkpoints.formats.safetensors import DTYPES, HEADER_LIMIT_BYTES, clean_names, read_header, read_tensors
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.errors import CheckpointError, UnembedError

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def encoded(tensors) -> bytes:
    return b"".join(encode_tensors(tensors, label="test"))


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Random bits of a type: infinities, NaNs and denormal numbers are among them."""
    draw = random.Random(seed)
    n_bytes = math.prod(shape) * dtype.itemsize
    data = bytes(draw.choice((0, 1)) if dtype == torch.bool else draw.randrange(256) for _ in range(n_bytes))
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.zeros(shape, dtype=dtype)


TENSORS = st.dictionaries(
    NAMES, st.builds(tensor_of, st.sampled_from(list(DTYPES.values())), SHAPES, st.integers(0, 2**32)), max_size=6
)


@settings(deadline=None)
@given(TENSORS)
def test_property_round_trip_of_types_shapes_and_names(tensors):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(encoded(tensors))
        found = read_tensors(path)
        header = read_header(path)
    assert_same_tensors(found, tensors)
    assert list(found) == sorted(tensors)
    assert header.metadata == {"format": "pt"}


@settings(deadline=None)
@given(TENSORS)
def test_oracle_the_bytes_are_the_librarys(tensors):
    assert encoded(tensors) == save(tensors, {"format": "pt"})


@settings(deadline=None)
@given(TENSORS, st.randoms(use_true_random=False))
def test_property_equal_tensors_give_equal_bytes(tensors, draw):
    names = list(tensors)
    draw.shuffle(names)
    assert encoded({name: tensors[name].clone() for name in names}) == encoded(tensors)


def test_views_are_stored_as_they_look(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    views = {"a": base.T[:3], "b": torch.zeros(1, 3).expand(4, 3), "c": torch.complex(base, base).conj()[1]}
    views["d"] = torch.nn.Parameter(torch.ones(2))
    (tmp_path / "m.safetensors").write_bytes(encoded(views))
    found = read_tensors(tmp_path / "m.safetensors")
    for name, view in views.items():
        assert torch.equal(found[name], view.detach().resolve_conj()), name


def test_loaded_tensors_do_not_write_into_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(encoded({"a": torch.ones(4)}))
    before = path.read_bytes()
    read_tensors(path)["a"].zero_()
    assert path.read_bytes() == before


TABLE = torch.ones(4, 3)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"embed.table": TABLE, "head.table": TABLE}, "'embed.table' and 'head.table' share memory"),
        (
            {"a": TABLE[1:], "b": torch.ones(2), "z": TABLE.view(-1)},
            "'z' and 'a' share memory|'a' and 'z' share memory",
        ),
        ({"a": torch.eye(3).to_sparse()}, "'a' cannot be stored: it is sparse"),
        ({"a": torch.empty(3, device="meta")}, r"'a' cannot be stored: it has a shape but no data \(device meta\)"),
        ({"a": torch.ones(1, dtype=torch.complex128)}, r"'a' cannot be stored: the format has no torch\.complex128"),
        ({"__metadata__": TABLE}, "the format keeps this name for itself"),
        ({"\udc80": TABLE}, "its name is not valid Unicode"),
        (
            {f"{i:_>3000}": torch.ones(()) for i in range(1450)},
            "1,450 tensors need a header of .* the limit is 4,194,304",
        ),
    ],
)
def test_what_cannot_be_stored_is_named_before_a_byte_is_written(tensors, message):
    with pytest.raises(CheckpointError, match=f"^model: .*({message})"):
        encode_tensors(tensors, label="model")


def test_parts_of_one_storage_that_do_not_overlap_are_stored():
    flat = torch.arange(10.0)
    assert len(encoded({"a": flat[:4], "b": flat[4:], "empty": flat[2:2]})) > 40


# --- names


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("_orig_mod.blocks.0.attn.q_proj.weight", "blocks.0.attn.q_proj.weight"),
        ("module.embed.table", "embed.table"),
        ("_orig_mod.module.embed.table", "embed.table"),
        ("module._orig_mod.embed.table", "embed.table"),
        ("module.module.embed.table", "embed.table"),
        ("blocks.0._orig_mod.mlp.up_proj.weight", "blocks.0.mlp.up_proj.weight"),
        ("_fsdp_wrapped_module.blocks.0._checkpoint_wrapped_module.x", "blocks.0.x"),
        ("blocks.0.module.x", "blocks.0.module.x"),
        ("modules.x", "modules.x"),
        ("module", "module"),
    ],
)
def test_names_lose_their_wrappers(name, clean):
    assert list(clean_names({name: TABLE})) == [clean]


@pytest.mark.slow
def test_a_compiled_models_names_are_clean():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    compiled = torch.compile(torch.nn.ModuleDict({"module": torch.compile(model)}))
    assert list(clean_names(compiled.state_dict())) == list(model.state_dict())


def test_names_that_become_one_are_refused():
    with pytest.raises(
        CheckpointError, match=r"'module\.a' and '_orig_mod\.a' are both 'a' once their wrappers' names"
    ):
        clean_names({"module.a": TABLE, "_orig_mod.a": TABLE})


# --- headers that lie


def file_of(header: dict | bytes, n_data_bytes: int = 0) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(n_data_bytes)


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {"embed.table": torch.ones(4, 3), "final_norm.gain": torch.ones(3, dtype=torch.float16), "step": torch.tensor(7)}
LIES = {
    "empty file": (b"", r"is empty \(0 bytes\)"),
    "seven bytes": (b"1234567", "has 7 bytes, too few"),
    "length alone": (struct.pack("<Q", 0), "has 8 bytes, too few"),
    "length beyond the file": (struct.pack("<Q", 999) + b"{}", "announce a header of 999 bytes, but only 2 follow"),
    "length of 2^64-1": (b"\xff" * 8 + b"{}", "announce a header of 18,446,744,073,709,551,615 bytes"),
    "length zero": (struct.pack("<Q", 0) + b"{}", r"of 0 bytes does not begin with '\{'"),
    "no object": (file_of(b"[1]"), "does not begin with"),
    "no JSON": (file_of(b"{a}"), "is not a JSON object of tensors"),
    "JSON and more": (file_of(b"{} {}"), "is not a JSON object of tensors"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "is not a JSON object of tensors"),
    "nested": (
        file_of(b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}"),
        "is not a JSON object|tensor 'a': its entry",
    ),
    "end before begin": (file_of({"a": entry([1], 4, 0)}, 4), "tensor 'a': its bytes end at 0, before they begin at 4"),
    "beyond the data": (
        file_of({"a": entry([2], 0, 8)}, 4),
        r"tensor 'a': its bytes \[0, 8\) lie beyond the data, which",
    ),
    "1000 x 1000 in 4 bytes": (
        file_of({"a": entry([1000, 1000], 0, 4)}, 4),
        "1000x1000 of F32 needs 4,000,000 bytes, b",
    ),
    "too many bytes": (file_of({"a": entry([1], 0, 8)}, 8), "shape 1 of F32 needs 4 bytes, but the file gives it 8"),
    "overlap": (
        file_of({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, 12),
        "tensors 'a' and 'b' overlap: bytes 4 to 8",
    ),
    "same range": (
        file_of({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, 4),
        "tensors 'a' and 'b' overlap: bytes 0 to 4",
    ),
    "gap": (
        file_of({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, 12),
        "tensor 'b': a gap lies before it: bytes 4 to 8",
    ),
    "gap at the start": (file_of({"a": entry([1], 4, 8)}, 8), "tensor 'a': a gap lies before it: bytes 0 to 4"),
    "trailing bytes": (file_of({"a": entry([1], 0, 4)}, 7), "3 trailing bytes stand after tensor 'a', the last one"),
    "data, no tensors": (file_of({}, 7), "7 trailing bytes stand after a header without tensors"),
    "product over 2^64": (
        file_of({"a": entry([2**40, 2**40], 0, 4)}, 4),
        "tensor 'a': its shape .* larger than any memory",
    ),
    "zero times 2^80": (
        file_of({"a": entry([0, 2**40, 2**40], 0, 0)}),
        "tensor 'a': its shape .* larger than any memory",
    ),
    "wraps to 4": (file_of({"a": entry([2**62 + 1], 0, 4)}, 4), "tensor 'a': its shape .* larger than any memory"),
    "negative dimension": (
        file_of({"a": entry([-1], 0, 4)}, 4),
        r"tensor 'a': its entry is not understood: .*>= 0.*shape",
    ),
    "negative offset": (
        file_of({"a": entry([1], -4, 0)}, 4),
        "tensor 'a': its entry is not understood: .*data_offsets",
    ),
    "dimension 10^30": (file_of({"a": entry([10**30], 0, 4)}, 4), "tensor 'a': its shape .* larger than any memory"),
    "dimension 1.5": (file_of({"a": entry([1.5], 0, 4)}, 4), "tensor 'a': its entry is not understood: .*`float`"),
    "dimension true": (file_of({"a": entry([True], 0, 4)}, 4), "tensor 'a': its entry is not understood"),
    "65 dimensions": (file_of({"a": entry([1] * 65, 0, 4)}, 4), "tensor 'a': its entry is not understood: .*<= 64"),
    "5,000 dimensions": (
        file_of({"a": entry([1] * 5000, 0, 4)}, 4),
        "tensor 'a': its entry in the header has .* bytes",
    ),
    "unknown type": (file_of({"a": entry([1], 0, 4, "F33")}, 4), "tensor 'a': its type 'F33' is not one of U64"),
    "unknown field": (file_of({"a": entry([1], 0, 4) | {"x": 1}}, 4), "tensor 'a': .*unknown field `x`"),
    "missing field": (
        file_of({"a": {"dtype": "F32", "shape": [1]}}, 4),
        "tensor 'a': .*missing required field `data_of",
    ),
    "three offsets": (
        file_of({"a": {**entry([1], 0, 4), "data_offsets": [0, 4, 8]}}, 4),
        "tensor 'a': its entry is not",
    ),
    "a number for a tensor": (file_of({"a": 3}), "tensor 'a': its entry is not understood"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 3}}), "tensor '__metadata__': its entry is not understood"),
    "name twice": (
        file_of(b'{"a":%b,"a":%b}' % ((json.dumps(entry([1], 0, 4)).encode(),) * 2), 4),
        "its header has 8 keys of which 4 differ: a name is given twice",
    ),
    "field twice": (
        file_of(b'{"a":{"dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
        "its header has 5 keys of which 4 differ",
    ),
    "large header": (
        file_of(b"{}".ljust(HEADER_LIMIT_BYTES + 1)),
        "its header has 4,194,305 bytes; the limit is 4,194,304, so that a hostile file cannot fill the memory",
    ),
    "a name of a million": (file_of({"x" * 10**6: entry([1], 0, 8)}, 8), r"tensor 'x{60}\.\.\.x{15}': its shape"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_by_file_tensor_and_reason(tmp_path, lie):
    data, reason = LIES[lie]
    path = tmp_path / "lies.safetensors"
    path.write_bytes(data)
    for read in (read_header, read_tensors):
        with pytest.raises(CheckpointError, match=rf"lies\.safetensors: .*({reason})") as caught:
            read(path)
        assert len(str(caught.value)) < 700


@pytest.mark.parametrize("cut", sorted(random.Random(3).sample(range(len(encoded(GOOD))), 20)))
def test_a_file_cut_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(encoded(GOOD)[:cut])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors: "):
        read_tensors(path)


def test_absent_files_and_folders_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"absent\.safetensors: cannot be read: No such file"):
        read_tensors(tmp_path / "absent.safetensors")
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        read_tensors(tmp_path)


def fill(piece: bytes, rest: bytes = b"") -> bytes:
    """A header of the largest size, full of one piece; {n} in it counts."""
    body = []
    size = len(rest) + 24
    n = 0
    while size + len(piece) + 8 < HEADER_LIMIT_BYTES:
        body.append(piece.replace(b"{n}", b"%x" % n))
        size += len(body[-1])
        n += 1
    return b"{" + b"".join(body) + rest + b"}"


LARGEST = {
    "tensors": lambda: fill(b'"{n}":{"dtype":"F32","shape":[],"data_offsets":[0,0]},', b'"x":1'),
    "honest": lambda: fill(
        b'"{n}":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},', b'"":' + json.dumps(entry([0], 0, 0)).encode()
    ),
    "metadata": lambda: b'{"__metadata__":' + fill(b'"{n}":"",', b'"x":1') + b"}",
    "numbers": lambda: b'{"a":[' + b"300," * 1_000_000 + b"1]}",
    "emoji": lambda: b'{"' + "😀".encode() * 1_000_000 + b'":1}',
    "quotes": lambda: b'{"' + b'\\"' * 2_000_000 + b'":1}',
}


# Run by itself: the checks that conftest puts into every call would take more memory than the reader does.
READ_AND_MEASURE = """
import resource, sys
from pathlib import Path
from unembed.checkpoints.formats.safetensors import read_header
from unembed.errors import CheckpointError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    print(len(read_header(Path(sys.argv[1])).tensors))
except CheckpointError as error:
    print(error)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_header_needs_less_than_a_hundred_megabytes(tmp_path, kind):
    path = tmp_path / "large.safetensors"
    path.write_bytes(file_of(LARGEST[kind]()))
    done = subprocess.run([sys.executable, "-c", READ_AND_MEASURE, path], capture_output=True, text=True, check=True)
    answer, grown_kib = done.stdout.rsplit("\n", 2)[:2]
    assert int(grown_kib) < 100_000
    assert "the limit is 4,194,304" not in answer
    if kind == "honest":
        assert int(answer) > 50_000
    else:
        assert "large.safetensors: " in answer


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to three small changes, most of them in the header."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        reach = len(out) if draw.random() < 0.2 else min(len(out), 8 + int.from_bytes(data[:8], "little"))
        at = draw.randrange(reach) if reach else 0
        kind = draw.randrange(7)
        if kind == 0 and out:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 9)))
        elif kind == 2:
            del out[at : at + draw.randint(1, 20)]
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            digits = [i for i, byte in enumerate(out[:reach]) if chr(byte).isdigit() and i >= 8]
            if digits:
                place = draw.choice(digits)
                out[place : place + 1] = draw.choice(
                    [b"0", b"9", b"-1", b"18446744073709551616", b"1e3", b"4294967296"]
                )
        elif kind == 5 and len(out) > 8:
            out[:8] = draw.choice([draw.randrange(2**16), draw.randrange(2**64), len(out) - 8]).to_bytes(8, "little")
        else:
            other = draw.randrange(reach) if reach else 0
            out[at:at] = out[other : other + draw.randint(1, 60)]
    return bytes(out)


def read_or_message(path):
    """The tensors, or the text of one of our errors; any other exception fails the test."""
    try:
        return read_tensors(path)
    except UnembedError as error:
        return str(error)


def read_mutants(folder, seeds):
    """Reads mutants, touching all they hold; gives how many were read and how many refused."""
    path = folder / "mutant.safetensors"
    good = encoded(GOOD)
    n_read = n_refused = 0
    for seed in seeds:
        # every second one with a corrected length, so that the change meets the header's reader and not its length
        mutant = mutate(good, random.Random(seed))
        if seed % 2 and len(mutant) > 8 + GOOD_DATA:
            mutant = (len(mutant) - 8 - GOOD_DATA).to_bytes(8, "little") + mutant[8:]
        path.write_bytes(mutant)
        found = read_or_message(path)
        if isinstance(found, str):
            n_refused += 1
            assert "mutant.safetensors" in found
        else:
            n_read += 1
            assert sum(len(bits(tensor)) for tensor in found.values()) <= len(mutant)
    return n_read, n_refused


GOOD_DATA = sum(tensor.nbytes for tensor in GOOD.values())


def test_three_hundred_mutants_raise_only_our_errors(tmp_path):
    n_read, n_refused = read_mutants(tmp_path, range(300))
    assert n_read >= 5
    assert n_refused >= 150


@pytest.mark.slow
def test_five_thousand_mutants_raise_only_our_errors(tmp_path):
    n_read, n_refused = read_mutants(tmp_path, range(10_000, 15_000))
    assert n_read >= 100
    assert n_refused >= 2500


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_property_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(struct.pack("<Q", max(len(data) - 3, 0)) + data)
    found = read_or_message(path)
    assert isinstance(found, dict) or "any.safetensors" in found
