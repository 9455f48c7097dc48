"""Packed models and everything else that touches a model: optimizers, hooks, gradients, modes, other copies.

Wherever one token would be computed otherwise than two, it is computed by the parameters, or refused. The next file to read
is test_lookup.py.
"""

import copy
import gc
import weakref

import pytest
import torch
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

from generation.test_weight_copies import CPU, float32, is_old
from oracles.specs import base, changed
from unembed.errors import UsageError
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY
from unembed.generation.weights.copies import is_rounded, with_weights
from unembed.generation.weights.packing import KINDS, unavailable
from unembed.model.taps import Edit
from unembed.optim.adamw import AdamW

HERE = [kind for kind in KINDS if unavailable(kind, CPU) is None]
ROUNDED = [kind for kind in HERE if kind != "float32"]
RMS = {"type": "rms_norm", "eps": 1e-5, "gain": "plain"}
MLP = {"type": "gated", "activation": "silu", "d_mlp": 20, "has_bias": False}
GATED = changed(base(), block__norm=RMS, final_norm=RMS, block__mlp=MLP)
ONE = torch.tensor([[3]])


def one(model, ids=ONE):
    with torch.no_grad():
        return model(ids)


def near(found, expected):
    return bool((found - expected).abs().max() <= 1e-5 * expected.abs().max())


OPTIMIZERS = {
    "ours": lambda parameters: AdamW(
        [{"params": [*parameters], "lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}]
    ),
    "torch, fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "torch, fused SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True),
    "torch, foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", HERE)
def test_no_optimizers_step_goes_unnoticed(kind, optimizer):
    """Fused kernels write without counting it."""
    model = float32(base())
    made = with_weights(model, kind)
    before = one(made)
    moves = OPTIMIZERS[optimizer](model.parameters())
    model(torch.tensor([[3, 1, 4]])).square().mean().backward()
    moves.step()
    assert is_old(made)
    if kind == "float32":
        assert near(one(made), one(model))
        assert not near(one(made), before)
    else:
        with pytest.raises(UsageError, match="changed since its packed copy was made"):
            one(made)


@pytest.mark.parametrize("first", HERE)
@pytest.mark.parametrize("second", HERE)
def test_of_two_kinds_the_second_holds(first, second):
    model = float32(GATED)
    twice, once = with_weights(with_weights(model, first), second), with_weights(model, second)
    assert is_rounded(twice) is is_rounded(once) is (second != "float32")
    assert torch.equal(one(twice), one(once))


@pytest.mark.parametrize("kind", ROUNDED)
def test_a_table_given_to_the_packed_model_itself_is_noticed(kind):
    made = with_weights(float32(base()), kind)
    made.embed.table = torch.nn.Parameter(-made.embed.table.detach())
    with pytest.raises(UsageError, match="the unembedding table changed"):
        one(made)


@pytest.mark.parametrize("kind", HERE)
def test_new_parameters_of_the_given_model_are_that_models_alone(kind):
    """Exchanged, not written: the packed model keeps those that it shares, and the packed copies are still of them."""
    model = float32(base())
    made = with_weights(model, kind)
    before = one(made)
    model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()}, assign=True)
    assert torch.equal(one(made), before)
    assert not near(one(model), before)


