"""Over training: each checkpoint by itself, laid under each other; and the commands that can do it."""

import numpy as np
import pytest
import torch

from commands import run
from oracles.specs import base
from small import small_model
from unembed.errors import UsageError
from unembed.lenses.gradient_flow import gradient_flow
from unembed.lenses.logit_lens import logit_lens
from unembed.views.over_training import by_layer, every_checkpoint, over_training
from unembed.views.run import RunView


def test_the_table_is_that_of_each_checkpoint_with_its_step(text_run):
    view = RunView.open(text_run)
    inputs, targets = (torch.from_numpy(one) for one in next(view.shards.val.windows(view.spec.context_length, 2)))
    found = over_training(view, lambda model: gradient_flow(model, inputs, targets), table="flow", color="grad_norm")
    rows = found.tables["flow"].rows()
    steps = [checkpoint.step for checkpoint in view.checkpoints]
    assert len(steps) > 1
    alone = [
        {"step": step, **row}
        for index, step in enumerate(steps)
        for row in gradient_flow(view.model(index), inputs, targets).tables["flow"].rows()
    ]
    assert rows == alone
    assert found.values == {"checkpoints": len(steps)}
    assert (found.pictures[0].x, found.pictures[0].y) == ("step", "layer")


def test_a_text_under_the_lens_is_followed_by_its_means():
    model = small_model(base(2))
    found = logit_lens(model, [3, 1, 4, 1, 5])
    means = by_layer(found).tables["by_layer"]
    assert means["layer"].tolist() == [0, 1, 2]
    assert means["kl_to_final_nats"].tolist() == pytest.approx(np.mean(found.values["kl_to_final_nats"], axis=1))
    known = np.array(found.values["cross_entropy_nats"])[:, :-1].astype(float)
    assert means["cross_entropy_nats"].tolist() == pytest.approx(known.mean(axis=1))
    assert means["agreement_share"][2] == 1


def test_what_is_no_run_has_no_checkpoints(tmp_path, text_run):
    for place in (tmp_path, text_run / "checkpoints" / "step-000006", "mini-gpt"):
        with pytest.raises(UsageError, match="is no run folder, so it has no checkpoints to go through"):
            every_checkpoint(place)


@pytest.mark.parametrize(("command", "table"), [("flow", "flow"), ("calibration", "layers")])
def test_commands_go_through_all_checkpoints(command, table, text_run):
    done = run(command, text_run, "--over-training", "--format", "json")
    assert done.code == 0, done
    found = done.json[table]
    n_layers = len(set(found["layer"]))
    steps = [checkpoint.step for checkpoint in RunView.open(text_run).checkpoints]
    assert found["step"] == [step for step in steps for _ in range(n_layers)]


def test_every_head_is_followed_over_training(text_run):
    done = run("attention", text_run, "to be or not", "--over-training", "--format", "json")
    assert done.code == 0, done
    found, steps = done.json["heads"], [checkpoint.step for checkpoint in RunView.open(text_run).checkpoints]
    heads = list(zip(found["step"], found["layer"], found["head"], strict=True))
    assert len(set(heads)) == len(heads)
    assert sorted(set(found["step"])) == steps
    alone = run("attention", text_run, "to be or not", "--format", "json").json["heads"]
    n = len(alone["layer"])
    assert found["previous"][-n:] == pytest.approx(alone["previous"])
