"""The lens against a slow float64 computation, on models of every kind; its last layer is the model itself."""

import math

import numpy as np
import pytest
import torch

from oracles import lens as lens_oracle
from oracles.layers import softcap
from oracles.mixtures import random_spec
from oracles.specs import variants
from oracles.transformer import head as oracle_head
from oracles.transformer import norm as oracle_norm
from oracles.transformer import run as oracle_run
from oracles.weights import draw
from unembed.errors import ShapeError, UsageError
from unembed.lenses import reading
from unembed.lenses.logit_lens import STATISTICS, logit_lens
from unembed.lenses.reading import read
from unembed.lenses.tables import MATRICES
from unembed.model.check import from_plain
from unembed.model.transformer import Transformer

VARIANTS = variants()
N_POS = 6


def build(spec, seed=0):
    """A float64 model of a plain spec, and the arrays that it was given."""
    weights = draw(spec, seed)
    model = Transformer(from_plain(spec)).double()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return model, weights


def ids_for(spec, n_rows=2, seed=3):
    return np.random.default_rng(seed).integers(spec["embedding"]["vocab_size"], size=(n_rows, N_POS))


def causal(spec):
    return all(block["attention"]["sees"]["type"] == "causal" for block in spec["blocks"])


def oracle(spec, weights, ids, n_known):
    """Every statistic of each sequence, from scores that loops over plain numbers made; and the logits."""
    taps = oracle_run(spec, weights, ids.tolist())
    n_layers = len(spec["blocks"])
    streams = [taps["blocks.0.resid_pre"], *(taps[f"blocks.{i}.resid_post"] for i in range(n_layers))]

    def scores(vector):
        if spec["final_norm"] is not None:
            vector = oracle_norm(vector, spec["final_norm"], weights, "final_norm")
        return [float(s) for s in oracle_head(vector, spec["head"], weights)[:n_known]]

    made = []
    for b, row in enumerate(ids.tolist()):
        targets = [*row[1:], None] if causal(spec) else row
        targets = [None if i is None or i >= n_known else i for i in targets]
        whole = [[scores(stream[b][p]) for p in range(N_POS)] for stream in streams]
        made.append(lens_oracle.statistics(whole, targets=targets, following=targets, n_top=5))
    return made, taps["logits"]


def close(got, expected, name):
    assert got.shape == (len(expected), len(expected[0])), name
    for layer, row in enumerate(expected):
        for pos, b in enumerate(row):
            a, where = got[layer][pos], f"{name}, layer {layer}, position {pos}"
            assert (a is None) == (b is None), where
            if isinstance(b, tuple):
                assert b[0] <= a <= b[1], where
            elif isinstance(b, bool):
                assert bool(a) == b, where
            elif a is not None:
                assert float(a) == pytest.approx(float(b), abs=1e-9), where


NAMED = ("plain", "untied_head_everything", "tied_head_softcap", "final_norm_none", "bidirectional", "residual_post")


@pytest.mark.parametrize("name", NAMED)
def test_oracle_named_variants(name):
    check_against_oracle(VARIANTS[name])


@pytest.mark.parametrize("seed", range(5))
def test_oracle_random_mixtures(seed):
    check_against_oracle(random_spec(seed))


def check_against_oracle(spec):
    model, weights = build(spec)
    ids = ids_for(spec)
    n_known = spec["embedding"]["vocab_size"] - 2
    result = logit_lens(model, torch.from_numpy(ids), texts=[f"t{i}" for i in range(n_known)])
    expected, logits = oracle(spec, weights, ids, n_known)
    for b, one in enumerate(expected):
        for name in MATRICES:
            close(result.values[name][b], one[name], name)
        assert result.values["settled_layer"][b] == one["settled"]
    assert result.values["identity_error"] < 1e-10
    last = model.spec.n_layers
    top = result.tables["top"]
    for row in top.rows():
        assert max(row["ids"]) < n_known
        if row["layer"] == last:
            scores = logits[row["batch"]][row["position"]][:n_known]
            assert row["probabilities"][0] == pytest.approx(1 / np.exp(scores - scores.max()).sum(), abs=1e-10)
            assert row["ids"][0] == int(scores.argmax())


