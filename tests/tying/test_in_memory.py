"""Every way in which the two matrices of a module in memory have been seen: the verdict, and a nudge that agrees with it.

The cases are in cases.py and copied_cases.py. The next file to read is test_optimizers.py.
"""

import pytest
import torch
from torch import nn

import unembed
from oracles import nudge
from tying import test_files, test_optimizers, test_our_models, test_transformers
from tying.builders import with_extra
from tying.cases import MEMORY
from tying.copied_cases import COPIES
from tying.folders import broken
from tying.models import D, Table, Tiny, TwoTowers, V, pool, tied

CASES = [*MEMORY, *COPIES]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_the_verdict_is_right_and_a_nudge_agrees(case):
    model = case.build()
    found = unembed.tying.examine(model, **(case.options or {}))
    assert case.verdict in found.values["verdict"]
    if case.kind != "drifted":
        assert found.values["verdict"] == f"{case.verdict}."
    assert (found.values["tied"], found.values["kind"], broken(found)) == (case.tied, case.kind, case.broken)
    inner = getattr(model, "_orig_mod", getattr(model, "module", model))
    inner = inner.decoder if isinstance(inner, TwoTowers) else inner
    if case.kind != "one_without_memory":
        expected = None if case.kind == "no_memory" or inner.mix.weight.is_meta else case.tied
        assert nudge.moves(model, inner.wte.weight) is expected


def test_there_are_enough_cases_and_verdicts():
    others = (test_files, test_optimizers, test_our_models, test_transformers)
    assert len(CASES) >= 57
    assert len(CASES) + sum(len(module.CASES) for module in others) >= 100
    kinds = {case.kind for case in CASES} | {case[2] for case in test_files.CASES.values()}
    assert len(kinds) >= 25


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_the_nudge_restores_every_bit_also_when_the_model_fails(error):
    model = Tiny()
    with torch.no_grad():
        model.wte.weight[0, 3] = 1e-30  # lost by adding and subtracting one
    before = model.wte.weight.detach().clone()

    def scores(ids, calls=[]):  # noqa: B006
        calls.append(ids)
        if error is not None and len(calls) > 1:
            raise error
        return model(ids)

    if error is None:
        assert not nudge.moves(model, model.wte.weight, scores=scores)
    else:
        with pytest.raises(error):
            nudge.moves(model, model.wte.weight, scores=scores)
    assert torch.equal(model.wte.weight, before)


def test_examining_changes_nothing():
    model = tied().train()
    model.register_buffer("decode", model.wte.weight.detach().clone())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    unembed.tying.examine(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_two_matrices_may_be_given():
    model = Tiny()
    model.lm_head = Table(nn.Parameter(pool(D, V)), turned=True)
    found = unembed.tying.examine(model, embed=model.wte, head=model.lm_head.weight)
    assert found.values["checks"][0]["detail"] == "wte.weight embeds and lm_head.weight scores (as given)"
    assert unembed.tying.examine(model, embed="wte", head="lm_head").values == found.values


def details(result, name):
    return [check["detail"] for check in result.values["checks"] if check["name"] == name]


def test_other_uses_and_copies_are_told():
    (told,) = details(unembed.tying.examine(TwoTowers(encoder="shared")), "uses")
    assert told == "the table is also decoder.lm_head.weight and encoder.embed.weight"
    (told,) = details(unembed.tying.examine(TwoTowers(encoder="copied")), "copies")
    assert told == "encoder.embed.weight, a parameter of its own, is an equal copy of decoder.wte.weight"
    assert details(unembed.tying.examine(TwoTowers(encoder="own")), "copies") == []
    fresh = unembed.tying.examine(with_extra("decode", torch.clone))
    assert details(fresh, "copies") == ["decode is a copy of wte.weight, fresh now and stale after the next step"]
    view = unembed.tying.examine(with_extra("decode", lambda t: t.T))
    assert details(view, "copies") == ["decode is a view of wte.weight and follows it"]
