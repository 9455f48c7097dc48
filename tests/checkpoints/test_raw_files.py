"""Files of bare numbers: llama2.c's .bin against a direct reading, microGPT's by shape, and sizes that do not fit."""

import struct

import numpy as np
import pytest
import torch

from unembed.checkpoints.foreign.single_files import open_bin
from unembed.checkpoints.formats.llama2c import EXCUSED, Llama2cConfig, read_config, read_llama2c
from unembed.checkpoints.formats.microgpt import MicroGptShape, read_count, read_microgpt
from unembed.errors import CheckpointError, TokenizerError
from unembed.tokenizers.files import load

SMALL = (8, 12, 2, 2, 1, 5, 3)  # dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len


def llama2c_bytes(numbers=SMALL, *, n_floats=None) -> bytes:
    """A file of these seven numbers whose floats count up from 0; sizes worked out by hand, not by our code."""
    dim, hidden, layers, heads, kv_heads, vocab, seq = numbers
    kv, half = kv_heads * dim // heads, dim // heads // 2
    per_layer = 2 * dim + 2 * dim * dim + 2 * kv * dim + 3 * dim * hidden
    n = abs(vocab) * dim * (1 if vocab > 0 else 2) + layers * per_layer + dim + 2 * seq * half
    return struct.pack("<7i", *numbers) + np.arange(n if n_floats is None else n_floats, dtype="<f4").tobytes()


def test_oracle_llama2c_real_file(data):
    path = data / "weights" / "stories260K.bin"
    found = read_llama2c(path)
    assert found.config == Llama2cConfig(64, 172, 5, 8, 4, 512, 512, is_untied=False)
    floats = np.fromfile(path, dtype="<f4", offset=28)
    assert found.tensors["token_embedding_table"].tolist() == floats[: 512 * 64].reshape(512, 64).tolist()
    ends = 512 * 8 // 2  # the two tables of angles close the file; the final norm stands before them
    assert torch.equal(found.tensors["rms_final_weight"], torch.from_numpy(floats[-2 * ends - 64 : -2 * ends]))
    angles = np.outer(np.arange(512), 1 / 10000 ** (np.arange(0, 8, 2) / 8))
    assert np.allclose(found.tensors["freq_cis_real"].numpy(), np.cos(angles), atol=1e-4)
    assert np.allclose(found.tensors["freq_cis_imag"].numpy(), np.sin(angles), atol=1e-4)
    assert set(EXCUSED) < set(found.tensors)
    assert sum(tensor.numel() for tensor in found.tensors.values()) == len(floats)


@pytest.mark.parametrize("vocab_size", [5, -5])
def test_llama2c_order_of_tensors(tmp_path, vocab_size):
    path = tmp_path / "m.bin"
    path.write_bytes(llama2c_bytes((*SMALL[:5], vocab_size, 3)))
    found = read_llama2c(path)
    names = ["token_embedding_table", "rms_att_weight", "wq", "wk", "wv", "wo", "rms_ffn_weight", "w1", "w2", "w3"]
    names += ["rms_final_weight", "freq_cis_real", "freq_cis_imag"]
    assert list(found.tensors) == names + (["wcls"] if vocab_size < 0 else [])
    assert found.config.is_untied == (vocab_size < 0)
    begins = [int(tensor.reshape(-1)[0]) for tensor in found.tensors.values()]
    sizes = [40, 16, 128, 64, 64, 128, 16, 192, 192, 192, 8, 6, 6] + ([40] if vocab_size < 0 else [])
    assert begins == [sum(sizes[:i]) for i in range(len(sizes))]
    assert found.tensors["w2"].shape == (2, 8, 12)
    before = path.read_bytes()
    found.tensors["wq"].zero_()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes; a llama2.c file begins with 28"),
        (bytes(28), "its dim is 0, expected 1 to 16,777,216"),
        (llama2c_bytes()[:-1], r"dim 8, .* vocab_size 5, seq_len 3\) imply 4,.* bytes, but it has 4,"),
        (llama2c_bytes() + b"\0", "but it has"),
        (llama2c_bytes((8, 12, 2**30, 2, 1, 5, 3), n_floats=9), "its n_layers is 1073741824"),
        (llama2c_bytes((2**24, 2**24, 2**24, 2, 1, 5, 2**24), n_floats=9), "imply .* bytes, but it has 64"),
        (llama2c_bytes((8, 12, 2, 3, 1, 5, 3), n_floats=9), "3 heads do not divide dim 8"),
        (llama2c_bytes((8, 12, 2, 4, 3, 5, 3), n_floats=9), "3 key heads do not divide"),
        (llama2c_bytes((6, 12, 2, 2, 1, 5, 3), n_floats=9), "its heads are 3 wide; rotary"),
    ],
)
def test_llama2c_files_that_lie(tmp_path, content, message):
    path = tmp_path / "m.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"m.bin: .*{message}"):
        read_llama2c(path)


def run_c_ids(text: str, tokens: list[bytes], scores: list[float]) -> list[int]:
    """`encode` of run.c, restated: bytes of characters, then the best pair again and again. No start token."""
    id_of = {token: i for i, token in reversed(list(enumerate(tokens)))}
    ids = [id_of[b" "]] if text else []
    for character in text:
        data = character.encode()
        ids += [id_of[data]] if data in id_of else [byte + 3 for byte in data]
    while True:
        pairs = [
            (scores[i], -at, i)
            for at in range(len(ids) - 1)
            if (i := id_of.get(tokens[ids[at]] + tokens[ids[at + 1]])) is not None
        ]
        if not pairs:
            return ids
        _, at, merged = max(pairs)
        ids[-at : -at + 2] = [merged]