@pytest.mark.parametrize("seed", range(20, 24))
def test_property_last_layer_reads_as_the_model_itself_in_float32(seed):
    model, _ = build(random_spec(seed))
    model = model.float()
    ids = torch.from_numpy(ids_for(random_spec(seed)))
    largest = float(model(ids).detach().abs().max())
    assert logit_lens(model, ids).values["identity_error"] <= 1e-5 * max(1.0, largest)


def rms_model(cap=None):
    """d = V = 4, RMS final norm without gain, unembedding the identity, one block that adds what it is told."""
    spec = VARIANTS["plain"]
    plain = random_spec(0)
    plain |= {"blocks": [], "final_norm": {"type": "rms_norm", "eps": 1e-12, "gain": "none"}}
    plain["embedding"] = {**spec["embedding"], "vocab_size": 4, "d_model": 4}
    plain["head"] = {"type": "untied", "transform": None, "has_bias": False, "scale": None, "softcap": cap}
    model = Transformer(from_plain(plain)).double()
    torch.nn.init.eye_(model.head.table)
    torch.nn.init.zeros_(model.embed.table)
    return model


def best_probabilities(model, streams):
    """The first token's probability in each layer, for streams of one position."""
    found = read(model, torch.tensor(streams).double()[:, None], n_top=1, statistics=("top", "logsumexp")).numbers
    return (found["top_scores"][:, 0, 0] - found["logsumexp_nats"][:, 0]).exp().tolist()


def test_worked_example_each_layer_is_normed_by_its_own_size():
    # A26a: early residual [2,0,0,0], late [20,0,0,0]: both read [2,0,0,0]; with the late scale it would be 0.2893
    model = rms_model()
    streams = [[x, 0.0, 0.0, 0.0] for x in (2.0, 20.0)]
    found = best_probabilities(model, streams)
    p = math.exp(2) / (math.exp(2) + 3)
    assert found == pytest.approx([p, p], abs=1e-9)
    assert p == pytest.approx(0.7112, abs=1e-4)


def test_softcap_is_part_of_the_reading():
    found = best_probabilities(rms_model(cap=0.5), [[2.0, 0.0, 0.0, 0.0]])
    capped = math.exp(softcap(2.0, 0.5))
    assert found == pytest.approx([capped / (capped + 3)], abs=1e-9)


def test_several_sequences_read_as_each_alone():
    spec = random_spec(1)
    model, _ = build(spec)
    ids = ids_for(spec, n_rows=3)
    many = logit_lens(model, ids.tolist())
    for b, row in enumerate(ids.tolist()):
        one = logit_lens(model, row)
        assert one.values["entropy_nats"].shape == (model.spec.n_layers + 1, N_POS)
        np.testing.assert_allclose(many.values["entropy_nats"][b], one.values["entropy_nats"], atol=1e-10)
        mine = many.tables["lens"]["batch"] == b
        assert many.tables["lens"]["text"][mine].tolist() == one.tables["lens"]["text"].tolist()
        assert many.values["tokens"][b] == one.values["tokens"]
    assert "batch" not in one.tables["lens"].columns
    assert many.pictures[0].facet == "batch"
    assert one.pictures[0].facet is None


def test_pieces_give_the_same_as_the_whole(monkeypatch):
    spec = random_spec(2)
    model, _ = build(spec)
    ids = ids_for(spec, n_rows=3)
    whole = logit_lens(model, ids.tolist()).to_dict()
    monkeypatch.setattr(reading, "SCORES_AT_ONCE", spec["embedding"]["vocab_size"] * 4)
    pieces = logit_lens(model, ids.tolist()).to_dict()
    assert pieces.keys() == whole.keys()
    np.testing.assert_allclose(pieces["entropy_nats"], whole["entropy_nats"], atol=1e-12)
    assert pieces["top"]["ids"] == whole["top"]["ids"]
    assert pieces["target_rank"] == whole["target_rank"]


