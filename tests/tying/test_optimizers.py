"""What an optimizer holds of the shared matrix: every way in which it has been seen to hold something else.

Each case steps the optimizer once as well where that shows the fault: the oracle is what the step does to the numbers. The
next file to read is test_transformers.py.
"""

import pytest
import torch
from torch import nn

import unembed
from tying.models import D, Tiny, V, pool, tied, trained, with_head

TIED = "Tied: one parameter, wte.weight, embeds and scores"
TWO = "Not tied: wte.weight and lm_head.weight are two matrices"


def adamw(parameters, **options):
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5, **options)


def right():
    model = tied()
    return model, adamw(model.parameters())


def two_right():
    model = Tiny()
    return model, adamw(model.parameters())


def grouped():
    model = tied()
    groups = [{"params": [model.mix.weight], "weight_decay": 0.0}, {"params": [model.wte.weight], "weight_decay": 0.5}]
    return model, adamw(groups)


def twice():
    """PyTorch refuses this when an optimizer is made, and not when a group is changed afterwards."""
    model = tied()
    optimizer = adamw([{"params": [model.mix.weight]}, {"params": [model.wte.weight]}])
    optimizer.param_groups[0]["params"].append(model.lm_head.weight)
    return model, optimizer


def old_table():
    model = tied()
    optimizer = adamw(model.parameters())
    model.wte.weight = model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    return model, optimizer


def old_head():
    """Made while untied, and tied after: the optimizer goes on with a head that nobody uses."""
    model = Tiny()
    optimizer = adamw(model.parameters())
    model.lm_head.weight = model.wte.weight
    return model, optimizer


def forgotten():
    model = tied()
    return model, adamw([model.mix.weight])


def head_forgotten():
    model = Tiny()
    return model, adamw([model.wte.weight, model.mix.weight])


def frozen():
    model = tied()
    model.wte.weight.requires_grad_(False)
    return model, adamw([model.mix.weight])


def both_aliases():
    model = with_head(lambda table: nn.Parameter(table.data))
    return model, adamw(model.parameters())


def one_alias():
    model = with_head(lambda table: nn.Parameter(table.data))
    return model, adamw([model.wte.weight, model.mix.weight])


def state_of_the_gone():
    model = tied()
    optimizer = trained(model, adamw(model.parameters()))
    optimizer.param_groups[0]["params"] = [p for p in optimizer.param_groups[0]["params"] if p is not model.wte.weight]
    model.wte.weight = model.lm_head.weight = nn.Parameter(model.wte.weight.detach().clone())
    optimizer.param_groups[0]["params"].append(model.wte.weight)
    return model, optimizer


def moments_of_another_size():
    model = tied()
    optimizer = trained(model, adamw(model.parameters()))
    with torch.no_grad():
        model.wte.weight.data = torch.cat([model.wte.weight, pool(3, D)])
    return model, optimizer


def another_models():
    model = tied()
    optimizer = adamw([*model.parameters(), nn.Parameter(torch.zeros(3))])
    return model, optimizer


PARAMETERS = (
    "Tied in memory alone: wte.weight and lm_head.weight are two parameters over one storage, so each learns from its own use "
    "and the numbers are stepped twice"
)
CASES = {
    "none": (right, "ok", TIED, "wte.weight is once in group 0 (weight decay 0.5)"),
    "none, two tables": (
        two_right,
        "ok",
        TWO,
        "wte.weight is once in group 0 (weight decay 0.5) and lm_head.weight is once in group 0 (weight decay 0.5)",
    ),
    "none, by groups": (grouped, "ok", TIED, "wte.weight is once in group 1 (weight decay 0.5)"),
    "in two groups": (twice, "broken", TIED, "the optimizer holds wte.weight 2 times, in group 0 and group 1"),
    "the table was replaced": (
        old_table,
        "broken",
        TIED,
        "the optimizer does not hold wte.weight, which is never stepped",
    ),
    "tied after it was made": (
        old_head,
        "broken",
        TIED,
        "the optimizer holds 1 old table, [13, 12] float32, no longer in the model",
    ),
    "the table was forgotten": (
        forgotten,
        "broken",
        TIED,
        "the optimizer does not hold wte.weight, which is never stepped",
    ),
    "the head was forgotten": (
        head_forgotten,
        "broken",
        TWO,
        "the optimizer does not hold lm_head.weight, which is never stepped",
    ),
    "none, frozen": (frozen, "ok", TIED, "wte.weight is frozen and in no group"),
    "both aliases": (
        both_aliases,
        "broken",
        PARAMETERS,
        "the optimizer steps one memory twice, as wte.weight and as lm_head.weight",
    ),
    "one alias": (
        one_alias,
        "broken",
        PARAMETERS,
        "the optimizer holds wte.weight and not lm_head.weight, whose part of the gradient is never used",
    ),
    "state of a tensor that is gone": (
        state_of_the_gone,
        "broken",
        TIED,
        "the optimizer keeps state for 1 tensor that no group holds, [13, 12] float32",
    ),
    "moments of another size": (
        moments_of_another_size,
        "broken",
        TIED,
        "the optimizer's exp_avg of wte.weight is [13, 12] float32, the table [16, 12] float32",
    ),
    "another model's": (
        another_models,
        "unknown",
        TIED,
        "the optimizer holds 1 tensor that this model does not have",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_names_the_optimizers_fault(name):
    build, status, sentence, detail = CASES[name]
    model, optimizer = build()
    found = unembed.tying.examine(model, optimizer)
    seen = [(one["status"], one["detail"]) for one in found.values["checks"] if one["name"] == "optimizer"]
    assert (status, detail) in seen
    more = f", but {detail}" if status == "broken" else ""
    assert found.values["verdict"].startswith(f"{sentence}{more}" if status == "broken" else f"{sentence}.")


def decayed(build):
    """What one step with gradients of zero does to each matrix: 0.95 where it is decayed once, as A04 computes it."""
    model, optimizer = build()
    matrices = {"wte": model.wte.weight, "head": model.lm_head.weight}
    before = {name: one.detach().clone() for name, one in matrices.items()}
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad = torch.zeros_like(one)
    optimizer.step()
    return {name: float((one.detach() / before[name]).mean()) for name, one in matrices.items()}


def test_the_step_itself_shows_what_is_said():
    assert decayed(right) == {"wte": pytest.approx(0.95), "head": pytest.approx(0.95)}
    assert decayed(twice) == {"wte": pytest.approx(0.9025), "head": pytest.approx(0.9025)}
    assert decayed(both_aliases) == {"wte": pytest.approx(0.9025), "head": pytest.approx(0.9025)}
    assert decayed(old_table) == {"wte": 1.0, "head": 1.0}
    assert decayed(forgotten) == {"wte": 1.0, "head": 1.0}
    assert decayed(head_forgotten) == {"wte": pytest.approx(0.95), "head": 1.0}


def test_a_run_of_our_own_groups_the_shared_table_once():
    from small import run_config, trainer_of

    trainer = trainer_of(run_config())
    found = unembed.tying.examine(trainer.model, trainer.optimizer)
    assert found.values["verdict"] == "Tied: one parameter, embed.table, embeds and scores."
    assert [one["status"] for one in found.values["checks"] if one["name"] == "optimizer"] == ["ok"]
    assert V == 13
