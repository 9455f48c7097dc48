"""Packed matrices: their products are those of an oracle in NumPy, and what cannot be packed is said."""

import numpy as np
import pytest
import torch

from oracles import rounded
from unembed.errors import InputError, UsageError
from unembed.generation.weights import packing
from unembed.generation.weights.bags import cut
from unembed.generation.weights.joined import Joined
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
@pytest.mark.parametrize(("rows", "width"), [(5, 3), (48, 64), (129, 257), (640, 1100)])
@pytest.mark.parametrize("kind", ["float32", *ROUNDED])
def test_products_are_those_of_the_oracle(kind, rows, width, has_bias):
    weight, x = numbers(rows, width), numbers(1, width, seed=1)
    weight *= np.linspace(0.01, 3, rows, dtype=np.float32)[:, None]  # each row a scale of its own
    bias = numbers(rows, seed=2) if has_bias else None
    packed = pack(kind, torch.tensor(weight), None if bias is None else torch.tensor(bias), "w")
    found = as_numpy(packed.product(torch.tensor(x)))[0]
    exact = weight.astype(np.float64) @ x[0] + (0 if bias is None else bias)
    sizes = np.abs(weight).astype(np.float64) @ np.abs(x[0])
    if kind in ("float32", "int8"):
        said = weight if kind == "float32" else rounded.int8_blocks(weight, packed._blocks.width)
        expected = said.astype(np.float64) @ x[0] + (0 if bias is None else bias)
        # float32 sums of one column after the other: n roundings at most, each of half a unit
        assert (np.abs(found - expected) <= width * 2.0**-24 * (sizes + np.abs(expected)) + 1e-6).all()
        assert kind == "float32" or np.abs(found - exact).max() > 1e-3  # it is rounded indeed
        return
    to = getattr(rounded, kind)
    expected = to(weight) @ to(x[0])
    # the kernel rounds the sum to the type again
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[kind]
    sizes = np.abs(to(weight)) @ np.abs(to(x[0]))
    assert (
        np.abs(found - expected - (0 if bias is None else bias)) <= unit * np.abs(expected) + 1e-5 * sizes + 1e-6
    ).all()


@pytest.mark.skipif(unavailable("int8", CPU) is not None, reason="no kernel for bytes on this processor")
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 1e9, 1e30])
def test_bytes_keep_their_worth_at_any_size_of_numbers(scale):
    """A row errs by a 255th of its largest number at most, however small or large that is, and beside far larger ones."""
    weight = torch.tensor(numbers(300, 20)) * scale
    weight[:, 3], weight[7], weight[11] = -2.5 * scale, 0.0, weight[11] * 300
    for column in range(20):
        found = pack("int8", weight, None, "w").product(
            torch.nn.functional.one_hot(torch.tensor([column]), 20).float()
        )[0]
        assert ((found - weight[:, column]).abs() <= 1.001 / 255 * weight.abs().amax(1)).all()


@pytest.mark.parametrize("kind", ["float32", *ROUNDED])
def test_a_vector_may_lie_in_memory_as_it_likes(kind):
    """Repeated, every second number, a column of one: a kernel that knows no strides must not see them."""
    packed = pack(kind, torch.tensor(numbers(500, 64)), None, "w")
    for x in (torch.ones(1, 1).expand(1, 64), torch.tensor(numbers(1, 128))[:, ::2], torch.tensor(numbers(64, 1)).t()):
        assert torch.equal(packed.product(x), packed.product(x.contiguous().clone()))
    narrow = torch.tensor(numbers(12289, 1))
    found = pack(kind, narrow, None, "w").product(torch.full((1, 1), 2.0))
    assert torch.allclose(found[0], 2 * narrow[:, 0], rtol=1e-2)


@pytest.mark.parametrize("kind", ["float32", *ROUNDED])
@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16])
def test_packing_does_not_ask_for_the_default_type(kind, other):
    weight, x = torch.tensor(numbers(48, 64)), torch.tensor(numbers(1, 64, seed=1))
    expected = pack(kind, weight, None, "w").product(x)
    before = torch.get_default_dtype()
    torch.set_default_dtype(other)
    try:
        assert unavailable(kind, CPU) is None
        assert torch.equal(pack(kind, weight, None, "w").product(x), expected)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("kind", ["float32", *ROUNDED])
