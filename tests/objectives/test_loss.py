"""The loss as sum and count: what is counted, what is not, and which numbers it can take."""

import math

import numpy as np
import pytest
import torch

from unembed.errors import ShapeError
from unembed.objectives import IGNORED, LossSum, bits_per_byte, next_token_loss


def oracle(logits: np.ndarray, targets: np.ndarray) -> tuple[float, int]:
    """-log softmax, one token at a time in float64."""
    total, count = 0.0, 0
    for scores, target in zip(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), strict=True):
        if target != IGNORED:
            largest = scores.max()
            total += largest + math.log(sum(math.exp(s - largest) for s in scores)) - scores[target]
            count += 1
    return total, count


def test_oracle_sum_and_count_over_counted_tokens(generator):
    logits = torch.randn(3, 5, 7, generator=generator, dtype=torch.float64) * 4
    targets = torch.randint(7, (3, 5), generator=generator)
    targets[0, :3] = targets[2] = IGNORED
    expected, count = oracle(logits.numpy(), targets.numpy())
    loss = next_token_loss(logits, targets)
    assert loss.n_tokens == count == 7
    assert loss.total.item() == pytest.approx(expected, rel=1e-13)
    assert loss.mean().item() == pytest.approx(expected / 7, rel=1e-13)


def test_worked_example_of_the_documents():
    """exp of (3.1, 0.5, -0.8, 1.7, 0.2) is 22.198, 1.649, 0.449, 5.474, 1.221: the first has probability 0.7162."""
    loss = next_token_loss(torch.tensor([[[3.1, 0.5, -0.8, 1.7, 0.2]]]), torch.tensor([[0]]))
    assert loss.total.item() == pytest.approx(-math.log(22.198 / 30.991), abs=1e-4)


def test_mean_of_unequal_micro_batches_weighs_tokens_not_batches():
    """A05a: sums 4 over 1 token and 3 over 3 tokens give 7/4, not (4 + 1) / 2."""
    first = LossSum(torch.tensor(4.0), torch.tensor(1))
    second = LossSum(torch.tensor(3.0), torch.tensor(3))
    assert LossSum(first.total + second.total, first.n_tokens + second.n_tokens).mean().item() == 1.75


def test_ignored_sequence_changes_nothing(generator):
    """A05c: four counted tokens stay divided by four, in loss and gradient, to the last bit."""
    logits = torch.randn(1, 4, 6, generator=generator)
    targets = torch.randint(6, (1, 4), generator=generator)
    alone = logits.clone().requires_grad_()
    next_token_loss(alone, targets).mean().backward()
    more = torch.cat([logits, torch.randn(2, 4, 6, generator=generator)]).requires_grad_()
    loss = next_token_loss(more, torch.cat([targets, torch.full((2, 4), IGNORED)]))
    loss.mean().backward()
    assert loss.n_tokens == 4
    assert torch.equal(more.grad[:1], alone.grad)
    assert (more.grad[1:] == 0).all()


def test_every_label_ignored_gives_zero_and_zero_gradients(generator):
    logits = torch.randn(2, 3, 5, generator=generator, requires_grad=True)
    loss = next_token_loss(logits, torch.full((2, 3), IGNORED))
    assert (loss.total.item(), int(loss.n_tokens), loss.mean().item()) == (0.0, 0, 0.0)
    loss.mean().backward()
    assert (logits.grad == 0).all()


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, 60_000.0), (torch.bfloat16, 59_904.0)])
def test_half_precision_logits_are_taken_in_float32(dtype, large):
    """A09c: log-sum-exp of 60,000 overflows float16; the loss of the other class is finite and exact."""
    logits = torch.tensor([[[large, 0.0]]], dtype=dtype)
    of_class = [next_token_loss(logits, torch.tensor([[target]])).total for target in (0, 1)]
    assert [loss.item() for loss in of_class] == [0.0, large]
    assert of_class[0].dtype == torch.float32


def test_gradient_is_softmax_minus_one_hot(generator):
    logits = torch.randn(1, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    next_token_loss(logits, torch.tensor([[2, 0]])).total.backward()
    expected = logits.detach().softmax(-1)
    expected[0, 0, 2] -= 1
    expected[0, 1, 0] -= 1
    assert torch.allclose(logits.grad, expected, rtol=0, atol=1e-15)


def test_bits_per_byte_of_a_uniform_guess_over_bytes_is_8():
    assert bits_per_byte(math.log(256) * 1000, 1000) == pytest.approx(8.0, rel=1e-15)
    # 2.5 bytes a token: the same loss a token is worth less a byte
    assert bits_per_byte(2.0 * 40, 100) == pytest.approx(2.0 / math.log(2) / 2.5, rel=1e-15)


@pytest.mark.usefixtures("unchecked")
def test_messages_name_shapes_and_ids():
    logits = torch.zeros(2, 3, 5)
    with pytest.raises(ShapeError, match=r"logits are for \[2, 3\] tokens, targets for \[2, 4\]"):
        next_token_loss(logits, torch.zeros(2, 4, dtype=torch.long))
    for wrong, named in ((5, "from 0 to 5"), (-1, "from -1 to 1")):
        targets = torch.tensor([[0, 1, wrong], [IGNORED, 0, 0]])
        with pytest.raises(ShapeError, match=f"loss: targets run {named}, but there are scores for ids 0 to 4 only"):
            next_token_loss(logits, targets)
