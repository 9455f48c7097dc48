"""Gradient norms by layer: the oracle's finite differences, torch's own total, and a model that is left as it was."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oracles import transformer as oracle
from oracles.specs import base, changed
from oracles.weights import draw
from small import small_model
from unembed.errors import ShapeError
from unembed.lenses.gradient_norms import gradient_norms

IDS = [[3, 7, 1, 9, 4], [2, 2, 8, 0, 5]]
TARGETS = [[7, 1, 9, 4, 6], [2, 8, 0, 5, 11]]


def measured(model):
    return gradient_norms(model, torch.tensor(IDS), torch.tensor(TARGETS))


def oracle_loss(plain, weights):
    logits = oracle.run(plain, weights, IDS)["logits"]
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -np.mean([log_probs[b, p, TARGETS[b][p]] for b in range(2) for p in range(5)])


def test_oracle_the_final_norm_has_the_length_that_finite_differences_give():
    """Each entry of the final norm moved by a little in a NumPy model of its own; the tied head adds nothing to `final`."""
    plain, eps, slopes = base(), 1e-5, []
    weights = {name: value.astype(np.float64) for name, value in draw(plain, 0).items()}
    names = [name for name in weights if name.startswith("final_norm.")]
    assert names
    for name in names:
        for i in range(weights[name].size):
            up, down = ({**weights, name: weights[name].copy()} for _ in range(2))
            up[name][i] += eps
            down[name][i] -= eps
            slopes.append((oracle_loss(plain, up) - oracle_loss(plain, down)) / (2 * eps))
    found = measured(small_model(plain))
    row = next(row for row in found.tables["gradient_norms"].rows() if row["where"] == "final")
    assert found.values["loss_nats"] == pytest.approx(oracle_loss(plain, weights), abs=1e-12)
    assert row["grad_norm"] == pytest.approx(np.linalg.norm(slopes), rel=1e-7)
    assert row["weight_norm"] == pytest.approx(np.sqrt(sum((weights[name] ** 2).sum() for name in names)), rel=1e-12)


@pytest.mark.parametrize("head", ["tied", "untied"])
def test_layers_are_in_order_and_their_squares_add_up_to_the_whole(head):
    plain = changed(base(3), head__type=head)
    model = small_model(plain)
    loss = F.cross_entropy(model(torch.tensor(IDS)).flatten(0, 1), torch.tensor(TARGETS).flatten())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    found = measured(model)
    table = found.tables["gradient_norms"]
    assert table["where"].tolist() == ["embedding", "1", "2", "3", "final"]
    whole = float(torch.nn.utils.get_total_norm(gradients))
    assert found.values["grad_norm"] == pytest.approx(whole, rel=1e-12)
    assert np.sqrt((table["grad_norm"] ** 2).sum()) == pytest.approx(whole, rel=1e-12)
    assert table["share"].sum() == pytest.approx(1, rel=1e-12)
    by_name = dict(zip([name for name, _ in model.named_parameters()], gradients, strict=True))
    second = [g.square().sum() for name, g in by_name.items() if name.startswith("blocks.1.")]
    assert table["grad_norm"][2] == pytest.approx(float(sum(second)) ** 0.5, rel=1e-12)


def test_the_model_stays_as_it_was():
    model = small_model()
    first, *_ = model.parameters()
    first.requires_grad_(False)
    with torch.no_grad():
        assert measured(model).values["grad_norm"] > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [p.requires_grad for p in model.parameters()] == [False, *[True] * (len(list(model.parameters())) - 1)]


def test_targets_without_a_score_are_refused():
    with pytest.raises(ShapeError, match="99"):
        gradient_norms(small_model(), torch.tensor(IDS), torch.tensor(TARGETS) * 0 + 99)
