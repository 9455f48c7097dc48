"""Rotary scaling in GGUF files: what llama.cpp divides by is what the model divides by, or the file is refused.

The files are written by this package's writer of bytes with keys and tensors put in by hand; what llama.cpp does with them is
its `load_hparams`, restated here: type linear unless the file names another, no factor for type none, the older key where
the newer is absent, and divisors beside all of it.
"""

import math

import pytest
import torch

from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.inspect import inspect
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError
from unembed.model.spec import LinearScaling, Llama3Scaling

D_HEAD, N_HEADS, THETA = 8, 4, 10_000.0
ROTARY = {"type": "rotary", "theta": THETA, "pairing": "half", "fraction": 1.0, "scaling": None}
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
LLAMA = changed(
    base(),
    embedding__d_model=N_HEADS * D_HEAD,
    block__attention__position=ROTARY,
    block__attention__d_head=D_HEAD,
    block__attention__score_scale=D_HEAD**-0.5,
    block__attention__n_heads=N_HEADS,
    block__attention__n_kv_heads=2,
    block__norm=RMS,
    block__mlp={"type": "gated", "d_mlp": 20, "activation": "silu", "has_bias": False},
    final_norm=RMS,
)
LLAMA3 = {"type": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
FREQS, TYPE, FACTOR, OLDER = "rope_freqs.weight", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"


def published(factor: float) -> list[float]:
    """The divisors of Llama 3.1 and 3.2, as Meta's `apply_scaling` slows wavelengths beyond 8192 / 4 positions."""
    made = []
    for pair in range(D_HEAD // 2):
        wavelength = 2 * math.pi * THETA ** (2 * pair / D_HEAD)
        kept = min(max((8192 / wavelength - 1) / (4 - 1), 0.0), 1.0)
        made.append(1 / (kept + (1 - kept) / factor))
    return made


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "m.gguf"
    gguf_export.write(small_model(LLAMA, dtype=torch.float32), path, name="m")
    return read_gguf(path)


@pytest.fixture
def written(plain, tmp_path):
    """A function that writes the plain file with other keys and tensors, and gives its path."""

    def write(keys=None, tensors=None, architecture="llama"):
        held = {name: plain.tensor(name) for name in plain.tensors}
        named = {f"{architecture}.{key}": value for key, value in (keys or {}).items()}
        write_gguf(tmp_path / "new.gguf", dict(plain.metadata) | named, held | (tensors or {}))
        return tmp_path / "new.gguf"

    return write


def scaling_of(path):
    return load(path).spec.blocks[-1].attention.position.scaling


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({FACTOR: 4.0}, 4.0),
        ({FACTOR: 4.0, TYPE: "linear"}, 4.0),
        ({FACTOR: 4.0, TYPE: "none"}, None),
        ({OLDER: 4.0}, 4.0),
        ({OLDER: 4.0, TYPE: "linear"}, 4.0),
        ({OLDER: 4.0, TYPE: "none"}, None),
        ({OLDER: 4.0, FACTOR: 4.0}, 4.0),
        ({FACTOR: 2.7}, 2.7),  # stored as 2.7000000477
        ({TYPE: "none"}, None),
        ({}, None),
    ],
)
def test_a_factor_divides_as_llama_cpp_divides(written, keys, expected):
    path = written(keys)
    assert scaling_of(path) == (None if expected is None else LinearScaling(factor=expected))
    if keys.get(TYPE) == "none" and len(keys) > 1:
        assert any("llama.cpp then divides by no factor" in one.reason for one in load(path).load_report.excused)


def test_a_factor_without_a_type_changes_the_numbers(written):
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    position = ROTARY | {"scaling": {"type": "linear", "factor": 4.0}}
    scaled = small_model(changed(LLAMA, block__attention__position=position), dtype=torch.float32)
    with torch.no_grad():
        found, wanted = load(written({FACTOR: 4.0}))(ids), scaled(ids)
        unscaled = load(written())(ids)
    assert torch.equal(found, wanted)
    assert (found - unscaled).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("keys", "divisors", "message"),
    [
        ({FACTOR: 4.0, OLDER: 2.0}, None, r"rope\.scaling\.factor is 4 and rope\.scale_linear is 2; they must agree"),
        ({TYPE: "linear"}, None, r"rope\.scaling\.type is linear and rope\.scaling\.factor is missing"),
        ({TYPE: "yarn", FACTOR: 4.0}, None, r"rope\.scaling\.type is 'yarn', expected one of linear, none"),
        ({FACTOR: 4.0, TYPE: "linear"}, published(8), r"scales its positions twice, by the factor 4 \(rope\.scaling"),
        ({FACTOR: 4.0}, published(8), "scales its positions twice"),
        ({OLDER: 4.0}, published(32), "scales its positions twice"),
        ({"rope.freq_base": "ten"}, published(8), r"rope\.freq_base is 'ten', expected a number above 0"),
        ({"rope.freq_base": "ten"}, None, r"rope\.freq_base is 'ten', expected a number above 0"),
        ({}, [1.0], "holds 1 divisors, expected 4: one for each pair of a head of 8 numbers"),
        ({}, published(8)[:3], "holds 3 divisors, expected 4"),
        ({}, [*published(8), 8.0], "holds 5 divisors, expected 4"),
        ({}, [], "holds 0 divisors, expected 4"),
        ({}, [1.0, 2.0, 3.0, 4.0], "belong to no published scaling"),
        ({}, [*published(8)[:3], published(8)[3] * 1.0001], "belong to no published scaling"),
        ({}, [1.0, 1.0, 1.0, 0.0], r"rope_freqs is \[1\.0, 1\.0, 1\.0, 0\.0\], expected a list of numbers above 0"),
        ({}, [1.0, 1.0, 1.0, math.nan], "expected a list of numbers above 0"),
        ({}, [1.0, 1.0, 1.0, math.inf], "expected a list of numbers above 0"),
        ({}, [[1.0, 1.0], [1.0, 1.0]], r"rope_freqs\.weight has shape \[2, 2\], expected one row of divisors"),
        ({}, [1.0] * 5000, r"has shape \[5000\], expected one row of divisors, .* at most 4,096"),
        ({}, 1.0, r"rope_freqs\.weight has shape \[\], expected one row of divisors"),
    ],
)
def test_what_is_no_scaling_of_this_model_is_refused_and_described(written, keys, divisors, message):
    path = written(keys, None if divisors is None else {FREQS: torch.tensor(divisors)})
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert inspect(path).problems == [str(caught.value)]


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("keys", [{}, {FACTOR: 1.0, TYPE: "linear"}, {FACTOR: 4.0, TYPE: "none"}])
def test_divisors_of_published_models_are_known_by_their_numbers(written, factor, keys):
    expected = Llama3Scaling(factor=factor, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192)
    assert scaling_of(written(keys, {FREQS: torch.tensor(published(factor))})) == expected


