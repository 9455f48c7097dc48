"""Every way in which the two matrices of a module in memory have been seen: the verdict, and a nudge that agrees with it.

A case names its fault, builds the model, and says the whole sentence that is expected. The next file to read is
test_optimizers.py.
"""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import nn

import unembed
from oracles import nudge
from tying.models import (
    D,
    FromTable,
    Int8,
    Table,
    Tiny,
    TwoTowers,
    V,
    copied_apart,
    over,
    pool,
    tied,
    trained,
    with_head,
)

TIED = "Tied: one parameter, wte.weight, embeds and scores"
COPY = (
    "Not tied: lm_head.weight is an equal copy of wte.weight and will drift apart from it with the first training step"
)
TWO = "Not tied: wte.weight and lm_head.weight are two matrices"
PARAMETERS = (
    "Tied in memory alone: wte.weight and lm_head.weight are two parameters over one storage, so each learns from its own use "
    "and the numbers are stepped twice"
)
OVERLAP = "Broken: wte.weight and lm_head.weight overlap in memory and are not one table"


class Case(NamedTuple):
    fault: str
    build: object
    tied: bool | None
    kind: str
    verdict: str
    broken: tuple = ()
    options: dict | None = None


def frozen(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def meta(make):
    with torch.device("meta"):
        return make()


def filled_apart():
    """Built tied without memory, then given memory: PyTorch makes a new parameter for each of the two places."""
    model = meta(tied).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    for one in (model.wte.weight, model.mix.weight, model.lm_head.weight):
        nn.init.normal_(one, generator=generator)
    return model


def retied():
    model = filled_apart()
    model.lm_head.weight = model.wte.weight
    return model


def one_unfilled():
    model = meta(Tiny)
    model.wte.weight = nn.Parameter(pool(V, D))
    return model


def drifted():
    model = with_head(lambda table: nn.Parameter(table.detach().clone()))
    trained(model)
    return model


def with_extra(name, make, *, then=lambda model: None):
    model = tied()
    model.register_buffer(name, make(model.wte.weight.detach()))
    then(model)
    return model


def whole(table):
    return (table / table.abs().amax(1, keepdim=True) * 127).round().to(torch.int8)


def averaged():
    model = torch.optim.swa_utils.AveragedModel(tied(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(3):
        trained(model.module)
        model.update_parameters(model.module)
    return model


def averaged_by_name():
    """A moving average kept by name from state_dict(), where the one table stands twice, and loaded into parts of its own."""
    average = {name: value.clone() for name, value in tied().state_dict().items()}
    model = copied_apart(tied())
    model.load_state_dict(average)
    return model


def recompiled():
    model = torch.compile(tied(), backend="eager")
    model._orig_mod.lm_head.weight = nn.Parameter(model._orig_mod.wte.weight.detach().clone())
    return model


def compiled_part():
    model = tied()
    model.wte = torch.compile(model.wte, backend="eager")
    return model


def dynamic():
    return torch.ao.quantization.quantize_dynamic(tied().eval(), {"lm_head"}, dtype=torch.qint8)


def grown():
    model = tied()
    model.lm_head = nn.Linear(D, V + 3, bias=False)
    with torch.no_grad():
        model.lm_head.weight[:V] = model.wte.weight
    return model


def narrow():
    model = Tiny()
    model.wte, model.mix = nn.Embedding(V, 6), nn.Linear(6, D, bias=False)
    return model


def not_numbers():
    model = with_head(lambda table: nn.Parameter(table.detach().clone()))
    with torch.no_grad():
        model.wte.weight[4, 2] = model.lm_head.weight[4, 2] = float("nan")
    return model


def first_rows():
    return frozen(over(pool(V + 3, D), lambda p: p[:V], lambda p: p))


def squared():
    """As many entries as width, so that a table and its transpose have one shape."""
    model = Tiny()
    model.wte, model.lm_head = nn.Embedding(D, D), nn.Linear(D, D, bias=False)
    model.lm_head.weight = nn.Parameter(model.wte.weight.detach().T.contiguous())
    return model


def other_matrix(model):
    if not hasattr(model, "other"):
        model.other = nn.Parameter(pool(V, D))
    return model.other * 2


def stale(model):
    trained(model, lr=1.0)


CASES = [
    Case("none: assigned", tied, True, "same_parameter", TIED),
    Case("none: two by design", Tiny, False, "differing", TWO),
    Case("cloned", lambda: with_head(lambda t: nn.Parameter(t.detach().clone())), False, "equal_copy", COPY),
    Case("cloned, with entries that are no numbers", not_numbers, False, "equal_copy", COPY),
    Case(
        "cloned, and meant to be tied",
        lambda: with_head(lambda t: nn.Parameter(t.detach().clone())),
        False,
        "equal_copy",
        f"{COPY}, although the caller says tied",
        ("config",),
        {"means_tied": True},
    ),
    Case(
        "tied, and meant to be untied",
        tied,
        True,
        "same_parameter",
        f"{TIED}, although the caller says untied",
        ("config",),
        {"means_tied": False},
    ),
    Case("cloned and trained", drifted, False, "drifted", "differ by 0.0"),
    Case(
        ".data wrapped again",
        lambda: with_head(lambda t: nn.Parameter(t.data)),
        True,
        "two_parameters",
        PARAMETERS,
        ("storage", "gradient"),
    ),
    Case(
        "two parameters, frozen",
        lambda: frozen(with_head(lambda t: nn.Parameter(t.data))),
        True,
        "view",
        "Tied: lm_head.weight is a view of wte.weight",
    ),
    Case(
        "detached",
        lambda: with_head(lambda t: t.detach()),
        True,
        "detached_view",
        "Tied in memory alone: wte.weight and lm_head.weight are one storage, and one of the two uses teaches it nothing",
        ("storage", "gradient"),
    ),
    Case(
        "a view that learns",
        lambda: with_head(lambda t: t.view_as(t)),
        True,
        "view",
        "Tied: lm_head.weight is a view of wte.weight",
    ),
    Case(
        "transposed in place",
        lambda: with_head(lambda t: t.T, turned=True),
        True,
        "transposed_view",
        "Tied: lm_head.weight is wte.weight, transposed, in one storage",
        (),
        {"embed": "wte", "head": "lm_head"},
    ),
    Case(
        "transposed, wrapped as a parameter",
        lambda: with_head(lambda t: nn.Parameter(t.data.T), turned=True),
        True,
        "two_parameters",
        PARAMETERS,
        ("storage", "gradient"),
    ),
    Case(
        "transposed copy",
        lambda: with_head(lambda t: nn.Parameter(t.detach().T.contiguous()), turned=True),
        False,
        "transposed_copy",
        "Not tied: lm_head.weight is an equal copy of wte.weight, transposed, and will drift apart from it with the first "
        "training step",
    ),
    Case(
        "column by column in memory",
        lambda: with_head(lambda t: nn.Parameter(t.detach().T.contiguous().T)),
        False,
        "equal_copy",
        COPY,
    ),
    Case(
        "a square table, transposed",
        squared,
        False,
        "transposed_copy",
        "Not tied: lm_head.weight is an equal copy of wte.weight, transposed, and will drift apart from it with the first "
        "training step",
    ),
    Case(
        "a slice one row on",
        lambda: over(pool(V + 1, D), lambda p: p[:V], lambda p: p[1:]),
        False,
        "overlap",
        f"{OVERLAP} (one begins 1 row after the other)",
        ("storage",),
    ),
    Case(
        "a slice three numbers on",
        lambda: over(pool(V * D + 3), lambda p: p[: V * D].view(V, D), lambda p: p[3:].view(V, D)),
        False,
        "overlap",
        f"{OVERLAP} (one begins 3 numbers after the other)",
        ("storage",),
    ),
    Case(
        "reshaped where it should be transposed",
        lambda: over(pool(V, D), lambda p: p, lambda p: p.view(D, V).T),
        False,
        "overlap",
        f"{OVERLAP} (the same numbers in another order)",
        ("storage",),
    ),
    Case(
        "halves of one storage", lambda: over(pool(2 * V, D), lambda p: p[:V], lambda p: p[V:]), False, "differing", TWO
    ),
    Case(
        "columns of one storage",
        lambda: over(pool(V, 2 * D), lambda p: p[:, :D], lambda p: p[:, D:]),
        False,
        "differing",
        TWO,
    ),
    Case(
        "equal halves of one storage",
        lambda: over(pool(V, D).repeat(2, 1), lambda p: p[:V], lambda p: p[V:]),
        False,
        "equal_copy",
        COPY,
    ),
    Case(
        "the first rows of a longer table",
        first_rows,
        True,
        "rows_view",
        "Tied: wte.weight and lm_head.weight lie in one storage and share the first 13 rows",
    ),
    Case("none: tied without memory", lambda: meta(tied), True, "same_parameter", TIED),
    Case(
        "two parameters without memory",
        lambda: meta(Tiny),
        None,
        "no_memory",
        "Not known: wte.weight and lm_head.weight are two parameters without numbers (meta); filled as they are, they will not "
        "be tied",
    ),
    Case(
        "one was never filled",
        one_unfilled,
        False,
        "one_without_memory",
        "Broken: of wte.weight and lm_head.weight one was never filled and is without numbers (meta)",
        ("storage",),
    ),
    Case("filled after a start without memory", filled_apart, False, "differing", TWO),
    Case("none: filled and tied again", retied, True, "same_parameter", TIED),
    Case("none: deepcopy of the whole", lambda: copy.deepcopy(tied()), True, "same_parameter", TIED),
    Case("deepcopy part by part", lambda: copied_apart(tied()), False, "equal_copy", COPY),
    Case("none: all cast", lambda: tied().to(torch.bfloat16), True, "same_parameter", TIED),
    Case("none: cast there and back", lambda: tied().to(torch.bfloat16).float(), True, "same_parameter", TIED),
    Case(
        "one cast to half",
        lambda: with_head(lambda t: nn.Parameter(t.detach().to(torch.bfloat16))),
        False,
        "cast_copy",
        "Not tied: lm_head.weight is a copy of wte.weight in another type (torch.float32 and torch.bfloat16)",
    ),
    Case(
        "one cast to double",
        lambda: with_head(lambda t: nn.Parameter(t.detach().double())),
        False,
        "cast_copy",
        "Not tied: lm_head.weight is a copy of wte.weight in another type (torch.float32 and torch.float64)",
    ),
    Case(
        "the head quantised by hand",
        lambda: _with(tied(), lm_head=lambda m: Int8(m.wte.weight.detach())),
        False,
        "quantised_copy",
        "Not tied: lm_head.weight holds wte.weight in whole numbers, at most 0.5 steps away, and does not follow it",
    ),
    Case("another head, quantised", lambda: _with(Tiny(), lm_head=lambda m: Int8(pool(V, D))), False, "differing", TWO),
    Case(
        "the head quantised by PyTorch",
        dynamic,
        False,
        "quantised_copy",
        "Not tied: lm_head.weight holds wte.weight in whole numbers, at most 0.5 steps away, and does not follow it",
    ),
    Case(
        "the head resized alone",
        grown,
        False,
        "resized_alone",
        "Not tied: one of wte.weight and lm_head.weight was resized alone (13 rows and 16, of which 13 are equal)",
    ),
    Case(
        "another width",
        narrow,
        False,
        "other_shape",
        "Not tied: wte.weight and lm_head.weight are two matrices of other shapes ([13, 6] float32 and [13, 12] float32)",
        (),
        {"embed": "wte.weight", "head": "lm_head"},
    ),
    Case("none: a moving average", averaged, True, "same_parameter", TIED),
    Case("a moving average kept by name", averaged_by_name, False, "equal_copy", COPY),
    Case("none: compiled", lambda: torch.compile(tied(), backend="eager"), True, "same_parameter", TIED),
    Case("none: a part compiled", compiled_part, True, "same_parameter", TIED),
    Case("replaced after compiling", recompiled, False, "equal_copy", COPY),
    Case(
        "none: used twice by the forward",
        lambda: FromTable(lambda m: m.wte.weight),
        True,
        "same_parameter",
        TIED,
    ),
    Case(
        "cloned in each forward",
        lambda: FromTable(lambda m: m.wte.weight.clone()),
        True,
        "computed",
        "Tied: the scores use a matrix made from wte.weight in each forward",
    ),
    Case(
        "scaled in each forward",
        lambda: FromTable(lambda m: m.wte.weight * 0.5),
        True,
        "computed",
        "Tied: the scores use a matrix made from wte.weight in each forward",
    ),
    Case(
        "detached in each forward",
        lambda: FromTable(lambda m: m.wte.weight.detach().clone()),
        True,
        "computed_detached",
        "Tied in memory alone: the scores use a matrix made from wte.weight in each forward, and teach it nothing",
        ("storage", "gradient"),
    ),
    Case(
        "made from another matrix in each forward",
        lambda: FromTable(other_matrix),
        False,
        "computed_apart",
        "Not tied: the scores use a matrix made in each forward, and not from wte.weight",
    ),
    Case(
        "none: an encoder's table is the decoder's",
        lambda: TwoTowers(encoder="shared"),
        True,
        "same_parameter",
        "Tied: one parameter, decoder.wte.weight, embeds and scores",
    ),
    Case(
        "an encoder's table is a copy",
        lambda: TwoTowers(encoder="copied"),
        True,
        "same_parameter",
        "Tied: one parameter, decoder.wte.weight, embeds and scores",
    ),
    Case("a copy for decoding, fresh", lambda: with_extra("decode", torch.clone), True, "same_parameter", TIED),
    Case(
        "a transposed copy, fresh",
        lambda: with_extra("decode", lambda t: t.T.contiguous()),
        True,
        "same_parameter",
        TIED,
    ),
    Case("an int8 copy, fresh", lambda: with_extra("decode", whole), True, "same_parameter", TIED),
    Case("none: a view for decoding", lambda: with_extra("decode", lambda t: t.T), True, "same_parameter", TIED),
    Case(
        "a copy for decoding, stale",
        lambda: with_extra("decode", torch.clone, then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
    Case(
        "a transposed copy, stale",
        lambda: with_extra("decode", lambda t: t.T.contiguous(), then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
    Case(
        "an int8 copy, stale",
        lambda: with_extra("decode", lambda t: whole(t).T.contiguous(), then=stale),
        True,
        "same_parameter",
        f"{TIED}, but decode is a stale copy of wte.weight: make it anew after each step",
        ("copies",),
    ),
]


def _with(model, **parts):
    for name, make in parts.items():
        setattr(model, name, make(model))
    return model


def broken(result):
    return tuple(check["name"] for check in result.values["checks"] if check["status"] == "broken")


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
    is_small = inner.wte.weight.shape[1] < D if isinstance(inner.wte, nn.Embedding) else False
    if case.kind != "one_without_memory":
        expected = None if case.kind == "no_memory" or inner.mix.weight.is_meta else case.tied
        scores = _in_float(model) if is_small else None
        assert nudge.moves(model, inner.wte.weight, scores=scores) is expected


def _in_float(model):
    return lambda ids: model(ids)


def test_there_are_sixty_cases_of_fifteen_kinds_with_those_of_files_and_optimizers():
    assert len(CASES) >= 55
    assert len({case.kind for case in CASES}) >= 15
    assert len({case.verdict for case in CASES}) >= 20


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
