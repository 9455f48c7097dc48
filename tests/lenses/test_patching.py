"""Patching: everything is the clean run, nothing the corrupted one, and what lies between is the oracle's patched run."""

import numpy as np
import pytest
import torch

from oracles import transformer as oracle
from oracles.layers import norm as oracle_norm
from oracles.mixtures import random_spec
from oracles.specs import base, changed, variants
from oracles.weights import draw as draw_weights
from small import small_model
from unembed.errors import UsageError
from unembed.lenses import patched_runs, patching
from unembed.lenses.patched_runs import Place
from unembed.lenses.patching import METRICS, patch
from unembed.model.taps import Edit, Recorder, tap_names
from unembed.pictures import draw

VARIANTS = variants()
CLEAN, CORRUPTED = [1, 2, 5, 4, 1, 7], [1, 2, 6, 4, 3, 7]
LOGIT = {"target": 3, "metric": "logit"}


def oracle_after(spec, weights, resid, layer, position):
    """The scores at a position of a run whose stream before `layer` is replaced, in plain NumPy."""
    for index in range(layer, len(spec["blocks"])):
        _, resid = oracle.block(resid, spec["blocks"][index], weights, f"blocks.{index}", [True] * len(resid))
    last = resid[position]
    last = last if spec["final_norm"] is None else oracle_norm(last, spec["final_norm"], weights, "final_norm")
    return oracle.head(last, spec["head"], weights)


def score(logits, metric, target=3, against=6):
    if metric == "probability":
        shares = np.exp(logits - logits.max())
        return shares[target] / shares.sum()
    return logits[target] - (logits[against] if metric == "logit_difference" else 0.0)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spec", [base(), VARIANTS["residual_post"], random_spec(3)], ids=["pre", "post", "mixture"])
