"""PyTorch's gradients of the whole loss against finite differences, for tiny models in float64.

Autograd can only be wrong where the model cuts it: a detached tensor, a value written in place, a kernel without the
right backward. So every parameter of models that differ in each part is nudged.
"""

import pytest
import torch

from oracles.specs import NORMS, RESIDUALS, ROTARY, SCALINGS, base, changed
from small import small_model
from unembed.objectives import IGNORED, next_token_loss

IDS = torch.tensor([[3, 1, 4, 1, 5], [8, 9, 7, 9, 3]])
TARGETS = torch.tensor([[1, 4, 1, 5, 9], [IGNORED, 7, 9, 3, IGNORED]])
MASK = torch.tensor([[True] * 5, [False, True, True, True, True]])
TRANSFORM = {"activation": "gelu", "norm": NORMS["layer_norm"]}
SPECS = {
    "gpt": changed(
        base(n_layers=1),
        embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
        block__attention__biases=["q", "k", "v", "o"],
    ),
    "llama": changed(
        base(n_layers=1),
        block__attention__position={**ROTARY, "scaling": SCALINGS["llama3"]},
        block__attention__n_kv_heads=2,
        block__norm=NORMS["rms_norm"],
        block__mlp={"type": "gated", "d_mlp": 7, "activation": "silu", "has_bias": False},
        final_norm=NORMS["rms_norm"],
        head={"type": "untied", "transform": None, "has_bias": True, "scale": 0.3, "softcap": 1.5},
    ),
    "gemma": changed(
        base(n_layers=1),
        embedding__scale=3.5,
        block__attention__score_softcap=0.8,
        block__attention__qk_norm=NORMS["rms_norm_one_plus"],
        block__attention__sees={"type": "causal", "window": 2},
        block__attention__position=ROTARY,
        block__norm=NORMS["rms_norm_one_plus"],
        block__residual=RESIDUALS["both"],
        head={"type": "tied", "transform": None, "has_bias": False, "scale": None, "softcap": 1.5},
    ),
    "esm": changed(
        base(n_layers=1),
        embedding__token_dropout={"mask_id": 4, "trained_share": 0.12},
        embedding__n_token_types=2,
        embedding__norm=NORMS["layer_norm"],
        block__attention__sees={"type": "bidirectional"},
        block__attention__position={"type": "alibi"},
        block__residual=RESIDUALS["parallel_two_norms"],
        block__mlp={"type": "plain", "d_mlp": 9, "activation": "gelu_tanh", "has_bias": True},
        head={"type": "tied", "transform": TRANSFORM, "has_bias": True, "scale": None, "softcap": None},
    ),
    "post_norm": changed(base(n_layers=1), block__residual=RESIDUALS["post"], final_norm=None),
}


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", SPECS)
def test_gradients_agree_with_finite_differences(name, attention):
    """Central differences along one random direction of each parameter; a wrong term in any gradient shows in it."""
    model = small_model(SPECS[name], seed=5)
    generator = torch.Generator().manual_seed(1)

    def loss():
        return next_token_loss(model(IDS, mask=MASK, attention=attention), TARGETS).mean()

    loss().backward()
    for parameter_name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        direction /= direction.norm()
        slopes = []
        with torch.no_grad():
            for step in (1e-4, 5e-5):
                parameter += step * direction
                up = loss()
                parameter -= 2 * step * direction
                down = loss()
                parameter += step * direction
                slopes.append(float((up - down) / (2 * step)))
        # Richardson: the error of a central difference falls with the square of its step
        slope = (4 * slopes[1] - slopes[0]) / 3
        expected = float((parameter.grad * direction).sum())
        assert slope == pytest.approx(expected, rel=1e-6, abs=1e-9), parameter_name


def test_gradcheck_of_the_whole_model_in_its_table_and_norms():
    """torch's own check, over every entry: the shared table (both of its uses) and the gains, together."""
    model = small_model(
        changed(SPECS["gpt"], embedding__d_model=4, block__attention__d_head=2, block__mlp__d_mlp=3), seed=2
    )
    names = ["embed.table", "embed.pos_table", "blocks.0.attn_norm.gain", "final_norm.bias"]
    parameters = dict(model.named_parameters())

    def loss(*values):
        changed_ones = dict(zip(names, values, strict=True))
        return next_token_loss(torch.func.functional_call(model, changed_ones, (IDS,)), TARGETS).mean()

    inputs = tuple(parameters[name].detach().clone().requires_grad_() for name in names)
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-6, atol=1e-7)


def test_padding_and_ignored_labels_have_no_gradient():
    """What stands at a padding place cannot move the loss of the others, whatever it is."""
    ids = IDS.clone()
    ids[1, 0] = 12  # the only 12 of the batch, under the mask
    # an untied head, so that the table's gradient comes through the embedding alone
    model = small_model(changed(SPECS["gpt"], head=SPECS["llama"]["head"]))
    next_token_loss(model(ids, mask=MASK), TARGETS).mean().backward()
    assert (model.embed.table.grad[12] == 0).all()
    assert (model.embed.table.grad[3] != 0).any()