def test_bytes_are_those_of_the_packed_numbers(kind):
    expected = {
        "float32": 4 * 48 * 64,
        "bfloat16": 2 * 48 * 64,
        "float16": 2 * 48 * 64,
        "int8": (48 + 8) * 64 + 4 * 48,
    }[kind]
    assert pack(kind, torch.tensor(numbers(48, 64)), None, "w").n_bytes == expected


def test_numbers_that_do_not_fit_are_named():
    weight = torch.full((2, 2), 7e4)
    with pytest.raises(InputError, match=r"blocks\.0\.mlp\.up holds 7e\+04, and float16 ends at 65504; take bfloat16"):
        pack("float16", weight, None, "blocks.0.mlp.up")
    weight[0, 0] = 3.4e38
    with pytest.raises(InputError, match=r"w holds 3\.4e\+38, and bfloat16 ends at 3\.38953e\+38; take float32"):
        pack("bfloat16", weight, None, "w")
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
    monkeypatch.setattr(packing, "_reads_bytes", lambda: False)
    assert "no kernel for bytes on this processor; take float16 or bfloat16" in unavailable("int8", CPU)
    assert "int8 weights are made for processors, and the model is on meta" in unavailable("int8", torch.device("meta"))

    def missing(*_, **__):
        raise NotImplementedError("not implemented for Half")

    monkeypatch.setattr(torch, "embedding_bag", missing)
    monkeypatch.setattr(packing.F, "linear", missing)
    assert unavailable("float16", CPU) == "torch has no float16 product on cpu here; take float32"


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_by_rows_and_by_columns_16_bits_give_the_same_to_a_rounding(kind, monkeypatch):
    weight, bias, x = (torch.tensor(numbers(*shape)) for shape in ((640, 1100), (640,), (1, 1100)))
    found = []
    for has in (True, False):
        monkeypatch.setattr(packing, "has_bags", lambda device, has=has: has)
        found.append(pack(kind, weight, bias, "w"))
    assert [type(one).__name__ for one in found] == ["Columns", "Rows"]
    columns, rows = (one.product(x) for one in found)
    unit = 2.0**-7 if kind == "bfloat16" else 2.0**-10
    assert ((columns - rows).abs() <= unit * (columns - bias).abs() + 1e-4).all()


@pytest.mark.skipif(unavailable("int8", CPU) is not None, reason="no kernel for bytes on this processor")
def test_seeded_a_kernel_that_computes_something_else_is_not_taken(monkeypatch):
    kernel = torch.ops.quantized.embedding_bag_byte_rowwise_offsets

    class Off:
        def embedding_bag_byte_rowwise_offsets(self, *given):
            return kernel(*given) * 1.01

    monkeypatch.setattr(torch.ops, "quantized", Off())
    assert "no kernel for bytes" in unavailable("int8", CPU)


@pytest.mark.parametrize("kind", ["float32", *ROUNDED])
def test_joined_projections_give_what_each_gives_alone(kind):
    """One product for three, biases where there are some."""
    owns = [Projection(16, width, has_bias=width != 8) for width in (24, 8, 8)]
    for number, own in enumerate(owns):
        own.weight.data = torch.tensor(numbers(*own.weight.shape, seed=number))
        if own.bias is not None:
            own.bias.data = torch.tensor(numbers(len(own.bias), seed=10 + number))
    x = torch.tensor(numbers(1, 1, 16, seed=5))
    with torch.no_grad():
        parts = Joined(owns, kind, "w").parts(x, owns)
        for found, own in zip(parts, owns, strict=True):
            weight = own.weight
            if kind == "int8":  # steps are those of all rows of a block together
                rows = torch.cat([one.weight for one in owns])
                said = torch.tensor(rounded.int8_blocks(rows.numpy(), cut(*rows.shape).width)).float()
                weight = dict(zip(owns, said.split([24, 8, 8]), strict=True))[own]
            exact = "float32" if kind == "int8" else kind
            one = pack(exact, weight, own.bias, "w").product(x.view(1, -1))
            assert found.shape == (1, 1, one.shape[1])
            assert torch.allclose(found[0], one, rtol=1e-6, atol=3e-6)