@pytest.mark.parametrize(
    "name", ["rope.freq_base", "block_count", "llama.rope_freqs", "llama.tie_word_embeddings", "\x1b[1m"]
)
def test_a_key_without_its_architecture_is_none_of_it(plain, tmp_path, name):
    """llama.cpp would not see it; nor may it pass for what the tensors say."""
    tensors = {key: plain.tensor(key) for key in plain.tensors}
    write_gguf(tmp_path / "m.gguf", dict(plain.metadata) | {name: 2}, tensors)
    with pytest.raises(
        CheckpointError, match=r"1 key has no meaning here: .*keys of this architecture begin with 'llama\.'"
    ) as caught:
        load(tmp_path / "m.gguf")
    assert repr(name) in str(caught.value)
    assert inspect(tmp_path / "m.gguf").problems == [str(caught.value)]


def test_a_vocabulary_from_a_table_that_is_none_is_missing_not_a_crash(plain, tmp_path):
    metadata = {key: value for key, value in plain.metadata.items() if key != "llama.vocab_size"}
    write_gguf(tmp_path / "m.gguf", metadata, {"token_embd.weight": torch.tensor(1.0), "a": torch.ones(1)})
    with pytest.raises(CheckpointError, match="vocab_size is missing"):
        load(tmp_path / "m.gguf")


CUSTOM = {"factor": 2.7, "low_frequency_factor": 1.1, "high_frequency_factor": 3.9, "original_context": 16}


@pytest.fixture
def custom(tmp_path):
    """A model whose scaling nobody has published, and its file."""
    model = small_model(
        changed(LLAMA, block__attention__position=ROTARY | {"scaling": LLAMA3 | CUSTOM}), dtype=torch.float32
    )
    gguf_export.write(model, tmp_path / "custom.gguf", name="m")
    return model, read_gguf(tmp_path / "custom.gguf")


def test_a_scaling_of_ones_own_comes_back(custom):
    model, file = custom
    back = load(file.path)
    assert back.spec == model.spec
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.no_grad():
        assert torch.equal(back(ids), model(ids))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"original_context": 17},
            r"holds other divisors than unembed\.llama3_scaling\.factor and its neighbours give",
        ),
        ({"factor": 2.8}, "holds other divisors than"),
        ({"factor": None}, r"unembed\.llama3_scaling\.factor is missing"),
        ({"factor": "two"}, r"unembed\.llama3_scaling\.factor is 'two', expected a number above 0"),
        ({"beta": 2.0}, r"1 config key has no meaning here: unembed\.llama3_scaling\.beta = 2\.0"),
        (dict.fromkeys(CUSTOM), "belong to no published scaling"),
    ],
)
def test_keys_and_divisors_of_ones_own_must_agree(custom, tmp_path, change, message):
    _, file = custom
    metadata = dict(file.metadata) | {f"unembed.llama3_scaling.{name}": value for name, value in change.items()}
    kept = {key: value for key, value in metadata.items() if value is not None}
    write_gguf(tmp_path / "new.gguf", kept, {name: file.tensor(name) for name in file.tensors})
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "new.gguf")


def test_keys_of_ones_own_without_divisors_are_refused(custom, tmp_path):
    _, file = custom
    tensors = {name: file.tensor(name) for name in file.tensors if name != FREQS}
    write_gguf(tmp_path / "new.gguf", dict(file.metadata), tensors)
    with pytest.raises(CheckpointError, match=r"4 config keys have no meaning here: unembed\.llama3_scaling\.factor"):
        load(tmp_path / "new.gguf")
