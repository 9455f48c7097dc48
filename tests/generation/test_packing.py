"""Packed matrices: their products are those of an oracle in NumPy, and what cannot be packed is said."""

import numpy as np
import pytest
import torch

from oracles import rounded
from unembed.errors import InputError, UsageError
from unembed.generation.weights import packing
from unembed.generation.weights.modules import Joined
from unembed.generation.weights.packing import KINDS, check_kind, pack, unavailable
from unembed.model.linear import Projection

CPU = torch.device("cpu")
ROUNDED = [
    pytest.param(
        kind, marks=pytest.mark.skipif(unavailable(kind, CPU) is not None, reason=f"no {kind} kernel on this processor")
    )
    for kind in KINDS
    if kind != "float32"
]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def as_numpy(tensor):
    return tensor.double().numpy()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(5, 3), (48, 64), (129, 257)])
@pytest.mark.parametrize("kind", ROUNDED)
def test_products_are_those_of_the_oracle(kind, rows, width, has_bias):
    weight, x = numbers(rows, width), numbers(1, width, seed=1)
    weight *= np.linspace(0.01, 3, rows, dtype=np.float32)[:, None]  # each row a scale of its own
    bias = numbers(rows, seed=2) if has_bias else None
    packed = pack(kind, torch.tensor(weight), None if bias is None else torch.tensor(bias), "w")
    found = as_numpy(packed.product(torch.tensor(x)))[0]
    if kind == "int8":
        expected = [rounded.int8_product(weight, x[0], bias, steps) for steps in (255, 127)]
        # the sums are whole numbers; only the two scales are rounded, and one entry of the vector may lie at half a step
        step = float(x.max() - x.min()) / 127
        worst = min(float(np.abs((found - one) / (np.abs(weight).max(1) * step)).max()) for one in expected)
        assert worst <= 1.01
        exact = weight.astype(np.float64) @ x[0] + (0 if bias is None else bias)
        assert np.abs(found - exact).max() > 1e-5  # it is rounded indeed
        return
    to = getattr(rounded, kind)
    expected = to(weight) @ to(x[0])
    # the kernel rounds the sum to the type again
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[kind]
    sizes = np.abs(to(weight)) @ np.abs(to(x[0]))
    assert (
        np.abs(found - expected - (0 if bias is None else bias)) <= unit * np.abs(expected) + 1e-5 * sizes + 1e-6
    ).all()


@pytest.mark.skipif(unavailable("int8", CPU) is not None, reason="no int8 kernel on this processor")
def test_extreme_entries_do_not_overflow_inside_the_int8_kernel():
    """Sums of pairs of 255 * 127 pass 16 bits: on processors where they would, the vector has 7 bits."""
    weight = torch.full((16, 256), 2.0)
    found = pack("int8", weight, None, "w").product(torch.full((1, 256), 3.0))
    assert torch.allclose(found, torch.full((1, 16), 6.0 * 256), rtol=0.01)


@pytest.mark.skipif(unavailable("int8", CPU) is not None, reason="no int8 kernel on this processor")
def test_a_row_of_zeros_gives_zero_and_the_engine_of_the_process_is_left_alone():
    before = torch.backends.quantized.engine
    weight = torch.tensor(numbers(4, 8))
    weight[2] = 0
    found = pack("int8", weight, None, "w").product(torch.tensor(numbers(1, 8)))
    assert float(found[0, 2]) == 0.0
    assert bool(torch.isfinite(found).all())
    assert torch.backends.quantized.engine == before


@pytest.mark.parametrize("kind", ROUNDED)
def test_bytes_are_those_of_the_packed_numbers(kind):
    expected = {"bfloat16": 2 * 48 * 64, "float16": 2 * 48 * 64, "int8": 48 * 64 + 4 * 48}[kind]
    assert pack(kind, torch.tensor(numbers(48, 64)), None, "w").n_bytes == expected


def test_numbers_that_do_not_fit_are_named():
    weight = torch.full((2, 2), 7e4)
    with pytest.raises(InputError, match=r"blocks\.0\.mlp\.up holds 7e\+04, and float16 ends at 65504; take bfloat16"):
        pack("float16", weight, None, "blocks.0.mlp.up")
    weight[0, 0] = float("nan")
    for kind in ("bfloat16", "float16", "int8"):
        with pytest.raises(InputError, match=r"w holds a number that is not finite"):
            pack(kind, weight, None, "w")


@pytest.mark.parametrize("kind", ["int4", "", None, 8, "INT8", "float64"])
def test_other_kinds_are_refused_with_those_that_there_are(kind):
    with pytest.raises(UsageError, match=r"is no kind of weights; it must be one of float32, bfloat16, float16, int8"):
        check_kind(kind)


def test_where_a_kernel_is_missing_it_is_said_what_to_take(monkeypatch):
    assert unavailable("float32", CPU) is None
    monkeypatch.setattr(packing, "_ENGINES", ())
    assert "no int8 kernel for this processor; take float16 or bfloat16" in unavailable("int8", CPU)
    assert "int8 weights are made for processors, and the model is on meta" in unavailable("int8", torch.device("meta"))

    def missing(*_):
        raise NotImplementedError("not implemented for Half")

    monkeypatch.setattr(packing.F, "linear", missing)
    assert unavailable("float16", CPU) == "torch has no float16 product on cpu here; take float32"


@pytest.mark.skipif(unavailable("int8", CPU) is not None, reason="no int8 kernel on this processor")
def test_seeded_an_engine_that_computes_something_else_is_not_taken(monkeypatch):
    monkeypatch.setattr(torch.ops.quantized, "linear_dynamic", lambda x, *_: x * 2)
    assert packing._int8_engine() is None


@pytest.mark.parametrize("kind", ROUNDED)
def test_joined_projections_give_what_each_gives_alone(kind):
    """One product for three, biases where there are some; a part of another vector is never taken for this one's."""
    owns = [Projection(16, width, has_bias=width != 8) for width in (24, 8, 8)]
    for number, own in enumerate(owns):
        own.weight.data = torch.tensor(numbers(*own.weight.shape, seed=number))
        if own.bias is not None:
            own.bias.data = torch.tensor(numbers(len(own.bias), seed=10 + number))
    joined = Joined(owns, kind, "w")
    vectors = [torch.tensor(numbers(1, 1, 16, seed=seed)) for seed in (5, 6)]
    alone = [[pack(kind, own.weight, own.bias, "w").product(x.view(1, -1)) for own in owns] for x in vectors]
    for at, number in [(0, 0), (0, 1), (0, 2), (0, 2), (1, 0), (0, 1), (1, 1), (1, 2)]:
        found = joined.part(vectors[at], number, owns[number])
        assert found.shape == (1, 1, owns[number].weight.shape[0])
        assert torch.allclose(found[0], alone[at][number], rtol=1e-6, atol=1e-6)
