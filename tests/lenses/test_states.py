"""The states that a lens reads: the taps of the same forward to the bit, whatever is chosen, and nothing disturbed."""

import gc

import pytest
import torch

from oracles.mixtures import random_spec
from oracles.specs import variants
from oracles.weights import draw
from unembed.errors import UsageError
from unembed.lenses.logit_lens import logit_lens
from unembed.lenses.states import all_layers, notes_on, take_states
from unembed.model.check import from_plain
from unembed.model.taps import Recorder
from unembed.model.transformer import Transformer

VARIANTS = variants()
IDS = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])


def build(spec):
    model = Transformer(from_plain(spec))
    model.load_state_dict({name: torch.from_numpy(value).float() for name, value in draw(spec, 0).items()})
    return model


def deep(**changes):
    block = VARIANTS["plain"]["blocks"][0]
    return VARIANTS["plain"] | {"blocks": [block | changes] * 3}


@torch.no_grad()
def test_property_states_are_the_taps_of_a_plain_forward_to_the_bit():
    model = build(deep())
    recorder = Recorder()
    model(IDS, tap=recorder)
    found = take_states(model, IDS, after_attention=True)
    names = ["blocks.0.resid_pre", *(f"blocks.{i}.{at}" for i in range(3) for at in ("resid_mid", "resid_post"))]
    assert found.layers == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    for state, name in zip(found.values, names, strict=True):
        assert torch.equal(state, recorder.values[name]), name


def test_chosen_layers_and_always_the_last():
    model = build(deep())
    whole = take_states(model, IDS, after_attention=True)
    for asked, kept in ([1], [1, 3]), ([2.5, 0], [0, 2.5, 3]), ([3], [3]), ([], [3]):
        found = take_states(model, IDS, layers=asked)
        assert found.layers == kept
        assert torch.equal(found.values, whole.values[[whole.layers.index(one) for one in kept]])


def test_lens_of_chosen_layers_says_what_the_whole_says_of_them():
    model = build(deep()).double()
    whole = logit_lens(model, IDS, after_attention=True)
    some = logit_lens(model, IDS, layers=[1, 1.5])
    assert some.values["layers"] == [1, 1.5, 3]
    assert some.tables["lens"]["layer"].tolist()[:4] == [1.0] * 4
    at = [whole.values["layers"].index(one) for one in (1, 1.5, 3)]
    for name in ("entropy_nats", "kl_to_final_nats", "target_rank"):
        got, wanted = (a[:, :, :-1].astype(float) for a in (some.values[name], whole.values[name][:, at]))
        assert abs(got - wanted).max() < 1e-12, name


@pytest.mark.parametrize("name", ["plain", "bidirectional", "residual_post", "residual_no_shortcut"])
def test_property_looking_changes_no_bit_of_the_logits(name):
    model = build(VARIANTS[name])
    with torch.no_grad():
        before = model(IDS)
        logit_lens(model, IDS, after_attention=True)
        assert torch.equal(before, model(IDS))
        assert torch.equal(model.unembed(take_states(model, IDS).values[-1]), before)


def test_unknown_layers_and_parallel_blocks_are_refused():
    model = build(deep())
    with pytest.raises(UsageError, match="lens: there is no layer 4; this model has 0 to 3"):
        logit_lens(model, IDS, layers=[4])
    with pytest.raises(UsageError, match=r"there is no layer 0\.25"):
        logit_lens(model, IDS, layers=[0.25])
    parallel = build(VARIANTS["residual_parallel_one_norm"])
    with pytest.raises(UsageError, match="no stream stands between them; leave after_attention out"):
        logit_lens(parallel, IDS, after_attention=True)


def test_notes_say_what_a_topology_means_for_the_reader():
    told = {name: notes_on(from_plain(VARIANTS[name])) for name in ("plain", "residual_post", "residual_no_shortcut")}
    assert told == {
        "plain": [],
        "residual_post": ["lens_post_norm"],
        "residual_no_shortcut": ["lens_no_shortcut"],
    }
    assert all_layers(from_plain(VARIANTS["no_blocks"])) == [0]


def test_what_raises_inside_leaves_no_hook_and_no_changed_bit(monkeypatch):
    """A27: hooks outliving an error."""
    from unembed.lenses import reading

    model = build(deep())
    with torch.no_grad():
        before = model(IDS)
    hooks = [dict(module._forward_hooks) | dict(module._backward_hooks) for module in model.modules()]
    monkeypatch.setattr(reading, "measure", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        logit_lens(model, IDS)
    assert [dict(m._forward_hooks) | dict(m._backward_hooks) for m in model.modules()] == hooks
    with torch.no_grad():
        assert torch.equal(before, model(IDS))


def resident_bytes():
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


@pytest.mark.slow
def test_a_thousand_runs_leave_memory_flat():
    """A27b: less than a hundredth more after 1,000 runs whose results are dropped, and no tensor left alive."""
    model = build(random_spec(3))
    ids = torch.randint(0, model.spec.embedding.vocab_size, (4, 6))

    def run(n):
        for _ in range(n):
            logit_lens(model, ids)
        gc.collect()
        return resident_bytes(), sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    run(20)
    bytes_before, tensors_before = run(20)
    bytes_after, tensors_after = run(1000)
    assert tensors_after == tensors_before
    assert bytes_after < 1.01 * bytes_before
