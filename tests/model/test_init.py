"""How a model starts: the table of tensors is the modules' own, each starts as it says, no other randomness moves."""

import math

import numpy as np
import pytest
import torch

from oracles.mixtures import random_spec
from oracles.specs import NORMS, base, changed, variants
from oracles.weights import shapes
from unembed.model.check import from_plain
from unembed.model.counts import tensors
from unembed.model.init import AndreaInit, Gpt2Init, ZeroOutInit, build, init_table
from unembed.model.transformer import Transformer

SPECS = {**variants(), **{f"mixture_{seed}": random_spec(seed) for seed in range(40)}}
# wide enough that a standard deviation can be told: at least 1,000 numbers in each matrix
WIDE = changed(
    base(n_layers=3),
    embedding__vocab_size=80,
    embedding__d_model=40,
    embedding__position={"type": "learned", "n_rows": 60, "offset": 0},
    embedding__n_token_types=30,
    block__attention__n_heads=8,
    block__attention__n_kv_heads=4,
    block__attention__d_head=7,
    block__attention__biases=["q", "k", "v", "o"],
    block__mlp={"type": "gated", "d_mlp": 90, "activation": "silu", "has_bias": True},
    head={
        "type": "untied",
        "transform": {"activation": "gelu", "norm": NORMS["layer_norm"]},
        "has_bias": True,
        "scale": None,
        "softcap": None,
    },
)
INITS = {"gpt2": Gpt2Init(std=0.02), "andrea": AndreaInit(), "zero_out": ZeroOutInit(std=0.05)}
RESIDUAL = (".o_proj.weight", ".down.weight")


@pytest.mark.parametrize("name", SPECS)
def test_table_of_tensors_is_that_of_the_modules(name):
    """Names, shapes and order: what is counted without torch is what torch holds, and what the oracle expects."""
    spec = from_plain(SPECS[name])
    listed = {tensor.name: tensor.shape for tensor in tensors(spec)}
    with torch.device("meta"):
        held = {n: tuple(p.shape) for n, p in Transformer(spec).named_parameters()}
    assert listed == held == shapes(SPECS[name])
    assert [start.info.name for start in init_table(spec, INITS["gpt2"])] == list(listed)


def expected_std(init, tensor, n_layers):
    """The documents' numbers, written a second time."""
    depth = 1 / math.sqrt(2 * n_layers) if tensor.name.endswith(RESIDUAL) else 1.0
    match init:
        case Gpt2Init():
            return 0.02 * depth
        case ZeroOutInit():
            return 0.0 if tensor.name.endswith(RESIDUAL) else 0.05
        case AndreaInit():
            return depth / math.sqrt(40 if tensor.kind == "table" else tensor.shape[1])


@pytest.mark.parametrize("kind", INITS)
def test_every_tensor_starts_as_the_table_says(kind):
    """Means within 4 standard errors of 0 and deviations within 4 of the stated one; gains 1, biases 0."""
    init, spec = INITS[kind], from_plain(WIDE)
    model = build(spec, init, seed=3)
    parameters = dict(model.named_parameters())
    for tensor in tensors(spec):
        values = parameters[tensor.name].detach().double().numpy()
        if tensor.kind in ("gain", "bias"):
            assert (values == (1.0 if tensor.kind == "gain" else 0.0)).all(), tensor.name
            continue
        std = expected_std(init, tensor, 3)
        n = values.size
        assert n >= 1000, tensor.name
        assert abs(values.mean()) <= 4 * std / math.sqrt(n), tensor.name
        assert abs(values.std() - std) <= 4 * std / math.sqrt(2 * n), tensor.name
        if std:
            # normal, not uniform: about 1 in 370 lies beyond three deviations, and none of a uniform
            assert (np.abs(values) > 3 * std).any() or n < 1500, tensor.name


@pytest.mark.parametrize("name", [name for name in SPECS if "one_plus" in name or name.startswith("mixture_")])
def test_gains_start_so_that_every_norm_multiplies_by_one(name):
    plain = SPECS[name]
    model = build(from_plain(plain), Gpt2Init(std=0.02), seed=0)
    found = 0
    for path, module in model.named_modules():
        gain = getattr(module, "gain", None)
        if isinstance(gain, torch.nn.Parameter):
            start = 0.0 if getattr(module, "is_one_plus", False) else 1.0
            assert (gain == start).all(), path
            found += start == 0.0
    if "one_plus" in name:
        assert found


def test_zero_out_makes_every_block_the_identity_at_first():
    model = build(from_plain(base()), ZeroOutInit(std=0.5), seed=0)
    seen = []

    class Watch:
        def __call__(self, name, value):
            if name in ("resid_pre", "resid_post"):
                seen.append(value)
            return value

        def inside(self, layer):
            return self

    model(torch.arange(8)[None], tap=Watch())
    assert len(seen) == 4
    assert all(torch.equal(seen[0], value) for value in seen[1:])


def test_same_seed_gives_the_same_bits_and_another_seed_none_of_them():
    spec = from_plain(WIDE)
    first, again, other = (dict(build(spec, INITS["gpt2"], seed=s).named_parameters()) for s in (1, 1, 2))
    for name, values in first.items():
        assert torch.equal(values, again[name])
        if values.ndim > 1:
            assert (values != other[name]).all(), name


def test_numbers_do_not_depend_on_the_type_they_are_kept_in():
    spec = from_plain(WIDE)
    single, half, double = (
        dict(build(spec, INITS["andrea"], seed=1, dtype=dtype).named_parameters())
        for dtype in (torch.float32, torch.bfloat16, torch.float64)
    )
    for name, values in single.items():
        assert torch.equal(values.bfloat16(), half[name])
        assert torch.equal(values.double(), double[name])


def test_no_two_tensors_start_alike():
    """One generator for all: a seed set anew for each tensor would give equal numbers to equal shapes."""
    model = build(from_plain(WIDE), INITS["gpt2"], seed=1)
    starts = [tuple(p.detach().view(-1)[:3].tolist()) for p in model.parameters() if p.ndim > 1]
    assert len(set(starts)) == len(starts)


def test_building_leaves_the_global_generators_alone():
    torch.manual_seed(11)
    np.random.seed(11)
    expected = (torch.rand(4), np.random.rand(4))
    torch.manual_seed(11)
    np.random.seed(11)
    build(from_plain(SPECS["embed_everything"]), INITS["gpt2"], seed=1)
    Transformer(from_plain(SPECS["untied_head_everything"]))
    assert torch.equal(torch.rand(4), expected[0])
    assert (np.random.rand(4) == expected[1]).all()
