"""The restated nanoGPT is the function, the schedule and the optimizer that it says it is."""

import math

import numpy as np
import pytest
import torch

from peers import nanogpt

TINY = nanogpt.Config(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, batch_size=3, max_steps=40)


def tiny_model(*, bias: bool = False) -> nanogpt.GPT:
    torch.manual_seed(0)
    model = nanogpt.GPT(nanogpt.Config(**{**vars(TINY), "bias": bias}))
    with torch.no_grad():
        for parameter in model.parameters():  # off their start, where gains are 1 and biases 0
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def test_size_is_that_of_the_published_run():
    model = nanogpt.GPT(nanogpt.Config())
    n_parameters = sum(p.numel() for p in model.parameters())
    # tables 65 x 128 and 64 x 128; a block 12 d^2 + 2 gains; a last gain
    assert n_parameters == (65 + 64) * 128 + 4 * (12 * 128**2 + 2 * 128) + 128 == 804_096


def test_start_has_the_two_standard_deviations():
    torch.manual_seed(0)
    model = nanogpt.GPT(nanogpt.Config())
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            expected = 0.02 / math.sqrt(8) if name.endswith("c_proj.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


@pytest.mark.parametrize("bias", [False, True])
def test_parity_loss_equals_that_of_a_transformers_gpt2_with_these_weights(bias):
    from transformers import GPT2Config, GPT2LMHeadModel

    ours = tiny_model(bias=bias).double()
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=11,
            n_positions=8,
            n_embd=16,
            n_layer=2,
            n_head=2,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).double()
    weights = ours.state_dict()
    for name, tensor in theirs.state_dict().items():
        # transformers stores its matrices inside blocks transposed, and always has biases
        source = weights.get(name)
        if source is None:
            source = torch.zeros_like(tensor)
        elif name.startswith("transformer.h.") and tensor.dim() == 2:
            source = source.T
        tensor.copy_(source)
    ids, targets = torch.randint(11, (2, 3, 8), generator=torch.Generator().manual_seed(1))
    logits = theirs(input_ids=ids).logits
    expected = torch.nn.functional.cross_entropy(logits.view(-1, 11), targets.view(-1))
    assert ours(ids, targets).item() == pytest.approx(expected.item(), abs=1e-12)


def test_learning_rate_rises_falls_and_ends_at_its_minimum():
    config = nanogpt.Config()
    rates = [nanogpt.learning_rate(step, config) for step in range(2001)]
    assert rates[0] == pytest.approx(1e-3 / 101)
    assert rates[100] == max(rates) == pytest.approx(1e-3)
    assert rates[1050] == pytest.approx((1e-3 + 1e-4) / 2)
    assert rates[2000] == min(rates[100:]) == pytest.approx(1e-4)
    assert nanogpt.learning_rate(5000, config) == 1e-4


def test_every_parameter_is_in_one_group_and_only_matrices_decay():
    model = tiny_model(bias=True)
    decayed, plain = nanogpt.make_optimizer(model, TINY).param_groups
    assert [decayed["weight_decay"], plain["weight_decay"]] == [0.1, 0.0]
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in plain["params"]} == {1}
    grouped = [id(p) for group in (decayed, plain) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    assert not decayed["fused"], "on a CPU nanoGPT runs PyTorch's default AdamW"


def test_batches_are_slices_and_their_continuations(tmp_path):
    path = tmp_path / "train.bin"
    np.arange(500, dtype=np.uint16).tofile(path)
    torch.manual_seed(0)
    x, y = nanogpt.get_batch(path, TINY)
    assert x.shape == y.shape == (3, 8)
    assert torch.equal(y, x + 1)
    assert torch.equal(x.diff(), torch.ones(3, 7, dtype=torch.long))


@pytest.mark.parametrize("length", [8, 9, 10, 17, 30])
def test_oracle_evaluation_predicts_each_token_once_without_warm_context(tmp_path, length):
    path = tmp_path / "val.bin"
    ids = np.random.default_rng(0).integers(0, 11, length, dtype=np.uint16)
    ids.tofile(path)
    model = tiny_model().double()
    nats = []
    for first in range(0, length - 1, 8):
        x, y = ids[first : min(first + 8, length - 1)], ids[first + 1 : first + 9]
        for end in range(1, len(x) + 1):
            # all positions, less all but the last: the loss of one token alone
            whole = [
                model(torch.tensor(x[None, :n].astype(int)), torch.tensor(y[None, :n].astype(int))).item() * n
                for n in ([end - 1] if end > 1 else []) + [end]
            ]
            nats.append(whole[-1] - (whole[0] if end > 1 else 0.0))
    assert len(nats) == length - 1
    assert nanogpt.evaluate(model, path) == pytest.approx(sum(nats) / len(nats), abs=1e-9)


def test_training_learns_a_repeating_text(tmp_path):
    train_ids, val_ids, vocab_size = nanogpt.write_ids("abcdefghijk" * 60, tmp_path)
    torch.manual_seed(0)
    model = nanogpt.GPT(TINY)
    trainer = nanogpt.Trainer(train_ids, TINY, model)
    before = nanogpt.evaluate(model, val_ids)
    for _ in range(TINY.max_steps):
        trainer.step()
    assert vocab_size == 11
    assert before == pytest.approx(math.log(11), abs=0.05)
    assert nanogpt.evaluate(model, val_ids) < before - 0.1
