"""The product by oneDNN: the same as `F.linear` in values and gradients, and left to it wherever torch is looked at."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from unembed import runtime
from unembed.model import product as module
from unembed.model.product import product, suits

# float32 sums of up to 96 terms of order one, in another order
TOLERANCE = 3e-5


@pytest.fixture
def called(monkeypatch):
    """Small products take oneDNN, too, and on every maker's processor; a list of those that did."""
    if not module.has_onednn():
        pytest.skip("needs oneDNN on a processor with AVX-512")
    found, plain = [], module._onednn
    monkeypatch.setattr(module, "_is_quicker_here", lambda: True)
    monkeypatch.setattr(module, "LEAST_WORK", 1)
    monkeypatch.setattr(module, "LEAST_WORK_ONE_ROW", 1)
    monkeypatch.setattr(module, "LEAST_WORK_LEARNING", 1)
    monkeypatch.setattr(module, "_onednn", lambda *given: found.append(given) or plain(*given))
    return found


def tensors(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(96,), (1, 96), (7, 96), (2, 3, 96), (2, 3, 5, 96), (0, 96)])
def test_values_and_gradients_are_those_of_linear(called, shape, has_bias):
    x, weight, bias = tensors(shape, (33, 96), (33,))
    given = [one.requires_grad_() for one in ((x, weight, bias) if has_bias else (x, weight))]
    out, expected = product(*given), F.linear(*(one.double() for one in given))
    assert out.shape == expected.shape
    assert torch.allclose(out.double(), expected, atol=TOLERANCE, rtol=0)
    slope = tensors(out.shape, seed=1)[0]
    found = torch.autograd.grad(out, given, slope)
    right = torch.autograd.grad(F.linear(*given), given, slope)
    for one, other in zip(found, right, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, atol=TOLERANCE, rtol=0)
    assert bool(called) is (x.numel() > 0)


def test_only_the_gradients_that_are_wanted_are_made(called):
    x, weight, bias = tensors((4, 96), (33, 96), (33,))
    for wanted in ([x], [weight], [bias], [x, bias]):
        for one in (x, weight, bias):
            one.requires_grad_(any(one is other for other in wanted))
        total = product(x, weight, bias).sum()
        for one, found in zip(wanted, torch.autograd.grad(total, wanted), strict=True):
            right = torch.autograd.grad(F.linear(x, weight, bias).sum(), one)[0]
            assert torch.allclose(found, right, atol=TOLERANCE, rtol=0)
    assert called


def test_gradients_of_gradients_exist(called):
    x, weight = (one.requires_grad_() for one in tensors((4, 96), (33, 96)))

    def second(function):
        first = torch.autograd.grad(function(x, weight).square().sum(), x, create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), weight)[0]

    right = second(F.linear)
    assert torch.allclose(second(product), right, atol=1e-4 * float(right.abs().max()), rtol=0)
    assert called


def test_transposed_and_strided_operands_give_the_same(called):
    wide, weight = tensors((5, 192), (33, 96))
    x = wide[:, ::2]
    for stored in (weight, weight.t().contiguous().t()):
        assert torch.allclose(product(x, stored), F.linear(x, weight), atol=TOLERANCE, rtol=0)
    assert len(called) == 2
    # part of a matrix is no dense matrix: oneDNN would take a thousand times as long
    part = torch.cat((weight, weight)).t().contiguous().t()[:33]
    assert torch.allclose(product(x, part), F.linear(x, weight), atol=TOLERANCE, rtol=0)
    assert len(called) == 2


def test_what_watches_or_replaces_torchs_operators_sees_them(called):
    x, weight = tensors((5, 96), (33, 96))

    seen = []

    class Names(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Names():
        product(x, weight)
    assert "linear" in seen
    with FlopCounterMode(display=False) as counter:
        product(x, weight)
    assert counter.get_total_flops() == 2 * 5 * 96 * 33
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product(x, weight).dtype == torch.bfloat16
    rows = torch.func.vmap(lambda one: product(one, weight))(x)
    assert torch.allclose(rows, F.linear(x, weight), atol=TOLERANCE, rtol=0)
    assert product(x.to("meta"), weight.to("meta")).shape == (5, 33)
    assert not called


@pytest.mark.usefixtures("unchecked")
def test_compiled_code_sees_it_as_linear(called):
    x, weight = tensors((5, 96), (33, 96))
    compiled = torch.compile(lambda x, weight: product(x, weight), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, weight), F.linear(x, weight))
    assert not called


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types_are_left_to_linear(called, dtype):
    x, weight = (one.to(dtype) for one in tensors((5, 96), (33, 96)))
    assert torch.equal(product(x, weight), F.linear(x, weight))
    assert not called


