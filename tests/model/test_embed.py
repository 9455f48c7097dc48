"""Ids and token types that have no row are refused by name, and the next call works."""

import msgspec
import pytest
import torch

from small import small_model
from unembed.errors import ShapeError
from unembed.model.init import Gpt2Init, build


def test_message_names_the_ids_that_have_no_row():
    model = small_model()
    n_rows = model.spec.embedding.vocab_size
    with pytest.raises(ShapeError, match=rf"embed: ids run from 0 to {n_rows}, but the table has {n_rows} rows"):
        model(torch.tensor([[0, n_rows]]))
    assert model(torch.tensor([[0, n_rows - 1]])).isfinite().all()


def test_message_names_the_token_types_that_have_no_row():
    spec = small_model().spec
    spec = msgspec.structs.replace(spec, embedding=msgspec.structs.replace(spec.embedding, n_token_types=2))
    model, ids = build(spec, Gpt2Init(std=0.02), seed=0), torch.tensor([[0, 1]])
    with pytest.raises(ShapeError, match="embed: token types run from 0 to 2, but the table has 2 rows"):
        model(ids, token_types=torch.tensor([[0, 2]]))
    assert not torch.equal(model(ids, token_types=torch.tensor([[0, 1]])), model(ids))
