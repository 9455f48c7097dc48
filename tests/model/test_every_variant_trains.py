"""Every variant of a spec can be trained: gradients reach all its numbers, AdamW brings the loss down, both paths agree.

The oracle says that the forward pass is right; finite differences (test_gradients.py) say it of a few gradients. Here each
variant goes the whole way that a training step goes. The checks of shapes are off: test_oracle.py has run the same specs
with them on. The next file to read is test_properties.py.
"""

import pytest
import torch

from oracles.specs import variants
from small import small_model
from unembed.objectives import IGNORED, next_token_loss
from unembed.optim.adamw import AdamWConfig, make_adamw

VARIANTS = variants()
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6]])
TYPES = torch.tensor([[0] * 5 + [1] * 5, [1] * 10])
MASK_ID = 4
HIDDEN = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]], dtype=torch.bool)
PADDED = torch.tensor([[False] * 3 + [True] * 7, [True] * 6 + [False] * 4])
N_STEPS, RATE = 20, 1e-2
# No decay: what moves a weight here is its gradient alone.
ADAMW = AdamWConfig(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0)

pytestmark = pytest.mark.usefixtures("unchecked", "one_thread")


@pytest.fixture
def one_thread():
    """These tensors are so small that a second thread does nothing but wait, on a busy machine for seconds."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def task_of(spec):
    """A fixed batch as the model would be trained: the next token, or the hidden tokens at their masked places."""
    if spec.is_causal:
        return IDS[:, :-1], IDS[:, 1:]
    return IDS.masked_fill(HIDDEN, MASK_ID), IDS.masked_fill(~HIDDEN, IGNORED)


def loss_of(model, ids, targets, **options):
    types = None if model.spec.embedding.n_token_types is None else TYPES[:, : ids.shape[1]]
    return next_token_loss(model(ids, token_types=types, **options), targets).mean()


def is_idle(name, parameter_name):
    """Numbers whose gradient is zero by the mathematics: what adds the same to all scores of a query changes no softmax.

    A key's bias does so where no position turns it; behind a window of one key there is nothing to choose between.
    """
    if name == "window_1":
        return any(part in parameter_name for part in ("q_proj", "k_proj"))
    return "rotary" not in name and parameter_name.endswith("k_proj.bias")


@pytest.mark.parametrize("name", VARIANTS)
def test_twenty_steps_lower_the_loss(name):
    """Loss and gradients are finite, a gradient reaches every tensor, and 20 steps of AdamW on one batch bring it down."""
    model = small_model(VARIANTS[name])
    ids, targets = task_of(model.spec)
    optimizer, _ = make_adamw(model, ADAMW)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    losses = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, ids, targets)
        loss.backward()
        losses.append(loss.item())
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, f"step {step}: no gradient reaches {parameter_name}"
            assert parameter.grad.isfinite().all(), f"step {step}: {parameter_name}"
            if step == 0:
                assert (parameter.grad.abs().max() > 1e-9) != is_idle(name, parameter_name), parameter_name
        optimizer.step()
    with torch.no_grad():
        losses.append(loss_of(model, ids, targets).item())
    assert all(torch.tensor(losses).isfinite())
    assert losses[-1] < 0.8 * losses[0], losses


@pytest.mark.parametrize("name", VARIANTS)
def test_fused_and_explicit_attention_agree(name):
    """To 1e-12 of the largest logit in float64, padded on either side or not, and so do the gradients to 1e-11."""
    model = small_model(VARIANTS[name])
    types = None if model.spec.embedding.n_token_types is None else TYPES
    for mask in (None, PADDED):
        real = torch.ones_like(PADDED) if mask is None else mask
        targets = IDS.roll(-1, 1).masked_fill(~real, IGNORED)
        found = []
        for path in ("fused", "explicit"):
            logits = model(IDS, mask=mask, token_types=types, attention=path)
            loss = next_token_loss(logits, targets).mean()
            found.append((logits.detach()[real], torch.autograd.grad(loss, list(model.parameters()))))
        (fused, fused_grads), (explicit, explicit_grads) = found
        assert (fused - explicit).abs().max() <= 1e-12 * explicit.abs().max()
        largest = max(grad.abs().max() for grad in explicit_grads)
        assert all((a - b).abs().max() <= 1e-11 * largest for a, b in zip(fused_grads, explicit_grads, strict=True))