def test_oracle_tok512_encodes_as_run_c_does(data):
    raw = (data / "weights" / "tok512.bin").read_bytes()
    tokens, scores, at = [], [], 4
    while at < len(raw):
        score, size = struct.unpack_from("<fi", raw, at)
        tokens.append(raw[at + 8 : at + 8 + size])
        scores.append(score)
        at += 8 + size
    tokenizer = load(data / "weights" / "tok512.bin")
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.vocab_size) == (1, 2, 512)
    text = (data / "text" / "tinyshakespeare.txt").read_text()[:3000]
    for one in ["Once upon a time", "ñandú 깰 😀", " two  spaces\n", "", *text.split("\n\n")]:
        assert list(tokenizer.encode(one).ids) == run_c_ids(one, tokens, scores), one
        assert tokenizer.decode(tokenizer.encode(one).ids) == one


# --- microGPT

SHAPE = MicroGptShape(vocab_size=3, d_model=2, context_length=4, n_layers=2, d_mlp=8)
N_WEIGHTS = 3 * 2 + 4 * 2 + 3 * 2 + 2 * (4 * 4 + 2 * 16)


def microgpt_bytes(*, step=7, count=N_WEIGHTS, n_floats=3 * N_WEIGHTS) -> bytes:
    return struct.pack("<2i", step, count) + np.arange(n_floats, dtype="<f4").tobytes()


@pytest.mark.parametrize("has_moments", [True, False])
def test_microgpt_order_of_tensors(tmp_path, has_moments):
    path = tmp_path / "m.bin"
    path.write_bytes(microgpt_bytes(n_floats=N_WEIGHTS * (3 if has_moments else 1)))
    found = read_microgpt(path, SHAPE)
    assert (found.step, found.has_moments) == (7, has_moments)
    kinds = ("q", "k", "v", "o", "up", "down")
    assert list(found.tensors) == ["token_table", "position_table", "head"] + [
        f"layers.{i}.{k}" for i in (0, 1) for k in kinds
    ]
    assert found.tensors["head"].tolist() == [[14, 15], [16, 17], [18, 19]]
    assert found.tensors["layers.0.q"].tolist() == [[20, 21], [22, 23]]
    assert found.tensors["layers.1.down"].shape == (2, 8)
    assert found.tensors["layers.1.down"].reshape(-1)[-1] == N_WEIGHTS - 1


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (MicroGptShape(2305, 384, 1024, 6, 4 * 384), 12_780_288),
        (MicroGptShape(8449, 768, 1024, 12, 4 * 768), 98_698_752),
        (MicroGptShape(8449, 1536, 1024, 16, 4 * 1536), 480_513_024),
    ],
)
def test_microgpt_counts_are_the_published_ones(shape, count):
    assert sum(rows * columns for rows, columns in shape.shapes().values()) == count


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1234567", "has 7 bytes; a microGPT file begins with 8"),
        (
            microgpt_bytes()[:-1],
            "step 7 and 116 weights, which imply 1,400 bytes with Adam's moments or 472 without, but it has 1,399",
        ),
        (microgpt_bytes(n_floats=2 * N_WEIGHTS), "but it has 936"),
        (microgpt_bytes(count=2**31 - 1), "2,147,483,647 weights, which imply"),
        (microgpt_bytes(count=-1), "-1 weights"),
        (microgpt_bytes(step=-1), "step -1"),
        (
            microgpt_bytes(count=N_WEIGHTS + 1, n_floats=N_WEIGHTS + 1),
            "holds 117 weights, but the shape given .* has 116. Name",
        ),
    ],
)
def test_microgpt_files_that_lie(tmp_path, content, message):
    path = tmp_path / "m.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"m.bin: .*{message}"):
        read_microgpt(path, SHAPE)


def test_the_two_kinds_of_bin_are_told_apart_by_their_size(tmp_path):
    (tmp_path / "a.bin").write_bytes(llama2c_bytes())
    (tmp_path / "b.bin").write_bytes(microgpt_bytes())
    assert read_config(tmp_path / "a.bin").dim == 8
    assert read_count(tmp_path / "b.bin") == (7, N_WEIGHTS)
    with pytest.raises(CheckpointError):
        read_config(tmp_path / "b.bin")
    with pytest.raises(CheckpointError):
        read_count(tmp_path / "a.bin")


def test_a_tokenizer_is_told_from_a_model_that_was_cut_short(data, tmp_path):
    with pytest.raises(
        CheckpointError, match=r"tok512\.bin: is a tokenizer's file, which holds no weights; --tokenizer"
    ):
        open_bin(data / "weights" / "tok512.bin", None)
    cut = tmp_path / "cut.bin"
    cut.write_bytes((data / "weights" / "tok512.bin").read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"no llama2\.c file of version 0"):
        open_bin(cut, None)


def test_a_file_that_is_far_too_large_for_a_tokenizer_is_not_read(tmp_path):
    for name in ("huge.bin", "huge.model"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(20 << 30)
        with pytest.raises(TokenizerError, match=r"has 21,474,836,480 bytes, and no tokenizer has over 67,108,864"):
            load(tmp_path / name)
