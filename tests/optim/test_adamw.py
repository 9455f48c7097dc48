"""AdamW: who decays, and one step after another against the formula in float64 NumPy."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from oracles.specs import NORMS, base, changed
from small import small_model
from unembed.model.counts import count
from unembed.optim.adamw import AdamW, AdamWConfig, make_adamw, parameter_groups

CONFIG = AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.5)
LEARNED = {"type": "learned", "n_rows": 12, "offset": 0}
BIASED_HEAD = {"type": "untied", "transform": None, "has_bias": True, "scale": None, "softcap": None}
SPECS = {
    "tied": base(),
    "untied_biased_head": changed(base(), head=BIASED_HEAD),
    **{f"norm_{name}": changed(base(), block__norm=norm, final_norm=norm) for name, norm in NORMS.items()},
    "tables": changed(
        base(), embedding__position=LEARNED, embedding__n_token_types=2, embedding__norm=NORMS["rms_norm"]
    ),
    "qk_norm_and_biases": changed(
        base(), block__attention__qk_norm=NORMS["rms_norm"], block__attention__biases=["q", "k", "v", "o"]
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_each_parameter_is_in_exactly_one_group(name):
    """A04a: the groups together hold every unique parameter once, and no more."""
    model = small_model(SPECS[name])
    optimizer, sizes = make_adamw(model, CONFIG)
    in_groups = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(in_groups) == len(set(in_groups))
    assert set(in_groups) == {id(p) for p in model.parameters()}
    assert sizes.decayed + sizes.undecayed == count(model.spec).parameters


@pytest.mark.parametrize("name", SPECS)
def test_zero_gradients_leave_only_the_decay(name):
    """A04b: with rate 0.1 and decay 0.5 matrices and tables shrink to 0.95, once; gains and biases do not move."""
    model = small_model(SPECS[name], dtype=torch.float32)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer, _ = make_adamw(model, CONFIG)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name_, parameter in model.named_parameters():
        is_vector = name_.endswith((".bias", ".gain"))
        if is_vector:
            assert torch.equal(parameter, before[name_]), name_
        else:
            torch.testing.assert_close(parameter.detach(), before[name_] * 0.95, rtol=2e-7, atol=0)


def test_shared_parameter_named_twice_is_grouped_once():
    table = torch.nn.Parameter(torch.ones(3, 2))
    gain = torch.nn.Parameter(torch.ones(2))
    decayed, undecayed = parameter_groups([("embed.table", table), ("gain", gain), ("head.table", table)])
    assert [name for name, _ in decayed] == ["embed.table"]
    assert [name for name, _ in undecayed] == ["gain"]


def test_model_without_vectors_makes_one_group():
    bare = changed(base(), block__norm=NORMS["rms_norm_no_gain"], final_norm=None, block__mlp__has_bias=False)
    optimizer, sizes = make_adamw(small_model(bare), CONFIG)
    assert len(optimizer.param_groups) == 1
    assert sizes.undecayed == 0


def test_oracle_steps_equal_the_formula(generator):
    """theta <- theta (1 - rate * decay) - rate * m_hat / (sqrt(v_hat) + eps), for five steps of changing rate."""
    model = small_model()
    optimizer, _ = make_adamw(model, CONFIG)
    theta = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    m = {n: np.zeros_like(v) for n, v in theta.items()}
    v = {n: np.zeros_like(x) for n, x in theta.items()}
    for step, rate in enumerate((0.1, 0.03, 0.02, 0.5, 0.01), start=1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            g = parameter.grad.numpy()
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.99 * v[name] + 0.01 * g * g
            decay = 0.5 if g.ndim >= 2 else 0.0
            update = (m[name] / (1 - 0.9**step)) / (np.sqrt(v[name] / (1 - 0.99**step)) + 1e-8)
            theta[name] = theta[name] * (1 - rate * decay) - rate * update
        optimizer.step()
        for name, parameter in model.named_parameters():
            np.testing.assert_allclose(parameter.detach().numpy(), theta[name], rtol=1e-11, atol=1e-12, err_msg=name)


def test_oracle_bits_equal_those_of_torchs_own_class(generator):
    ours, theirs = (small_model(SPECS["tables"], dtype=torch.float32) for _ in range(2))
    optimizer, _ = make_adamw(ours, CONFIG)
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim >= 2], "weight_decay": CONFIG.weight_decay},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    expected = torch.optim.AdamW(groups, betas=(CONFIG.beta1, CONFIG.beta2), eps=CONFIG.eps, fused=True)
    for rate in (0.1, 0.03, 0.5):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for group in (*optimizer.param_groups, *expected.param_groups):
            group["lr"] = rate
        optimizer.step()
        expected.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
        for entry, value in expected.state[other].items():
            assert torch.equal(optimizer.state[one][entry], value), entry


def test_a_parameter_in_two_groups_is_refused():
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="a parameter appears in more than one place"):
        AdamW([{"params": [parameter]}, {"params": [parameter]}])


def test_gradients_are_forgotten_or_filled_with_zeros():
    optimizer, _ = make_adamw(small_model(), CONFIG)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in parameters[1:]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.zero_grad(set_to_none=False)
    assert parameters[0].grad is None
    assert all(torch.equal(one.grad, torch.zeros_like(one)) for one in parameters[1:])
    optimizer.zero_grad()
    assert all(one.grad is None for one in parameters)


def test_a_closure_is_called_with_gradients_on():
    model = small_model()
    optimizer, _ = make_adamw(model, CONFIG)
    assert optimizer.step(torch.is_grad_enabled) is True


@pytest.mark.slow
def test_making_one_imports_no_compiler():
    """torch's own classes import torch._dynamo, which takes as long as torch itself."""
    code = (
        "import sys, torch\n"
        "from unembed.optim.adamw import AdamW\n"
        "p = torch.nn.Parameter(torch.ones(2)); p.grad = torch.ones(2)\n"
        "o = AdamW([{'params': [p], 'betas': (0.9, 0.99), 'eps': 1e-8, 'weight_decay': 0.0}])\n"
        "o.step(); o.zero_grad()\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
