"""Another vocabulary size: old rows to the bit, the tie kept, and nothing else touched."""

import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.errors import UsageError
from unembed.model.resize import resize_vocabulary

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", [10, 13, 29])
def test_old_rows_keep_their_bits_and_old_scores_stay(tied, has_bias, size):
    plain = changed(base(), head__has_bias=has_bias)
    model = small_model(plain if tied else changed(plain, head__type="untied"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    resized = resize_vocabulary(model, size)
    kept = min(13, size)
    assert resized.spec.embedding.vocab_size == size
    assert resized.spec.ties_embeddings == tied
    assert (resized.unembed_table() is resized.embed.table) == tied
    for name, parameter in resized.named_parameters():
        if name in ("embed.table", "head.table", "head.bias"):
            assert len(parameter) == size
            assert torch.equal(parameter[:kept], before[name][:kept]), name
            assert parameter.isfinite().all()
        else:
            assert torch.equal(parameter, before[name]), name
    ids = IDS % kept
    torch.testing.assert_close(resized(ids)[..., :kept], model(ids)[..., :kept], rtol=0, atol=1e-12)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_the_doctor_says_the_same_of_both():
    for plain in (base(), changed(base(), head__type="untied")):
        model = small_model(plain)
        assert unembed.tying.examine(resize_vocabulary(model, 20)).values["tied"] == model.spec.ties_embeddings


def test_new_rows_are_like_the_old_ones_and_are_trained():
    model = small_model(changed(base(), embedding__vocab_size=400))
    resized = resize_vocabulary(model, 2400, seed=3)
    old, new = resized.embed.table[:400], resized.embed.table[400:]
    assert (new.mean(0) - old.mean(0)).abs().max() < 5 * old.std() / 2000**0.5
    torch.testing.assert_close(new.std(0), old.std(0), rtol=0.1, atol=0)
    assert torch.equal(resize_vocabulary(model, 2400, seed=3).embed.table, resized.embed.table)
    assert not torch.equal(resize_vocabulary(model, 2400, seed=4).embed.table, resized.embed.table)
    resized(torch.tensor([[2399, 5]])).sum().backward()
    assert resized.embed.table.grad[2399].abs().sum() > 0


def test_writing_into_the_new_table_leaves_the_old_model_alone():
    model = small_model()
    before = model.embed.table.detach().clone()
    with torch.no_grad():
        resize_vocabulary(model, 13).embed.table.zero_()
    assert torch.equal(model.embed.table, before)


@pytest.mark.parametrize("size", [0, -3, 2.0, True, "12", 2**31])
def test_sizes_that_are_none_are_refused(size, unchecked):
    with pytest.raises(UsageError, match="it must be a whole number, at least 1"):
        unembed.resize_vocabulary(small_model(), size)


def test_a_name_in_the_place_of_a_model_is_answered(unchecked):
    with pytest.raises(UsageError, match=r"got the name 'gpt2', expected a model"):
        unembed.resize_vocabulary("gpt2", 5)