def test_statistics_choose_what_is_computed():
    model, _ = build(random_spec(3))
    result = logit_lens(model, [1, 2, 3], statistics=("top", "logsumexp", "entropy"))
    assert {"logsumexp_nats", "entropy_nats", "top"} <= result.to_dict().keys()
    assert not {"kl_to_final_nats", "target_rank"} & result.to_dict().keys()
    assert logit_lens(model, [1, 2, 3], statistics=("entropy",)).pictures == ()


def test_keys_of_the_contract():
    model, _ = build(random_spec(4))
    plain = logit_lens(model, [1, 2, 3], texts=[f"t{i}" for i in range(9)], n_top=2).to_dict()
    keys = {"layers", "tokens", "top", "entropy_nats", "kl_to_final_nats", "target_rank", "identity_error"}
    assert keys <= plain.keys()
    assert plain["layers"] == list(range(model.spec.n_layers + 1))
    assert plain["tokens"] == ["t1", "t2", "t3"]
    assert [len(ids) for ids in plain["top"]["ids"]] == [2] * (3 * len(plain["layers"]))
    assert set(plain["top"]) == {"layer", "position", "ids", "texts", "probabilities"}


def test_without_texts_texts_are_null_and_every_row_counts():
    spec = random_spec(5)
    model, _ = build(spec)
    plain = logit_lens(model, [1, 2]).to_dict()
    assert plain["tokens"] == [None, None]
    assert set(plain["top"]["texts"][0]) == {None}
    assert len(logit_lens(model, [1, 2], n_top=10**6).to_dict()["top"]["ids"][0]) == spec["embedding"]["vocab_size"]


def test_padding_rows_as_input_or_target_have_no_text_and_no_rank():
    spec = VARIANTS["plain"]
    model, _ = build(spec)
    unknown = spec["embedding"]["vocab_size"] - 1
    plain = logit_lens(model, [1, unknown, 2], texts=[f"t{i}" for i in range(unknown)]).to_dict()
    assert plain["tokens"] == ["t1", None, "t2"]
    assert plain["target_rank"][0][0] is None
    assert plain["target_rank"][0][1] is not None


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_read_in_float32(name):
    spec = VARIANTS["plain"]
    model, _ = build(spec)
    exact = logit_lens(model, [1, 2, 3]).values["entropy_nats"]
    half = logit_lens(model.to(getattr(torch, name)), [1, 2, 3]).values["entropy_nats"]
    np.testing.assert_allclose(half, exact, atol=0.1)


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([], {}, r"ids are \[0\].*give at least one id"),
        (torch.tensor([[[1]]]), {}, r"ids are \[1, 1, 1\]"),
        (torch.tensor([0.5]), {}, "torch.float32; give at least one id, as whole numbers"),
        ([[1], [1, 2]], {}, "of one length each"),
        (
            [1],
            {"statistics": ("top", "entrpy")},
            "no statistic is named 'entrpy'; there are top, entropy, .* Did you mean entropy?",
        ),
        ([1], {"n_top": 0}, "top is 0; it must be at least 1"),
    ],
)
def test_message_says_what_came_and_what_to_give(ids, options, message):
    model, _ = build(random_spec(0))
    with pytest.raises(UsageError, match=message):
        logit_lens(model, ids, **options)


def test_message_for_ids_without_a_row():
    model, _ = build(random_spec(0))
    with pytest.raises(ShapeError, match="ids run from 1 to 99"):
        logit_lens(model, [1, 99])


def test_model_without_blocks_has_one_layer_to_read():
    model, _ = build(VARIANTS["no_blocks"])
    plain = logit_lens(model, [1, 2]).to_dict()
    assert plain["layers"] == [0]
    assert plain["identity_error"] == 0
    assert plain["kl_to_final_nats"] == [[0, 0]]


def test_nothing_of_the_model_is_changed():
    model, _ = build(random_spec(6))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = logit_lens(model, [1, 2, 3], statistics=STATISTICS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert result.notes == ("lens_is_a_clue",)