@pytest.mark.parametrize("kind", HERE)
def test_gradients_of_one_token_are_those_of_the_parameters(kind):
    model = float32(GATED)
    made = with_weights(model, kind)
    wanted = torch.autograd.grad(model(ONE).square().sum(), list(model.parameters()))
    found = torch.autograd.grad(made(ONE).square().sum(), list(made.parameters()))
    for (name, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-5 * float(b.abs().max() + 1e-6)), name
    stream, moved = torch.randn(1, 1, model.spec.embedding.d_model), torch.randn(1, 1, model.spec.embedding.d_model)
    with torch.no_grad():
        expected = torch.func.jvp(model.unembed, (stream,), (moved,))[1]
        assert torch.allclose(torch.func.jvp(made.unembed, (stream,), (moved,))[1], expected, atol=1e-4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", HERE)
def test_those_who_watch_see_the_same_as_without(kind):
    model = float32(GATED)
    made = with_weights(model, kind)
    counts = []
    for each in (model, made):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            each(ONE)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert one(made).dtype == one(model).dtype
    with torch.no_grad():
        assert near(torch.compile(made, backend="eager")(ONE), one(model))


@pytest.mark.parametrize("kind", HERE)
def test_hooks_stay_are_called_and_belong_to_one_model(kind):
    model = float32(GATED)
    model.final_norm.register_forward_hook(lambda module, inputs, output: output * 3)
    made = with_weights(model, kind)
    assert near(one(made, torch.tensor([[3, 1]])), one(model, torch.tensor([[3, 1]])))
    scale = 0.2 if kind == "int8" else 0.05
    assert (one(made) - one(model)).abs().max() <= scale * one(model).abs().max()
    before, called = one(model), []
    for owner in (made.blocks[0].attn.v_proj, made.blocks[0].mlp.up, made.blocks[1].attn.o_proj):
        owner.register_forward_hook(lambda module, inputs, output: called.append(output.shape))
    one(made)
    assert len(called) == 3
    assert torch.equal(one(model), before)
    assert len(called) == 3


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("through", [torch.float64, torch.bfloat16])
def test_another_type_and_back_is_noticed_wherever_the_numbers_lie(kind, through):
    """An allocator gives freed memory out again, at the same address."""
    for seed in range(10):
        model = float32(base(), seed=seed)
        made = with_weights(model, kind)
        model.to(through)
        model.float()
        assert is_old(made)


@pytest.mark.parametrize("kind", HERE)
def test_older_copies_are_let_go(kind):
    made = with_weights(float32(GATED), kind)
    older = []
    for _ in range(4):
        older.append(weakref.ref(made.blocks[0].attn.derived))
        made = with_weights(made, kind)
    gc.collect()
    assert not any(ref() for ref in older)
    copy.deepcopy(made)


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize(
    "name", ["final_norm", "blocks.0.attn_in", "blocks.1.mlp_in", "blocks.0.z", "blocks.0.mlp_act"]
)
def test_what_a_tap_gives_may_lie_as_it_likes(kind, name):
    """One number repeated has a stride of zero; what comes of it is the same as of the numbers written out."""
    made = with_weights(float32(GATED), kind)

    def run(written):
        edit = Edit({name: lambda x: written(x.mean(-1, keepdim=True).expand_as(x))})
        with torch.no_grad():
            return made(ONE, tap=edit)

    assert torch.equal(run(lambda x: x), run(lambda x: x.contiguous()))


def test_the_type_of_numbers_by_default_is_not_asked_for():
    model = float32(GATED)
    made = with_weights(model, "float32")
    before = one(made)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(one(with_weights(model, "float32")), before)
        assert generate_ids(with_weights(model, "float32"), [[3]], n_tokens=3, sampling=GREEDY, seeds=[0])
    finally:
        torch.set_default_dtype(torch.float32)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("part", ["attn.q_proj", "attn.o_proj", "mlp.up", "mlp.down", "attn_norm", "head", "embed"])
def test_weights_that_are_computed_are_computed_anew_for_each_token(kind, part):
    """Parametrized before packing: a prompt and the tokens after it follow what the weights are computed from."""
    model = float32(changed(GATED, head__has_bias=True))
    owner = {"head": model.head, "embed": model.embed}.get(part) or next(
        module for name, module in model.blocks[0].named_modules() if name == part
    )
    key = next(name for name in ("weight", "gain", "table", "bias") if owner._parameters.get(name) is not None)
    torch.nn.utils.parametrize.register_parametrization(owner, key, Doubled(), unsafe=True)
    made = with_weights(model, kind)
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(made(torch.tensor([[3]])), model(torch.tensor([[3]])), atol=0.2)
            assert torch.equal(made(torch.tensor([[3, 4]])), model(torch.tensor([[3, 4]])))
            owner.parametrizations[key].original.mul_(-3)


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("part", ["attn.q_proj", "attn.o_proj", "mlp.gate", "mlp.down"])
def test_weights_that_a_hook_computes_are_computed_anew_for_each_token(kind, part):
    """The older ways of torch: what a layer's weight is made of are parameters, the weight itself is none."""
    for change in (torch.nn.utils.weight_norm, lambda own: prune.l1_unstructured(own, "weight", 0.5)):
        model = float32(GATED)
        owner = change(model.blocks[0].get_submodule(part)) or model.blocks[0].get_submodule(part)
        made = with_weights(model, kind)
        with torch.no_grad():
            for _ in range(2):
                assert torch.allclose(one(made), one(model), atol=0.2)
                assert torch.equal(made(torch.tensor([[3, 4]])), model(torch.tensor([[3, 4]])))
                next(value for name, value in owner.named_parameters() if name in ("weight_g", "weight_orig")).mul_(-3)


def test_an_eps_that_float32_does_not_have_is_left_to_the_exact_norm():
    model = float32(GATED)
    for norm in (module for module in model.modules() if hasattr(module, "eps")):
        norm.eps = 1e-300
    with torch.no_grad():
        model.embed.table[3] = 0
        ids = torch.tensor([[3]])
        assert torch.equal(torch.isnan(with_weights(model, "float32")(ids)), torch.isnan(model(ids)))