def test_oracle_every_cell_of_the_stream(spec, metric):
    weights = draw_weights(spec, 0)
    clean, corrupted = (
        {name: value[0] for name, value in oracle.run(spec, weights, [ids]).items()} for ids in (CLEAN, CORRUPTED)
    )
    against = {"against": 6} if metric == "logit_difference" else {}
    found = patch(small_model(spec), CLEAN, CORRUPTED, target=3, metric=metric, position=5, **against)
    ends = [score(run["logits"][5], metric) for run in (clean, corrupted)]
    assert [found.values["clean"], found.values["corrupted"]] == pytest.approx(ends, abs=1e-10)
    for row in found.tables["patched"].rows():
        stream = corrupted[row["tap"]].copy()
        stream[row["position"]] = clean[row["tap"]][row["position"]]
        expected = score(oracle_after(spec, weights, stream, row["layer"], 5), metric)
        assert row["score"] == pytest.approx(expected, abs=1e-9)
        assert row["recovered"] == pytest.approx((expected - ends[1]) / (ends[0] - ends[1]), abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_property_everything_is_the_clean_run_and_nothing_the_corrupted_one(seed, dtype):
    model = small_model(random_spec(seed), dtype=dtype)
    found = patch(model, CLEAN, CORRUPTED, **LOGIT)
    scale = max(1.0, abs(found.values["clean"]), abs(found.values["corrupted"]))
    worst = 1e-10 if dtype == torch.float64 else 1e-5
    assert found.values["check_error"] <= worst * scale
    for row in found.tables["layers"].rows():  # every position of the stream is all that later layers see
        assert row["score"] == pytest.approx(found.values["clean"], abs=worst * scale)


@pytest.mark.parametrize("attention", ["fused", "explicit"])
def test_the_tap_alone_gives_the_clean_run_to_the_bit(attention):
    model = small_model(VARIANTS["grouped_query"], dtype=torch.float32)
    clean, corrupted = (torch.tensor([ids]) for ids in (CLEAN, CORRUPTED))
    seen = Recorder(["blocks.0.resid_pre"])
    with torch.no_grad():
        expected = model.hidden(clean, tap=seen, attention=attention)
        places = [Place("blocks.0.resid_pre", 0)]
        whole = model.hidden(corrupted, tap=patched_runs.Patch(places, seen.values), attention=attention)
        none = model.hidden(corrupted, tap=patched_runs.Patch([Place(None, None)], {}), attention=attention)
        assert torch.equal(whole, expected)
        assert torch.equal(none, model.hidden(corrupted, attention=attention))


def patchable(spec):
    local = dict.fromkeys(name.rsplit(".", 1)[-1] for name in tap_names(spec) if name.startswith("blocks."))
    return [*local, "embed", "final_norm", "logits"]


@pytest.mark.parametrize("name", ["grouped_query", "residual_parallel_one_norm", "rotary", "mlp_gated_silu_bias"])
def test_any_tap_any_position_equals_an_edit_of_its_own(name, unchecked):
    spec = VARIANTS[name]
    model = small_model(spec)
    for tap in patchable(model.spec):
        found = patch(model, CLEAN, CORRUPTED, tap=tap, **LOGIT)
        is_by_query = tap in patched_runs.BY_QUERY
        path = "explicit" if is_by_query else "fused"
        assert found.values["check_error"] < 1e-10
        assert found.tables["patched"].n_rows == found.tables["layers"].n_rows * len(CLEAN)
        for row in found.tables["patched"].rows()[::5]:
            seen = Recorder([row["tap"]])
            with torch.no_grad():
                model(torch.tensor([CLEAN]), tap=seen, attention=path)
                value, at = seen.values[row["tap"]], row["position"]

                def put(old, value=value, at=at, is_by_query=is_by_query):
                    new = old.clone()
                    where = (slice(None), slice(None), at) if is_by_query else (slice(None), at)
                    new[where] = value[where]
                    return new

                logits = model(torch.tensor([CORRUPTED]), tap=Edit({row["tap"]: put}), attention=path)
            assert row["score"] == pytest.approx(float(logits[0, -1, 3]), abs=1e-10)


def test_by_head_heads_are_patched_alone_and_together_make_the_layer():
    model = small_model(changed(base(n_layers=1)))
    found = patch(model, CLEAN, CORRUPTED, tap="z", by="head", **LOGIT)
    assert found.tables["patched"]["head"].tolist() == [0, 1, 2, 3]
    clean = Recorder(["blocks.0.z"])
    with torch.no_grad():
        model(torch.tensor([CLEAN]), tap=clean)

        def put(old):
            new = old.clone()
            new[:, :, 2] = clean.values["blocks.0.z"][:, :, 2]
            return new

        logits = model(torch.tensor([CORRUPTED]), tap=Edit({"blocks.0.z": put}))
    assert found.tables["patched"]["score"][2] == pytest.approx(float(logits[0, -1, 3]), abs=1e-12)
    keys = patch(small_model(VARIANTS["grouped_query"]), CLEAN, CORRUPTED, tap="k", by="head", **LOGIT)
    assert keys.tables["patched"].n_rows == 2 * 2
    pattern = patch(model, CLEAN, CORRUPTED, tap="attn_pattern", by="head", **LOGIT)
    assert pattern.tables["patched"].n_rows == 4


def test_places_beyond_one_batch_are_patched_alike(monkeypatch):
    model = small_model(base())
    whole = patch(model, CLEAN, CORRUPTED, **LOGIT).tables["patched"]["score"]
    monkeypatch.setattr(patched_runs, "ROWS_AT_ONCE", 5)
    np.testing.assert_allclose(patch(model, CLEAN, CORRUPTED, **LOGIT).tables["patched"]["score"], whole, atol=1e-12)


def test_default_target_and_rival_are_the_best_tokens_of_the_two_runs():
    model = small_model(base(), seed=5)
    best = {last: int(model(torch.tensor([[*CLEAN[:-1], last]]))[0, -1].argmax()) for last in range(13)}
    other = next(last for last in best if best[last] != best[7])
    found = patch(model, CLEAN, [*CLEAN[:-1], other])
    assert [found.values["target_id"], found.values["against_id"]] == [best[7], best[other]]
    assert found.values["clean"] > 0 > found.values["corrupted"]


def test_runs_that_score_alike_have_nothing_to_recover():
    model = small_model(VARIANTS["window_1"])  # the last position sees itself alone
    found = patch(model, CLEAN, CORRUPTED, **LOGIT)
    assert set(found.tables["patched"]["recovered"]) == {None}


def test_picture_is_a_grid_of_layers_and_a_lone_step_has_none():
    found = patch(small_model(base()), CLEAN, CORRUPTED, **LOGIT)
    assert draw(found.pictures[0], found.tables, lang="en")
    heads = patch(small_model(base()), CLEAN, CORRUPTED, tap="z", by="head", **LOGIT)
    assert draw(heads.pictures[0], heads.tables, lang="en")
    assert patch(small_model(base()), CLEAN, CORRUPTED, tap="embed", **LOGIT).pictures == ()


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ((patching, "_axis"), lambda local, by: 2),
        ((patching, "scores_of"), lambda *asked: patched_runs.scores_of(*asked)[::-1]),
        ((patched_runs.Patch, "inside"), lambda self, layer: type(self)(self.places, self.clean, "blocks.0.")),
        ((patched_runs.Question, "score"), lambda self, logits: -logits[:, self.rows[0]].double()),
    ],
    ids=["axis", "cells exchanged", "layer 0 for every layer", "sign"],
)
def test_seeded_mutation_is_caught_by_the_oracle(place, change, monkeypatch, unchecked):
    monkeypatch.setattr(*place, change)
    with pytest.raises((AssertionError, IndexError)):
        test_oracle_every_cell_of_the_stream(base(), "logit")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"corrupted": CLEAN[:-1]}, UsageError, "the clean text has 6 tokens, the corrupted one 5; a position"),
        ({"corrupted": CLEAN}, UsageError, "both texts are the same tokens, so there is nothing to bring back"),
        ({"metric": "loss"}, UsageError, "metric is 'loss'; it must be one of logit_difference, logit, probability"),
        ({"by": "layer"}, UsageError, "by is 'layer'; it must be one of position, head"),
        ({"metric": "logit", "against": 2}, UsageError, "against belongs to the metric logit_difference"),
        ({"target": 2, "against": 2}, UsageError, "target and against are both '2'; name two"),
        ({"tap": "pos_embed"}, UsageError, "depends on positions alone"),
        ({"tap": "embed.table"}, UsageError, "is a table of the model's"),
        ({"tap": "resid_pre", "by": "head"}, UsageError, "has no heads; by head, patch one of q, k, v"),
        ({"tap": "resid_prr", "target": 1, "against": 2}, UsageError, "Did you mean"),
        ({"tap": "blocks.*.resid_prr"}, UsageError, "Did you mean"),
        ({"tap": "blocks.*"}, UsageError, r"tap 'blocks\.\*'"),
        ({"tap": ""}, UsageError, r"tap 'blocks\.\*\.'"),
        ({"tap": "*.z"}, UsageError, "Did you mean"),
        ({"tap": "blocks.9*.z"}, UsageError, "blocks.9"),
        ({"tap": "blocks.7.z"}, UsageError, "blocks.7.z"),
        ({"position": 6}, UsageError, "position is 6; the text has 6 tokens"),
    ],
)
def test_message_for_what_cannot_be_patched(options, error, message):
    options = {"corrupted": CORRUPTED, **options}
    with pytest.raises(error, match=message):
        patch(small_model(base()), CLEAN, options.pop("corrupted"), **options)


def test_message_where_both_runs_say_the_same_names_the_way_out():
    model = small_model(VARIANTS["window_1"])
    with pytest.raises(UsageError, match="the best token of both runs; name two, or choose the metric probability"):
        patch(model, CLEAN, CORRUPTED)


@pytest.mark.parametrize("by", ["position", "head"])
def test_a_step_of_every_layer_may_be_spelt_as_taps_are(by):
    model = small_model(base())
    short, spelt = (patch(model, CLEAN, CORRUPTED, tap=tap, by=by, **LOGIT) for tap in ("z", "blocks.*.z"))
    assert spelt.tables["patched"].columns.keys() == short.tables["patched"].columns.keys()
    for name, column in short.tables["patched"].columns.items():
        assert list(spelt.tables["patched"][name]) == list(column), name
    assert set(spelt.tables["patched"]["layer"]) == {0, 1}
    assert spelt.pictures == short.pictures