def test_the_switch_of_torch_turns_it_off(called):
    x, weight = tensors((5, 96), (33, 96))
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(product(x, weight), F.linear(x, weight))
    assert not called
    product(x, weight)
    assert called


def test_a_bias_that_is_no_dense_row_is_left_to_linear(called):
    """oneDNN reads such a one beyond its end."""
    x, weight = tensors((5, 96), (33, 96))
    for bias in (
        torch.randn(66)[::2],
        torch.randn(1).expand(33),
        torch.tensor(3.0),
        torch.randn(1),
        torch.randn(5, 33),
    ):
        assert torch.equal(product(x, weight, bias), F.linear(x, weight, bias))
    assert not called


def test_forward_mode_derivatives_are_kept(called):
    x, tangent, weight = tensors((5, 96), (5, 96), (33, 96))
    with forward_ad.dual_level():
        made = forward_ad.unpack_dual(product(forward_ad.make_dual(x, tangent), weight)).tangent
    assert torch.allclose(made, F.linear(tangent, weight), atol=TOLERANCE, rtol=0)
    assert not called


SHAPES = """
import torch
from unembed.model.product import product
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
weight, rows = torch.randn(768, 768), torch.randn(1000, 768)
product(rows, weight)
before = resident()
for n in range(64, 464):
    product(rows[:n], weight)
print(resident() - before)
"""


@pytest.mark.slow  # a process of its own, in which oneDNN has not run before
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_products_of_many_shapes_leave_memory_bounded():
    """oneDNN keeps code for each shape: by itself 0.5 GB for these."""
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250_000_000


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_refused_as_linear_does(called):
    for shapes in (((5, 95), (33, 96)), ((), (33, 96))):
        messages = []
        for function in (product, F.linear):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                function(*tensors(*shapes))
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    assert not called


@pytest.mark.usefixtures("unchecked")
def test_small_products_and_shapes_that_do_not_fit_are_left_to_linear():
    x, weight = tensors((5, 96), (33, 96))
    assert not suits(x, weight, learns=False)
    with pytest.raises(RuntimeError):
        product(torch.randn(4096, 95), torch.randn(4096, 96))
    with pytest.raises(RuntimeError):
        product(torch.randn(4096, 96), torch.randn(4096, 96), torch.randn(5))


def test_where_mkl_is_at_home_it_gets_everything(called, monkeypatch):
    x, weight = tensors((5, 96), (33, 96))
    monkeypatch.undo()
    for is_intel in (True, False):
        monkeypatch.setattr(module, "is_intel", lambda is_intel=is_intel: is_intel)
        monkeypatch.setattr(module, "LEAST_WORK", 1)
        assert suits(x, weight, learns=False) is not is_intel


@pytest.mark.parametrize(
    ("told", "is_intel"), [("vendor_id\t: GenuineIntel\n", True), ("vendor_id\t: AuthenticAMD\n", False), ("", False)]
)
def test_the_maker_is_read_from_the_system(told, is_intel, monkeypatch):
    monkeypatch.setattr(runtime.Path, "read_text", lambda *_, **__: told)
    assert module.is_intel.__wrapped__() is is_intel

    def missing(*_, **__):
        raise FileNotFoundError("/proc/cpuinfo")

    monkeypatch.setattr(runtime.Path, "read_text", missing)
    monkeypatch.setattr(runtime.platform, "processor", lambda: "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel")
    assert module.is_intel.__wrapped__()


def test_a_seeded_fault_shows(called, monkeypatch):
    """The comparison above would see a kernel that drops its bias, or its last column."""
    x, weight, bias = tensors((5, 96), (33, 96), (33,))
    plain = F.linear(x, weight, bias)
    for wrong in (lambda x, w, b: F.linear(x, w), lambda x, w, b: F.linear(x[..., :-1], w[:, :-1], b)):
        monkeypatch.setattr(module, "_onednn", wrong)
        assert not torch.allclose(product(x, weight, bias), plain, atol=TOLERANCE, rtol=0)
