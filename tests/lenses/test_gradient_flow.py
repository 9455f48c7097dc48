"""The gradient by depth: finite differences, what a shortcut lets through, and what is left without one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oracles.specs import base, changed
from small import small_model
from unembed.errors import ShapeError
from unembed.lenses.gradient_flow import gradient_flow
from unembed.lenses.gradient_norms import gradient_norms
from unembed.model.taps import Edit

IDS = torch.tensor([[3, 7, 1, 9], [2, 2, 8, 0]])
TARGETS = torch.tensor([[7, 1, 9, 4], [2, 8, 0, 5]])


def silenced(residual: dict[str, str], n_layers: int = 4):
    """A model whose blocks write nothing into the stream."""
    model = small_model(changed(base(n_layers), block__residual=residual))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".attn.o_proj." in name or ".mlp.down." in name:
                parameter.zero_()
    return model


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_oracle_the_streams_gradient_is_that_of_finite_differences(layer):
    model, eps = small_model(base(2)), 1e-5
    name = "blocks.0.resid_pre" if layer == 0 else f"blocks.{layer - 1}.resid_post"
    width = model.spec.embedding.d_model

    @torch.no_grad()
    def loss(nudge: torch.Tensor) -> float:
        logits = model(IDS, tap=Edit({name: lambda stream: stream + nudge}))
        return float(F.cross_entropy(logits.flatten(0, 1), TARGETS.flatten()))

    slopes = []
    for place in range(IDS.numel() * width):
        nudge = torch.zeros(IDS.numel() * width, dtype=torch.float64)
        nudge[place] = eps
        nudge = nudge.reshape(*IDS.shape, width)
        slopes.append((loss(nudge) - loss(-nudge)) / (2 * eps))
    found = gradient_flow(model, IDS, TARGETS)
    assert found.tables["flow"]["stream_grad_norm"][layer] == pytest.approx(np.linalg.norm(slopes), rel=1e-6)
    first, last = found.tables["flow"]["stream_grad_norm"][[0, 2]]
    assert found.values["reaches_first"] == pytest.approx(first / last, rel=1e-12)
    assert found.tables["flow"]["stream_grad_log10"][layer] == pytest.approx(np.log10(np.linalg.norm(slopes)), abs=1e-6)


def test_a_shortcut_passes_the_gradient_on_unchanged_and_without_one_nothing_is_left():
    kept = gradient_flow(silenced({"type": "serial", "norm_at": "pre"}), IDS, TARGETS)
    norms = kept.tables["flow"]["stream_grad_norm"]
    assert norms[0] > 0
    assert norms.tolist() == pytest.approx([norms[0]] * 5, rel=1e-12)
    assert kept.values["reaches_first"] == pytest.approx(1, rel=1e-12)
    lost = gradient_flow(silenced({"type": "no_shortcut"}), IDS, TARGETS)
    assert lost.tables["flow"]["stream_grad_norm"][:4].tolist() == [0] * 4
    assert lost.tables["flow"]["stream_grad_log10"][:4].tolist() == [None] * 4
    assert lost.tables["flow"]["stream_grad_norm"][4] > 0
    assert lost.values["reaches_first"] == 0


def test_the_parameters_gradients_are_those_of_gradient_norms_and_nothing_is_touched():
    model = small_model(base(3))
    next(model.parameters()).requires_grad_(False)
    with torch.no_grad():
        found = gradient_flow(model, IDS, TARGETS)
    by_layer = gradient_norms(model, IDS, TARGETS)
    assert found.tables["flow"]["grad_norm"].tolist() == by_layer.tables["gradient_norms"]["grad_norm"][:4].tolist()
    assert found.values["loss_nats"] == by_layer.values["loss_nats"]
    assert not next(model.parameters()).requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_ids_without_a_row_are_refused():
    with pytest.raises(ShapeError, match="99"):
        gradient_flow(small_model(), IDS * 0 + 99, TARGETS)
