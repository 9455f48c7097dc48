"""The chunked loss is the plain one: same value, same gradients, for every head, cut and size of piece."""

import itertools

import msgspec
import pytest
import torch

from unembed.errors import ShapeError, UsageError
from unembed.model.init import Gpt2Init, build
from unembed.model.presets.gpt import gpt_spec
from unembed.model.spec import HeadTransform, LayerNorm, TiedHead, UntiedHead
from unembed.objectives import IGNORED, chunked_next_token_loss, loss_parts, next_token_loss

VOCAB = 53
HEADS = {
    "tied": TiedHead(transform=None, has_bias=False, scale=None, softcap=None),
    "tied, all of it": TiedHead(
        transform=HeadTransform(activation="gelu", norm=LayerNorm(eps=1e-5, has_bias=True)),
        has_bias=True,
        scale=0.5,
        softcap=3.0,
    ),
    "untied, bias": UntiedHead(transform=None, has_bias=True, scale=None, softcap=None),
    "untied, cap": UntiedHead(transform=None, has_bias=False, scale=2.0, softcap=5.0),
}


def make(head, dtype=torch.float64):
    spec = gpt_spec(vocab_size=VOCAB, context_length=16, d_model=16, n_layers=1, n_heads=2)
    return build(msgspec.structs.replace(spec, head=head), Gpt2Init(std=0.5), seed=0, dtype=dtype)


def batch(seed=1):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (3, 16), generator=generator)
    targets = torch.randint(0, VOCAB, (3, 16), generator=generator)
    targets[0, :5] = IGNORED
    targets[2, 7] = IGNORED
    return ids, targets


def value_and_gradients(model, loss):
    model.zero_grad(set_to_none=True)
    loss.mean().backward()
    return loss.total.item(), int(loss.n_tokens), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(("over", "z_loss"), list(itertools.product(["tokens", "vocabulary"], [0.0, 1e-2])))
@pytest.mark.parametrize("scores_at_once", [1, VOCAB * 2 + 3, 300, 10**6])
def test_oracle_equals_the_plain_loss_in_value_and_every_gradient(head, over, z_loss, scores_at_once):
    model, (ids, targets) = make(head), batch()
    plain = value_and_gradients(model, next_token_loss(model(ids), targets, z_loss=z_loss))
    chunked = value_and_gradients(
        model,
        chunked_next_token_loss(
            model, model.hidden(ids), targets, z_loss=z_loss, over=over, scores_at_once=scores_at_once
        ),
    )
    assert chunked[0] == pytest.approx(plain[0], rel=1e-13)
    assert chunked[1] == plain[1] == 42
    largest = max(float(g.abs().max()) for g in plain[2].values())
    for name, expected in plain[2].items():
        # rounding of a sum is measured by what was summed: keys' biases have a gradient of zero made of large terms
        torch.testing.assert_close(chunked[2][name], expected, rtol=1e-12, atol=1e-13 * largest)


@pytest.mark.parametrize("over", ["tokens", "vocabulary"])
def test_property_nothing_counted_gives_zero_and_zero_gradients(over):
    model, (ids, targets) = make(HEADS["tied"]), batch()
    loss = chunked_next_token_loss(model, model.hidden(ids), torch.full_like(targets, IGNORED), over=over)
    value, n_tokens, gradients = value_and_gradients(model, loss)
    assert (value, n_tokens) == (0.0, 0)
    assert all((g == 0).all() for g in gradients.values())


def test_property_without_gradients_none_are_made():
    model, (ids, targets) = make(HEADS["untied, bias"]), batch()
    with torch.no_grad():
        loss = chunked_next_token_loss(model, model.hidden(ids), targets)
        assert not loss.total.requires_grad
        assert loss.total.item() == pytest.approx(next_token_loss(model(ids), targets).total.item(), rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    model, (ids, targets) = make(HEADS["tied"], dtype), batch()
    resid = model.hidden(ids).detach()
    expected = next_token_loss(
        torch.nn.functional.linear(model.normed(resid).double(), model.embed.table.double()), targets
    )
    # the features are rounded alike in both; what is left is float32's own 6e-8, over sums of 53 terms
    assert chunked_next_token_loss(model, resid, targets).total.item() == pytest.approx(expected.total.item(), rel=2e-6)


@pytest.mark.parametrize("bad", [VOCAB, -3])
def test_message_names_the_target_that_has_no_score(bad):
    model, (ids, targets) = make(HEADS["tied"]), batch()
    targets[1, 1] = bad
    with pytest.raises(ShapeError, match="there are scores for ids 0 to 52 only"):
        chunked_next_token_loss(model, model.hidden(ids), targets)


def test_message_for_shapes_and_sizes(unchecked):
    model, (ids, targets) = make(HEADS["tied"]), batch()
    with pytest.raises(ShapeError, match=r"the stream is for \[3, 16\] tokens, targets for \[3, 15\]"):
        chunked_next_token_loss(model, model.hidden(ids), targets[:, 1:])
    with pytest.raises(UsageError, match="scores_at_once is 0"):
        chunked_next_token_loss(model, model.hidden(ids), targets, scores_at_once=0)


def test_parts_add_up_to_the_loss():
    model, (ids, targets) = make(HEADS["tied"]), batch()
    logits = model(ids).detach()
    result = loss_parts(logits, targets)
    table = result.tables["loss_parts"]
    assert table.n_rows == 42
    assert result.values["loss_nats"] == pytest.approx(next_token_loss(logits, targets).total.item(), rel=1e-13)
    row = table.rows()[0]
    scores = logits[row["batch"], row["position"]]
    assert row["log_sum_exp"] - row["target_logit"] == pytest.approx(row["loss_nats"], rel=1e-13)
    assert row["log_sum_exp"] == pytest.approx(float(scores.exp().sum().log()), rel=1e-12)
    assert row["best_id"] == int(scores.argmax())
