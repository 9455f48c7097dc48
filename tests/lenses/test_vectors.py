"""Any vector through the head: as a state of the same numbers, and without the norm as a plain product."""

import numpy as np
import pytest
import torch

import unembed
from oracles.lens import distribution
from oracles.mixtures import random_spec
from oracles.weights import draw
from unembed.errors import ShapeError, UsageError
from unembed.model.check import from_plain
from unembed.model.transformer import Transformer


@pytest.fixture
def model():
    spec = random_spec(1)
    made = Transformer(from_plain(spec)).double()
    made.load_state_dict({name: torch.from_numpy(value) for name, value in draw(spec, 0).items()})
    return made


def vectors_for(model, n=3):
    d_model = model.spec.embedding.d_model
    return torch.randn(n, d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("normalises", [True, False])
def test_oracle_vectors_are_scored_by_the_head(model, normalises):
    vectors = vectors_for(model)
    with torch.no_grad():
        if normalises:
            scores = model.unembed(vectors[None])[0]
        else:
            scores = model.head(vectors[None], model.embed.table, lambda name, value: value)[0]
    found = unembed.lens(model, vectors=vectors, normalises=normalises, top=2)
    for row, told, best in zip(scores, found.tables["vectors"].rows(), found.tables["top"].rows(), strict=True):
        p, total = distribution(row.tolist())
        assert told["logsumexp_nats"] == pytest.approx(total, abs=1e-10)
        assert told["entropy_nats"] == pytest.approx(-sum(x * np.log(x) for x in p if x), abs=1e-10)
        order = np.argsort(-row.numpy())[:2].tolist()
        assert best["ids"] == order
        assert best["probabilities"] == pytest.approx([p[i] for i in order], abs=1e-12)
        assert best["scores"] == pytest.approx([float(row[i]) for i in order], abs=1e-12)


def test_one_vector_is_a_row_and_the_norm_matters(model):
    vector = vectors_for(model)[0]
    one = unembed.lens(model, vectors=vector)
    assert one.tables["vectors"].n_rows == 1
    assert "vectors" in one._repr_html_()


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (torch.ones(2, 3).double(), ShapeError, "the vectors are 3 wide, the stream of this model"),
        (torch.ones(1, 1, 3), UsageError, r"vectors are \[1, 1, 3\] of torch.float32; give numbers in the shape"),
        (torch.ones(3, dtype=torch.long), UsageError, r"vectors are \[3\] of torch.int64; give numbers"),
    ],
)
def test_messages(model, given, kind, message, unchecked):
    with pytest.raises(kind, match=message):
        unembed.lens(model, vectors=given)


def test_text_ids_and_vectors_are_one_of_three(model):
    with pytest.raises(UsageError, match="lens: give either a text or ids"):
        unembed.lens(model, ids=[1], vectors=vectors_for(model))
