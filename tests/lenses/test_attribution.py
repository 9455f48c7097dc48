"""Attribution: every term is that of a slow forward computation, and together they are the score, for every kind of model."""

import numpy as np
import pytest
import torch

from oracles.attribution import contributions
from oracles.mixtures import random_spec
from oracles.specs import base, changed, variants
from oracles.weights import draw as draw_weights
from small import small_model
from unembed.errors import ShapeError, UsageError
from unembed.lenses import attribution as module
from unembed.lenses.attribution import TOLERANCE, attribute
from unembed.lenses.frozen import FrozenNorm
from unembed.pictures import draw

VARIANTS = variants()
IDS = [1, 2, 5, 4, 1, 7]
NAMED = [name for name in VARIANTS if not name.startswith(("rotary", "alibi", "mlp_", "window"))]
SANDWICH = changed(base(), block__residual={"type": "serial", "norm_at": "both"})
MASKED = VARIANTS["tied_head_everything"]


def terms(result):
    rows = result.tables["parts"].rows()
    found = {(row["part"], row["layer"], row["head"]): row["contribution"] for row in rows}
    assert len(found) == len(rows)
    return found


def check(spec, *, position=4, target=3, against=6):
    model = small_model(spec)
    for other in (None, against):
        result = attribute(model, IDS, position=position, target=target, against=other)
        expected = contributions(spec, draw_weights(spec, 0), IDS, position, target, other)
        found = terms(result)
        assert set(found) == set(expected)
        size = sum(map(abs, expected.values()))
        for key, value in expected.items():
            assert found[key] == pytest.approx(value, abs=1e-10 * size), key
        assert result.values["check_error"] <= 1e-10 * result.values["sum_of_absolute_parts"]
        assert result.values["explained"] == pytest.approx(sum(expected.values()), abs=1e-9 * size)
        capped = spec["head"]["softcap"] is not None
        assert ("attribution_before_cap" in result.notes) == capped
        logits = model(torch.tensor([IDS]))[0, position].detach().double()
        score = logits[target] - (0 if other is None else logits[other])
        assert result.values["logit"] == pytest.approx(float(score), abs=1e-9 * size)
        assert capped or result.values["explained"] == pytest.approx(result.values["logit"], abs=1e-9 * size)


@pytest.mark.parametrize("name", NAMED)
def test_oracle_every_term_of_named_variants(name):
    check(VARIANTS[name])


@pytest.mark.parametrize("seed", range(8))
def test_oracle_every_term_of_random_mixtures(seed):
    check(random_spec(seed))


@pytest.mark.parametrize("spec", [*VARIANTS.values(), *(random_spec(s) for s in range(20, 40))])
def test_property_terms_add_up_in_float32(spec, unchecked):
    model = small_model(spec, dtype=torch.float32)
    for against in (None, 2):
        values = attribute(model, IDS, target=3, against=against).values
        assert values["check_error"] <= 1e-5 * values["sum_of_absolute_parts"]


@pytest.mark.parametrize("seed", range(4))
def test_property_sources_and_heads_and_strongest_say_the_same(seed):
    tables = attribute(small_model(random_spec(seed)), IDS).tables
    by_layer = np.zeros(tables["sources"]["layer"].max() + 1)
    np.add.at(by_layer, tables["heads"]["layer"].astype(int), tables["heads"]["contribution"].astype(float))
    sources = tables["sources"]["contribution"].reshape(len(by_layer), len(IDS))
    np.testing.assert_allclose(sources.sum(1), by_layer, atol=1e-9)
    np.testing.assert_allclose(tables["by_token"]["contribution"], sources.sum(0), atol=1e-12)
    total = tables["parts"]["contribution"].sum()
    assert tables["strongest"]["contribution"].sum() == pytest.approx(total, abs=1e-9)
    assert len(tables["strongest"]["term"]) <= 13


def test_sources_of_a_causal_model_lie_before_the_position():
    found = attribute(small_model(base()), IDS, position=2).tables["by_token"]["contribution"]
    assert np.all(found[:3] != 0)
    assert np.all(found[3:] == 0)


def test_default_is_the_best_token_at_the_last_position():
    model = small_model(base())
    values = attribute(model, IDS).values
    logits = model(torch.tensor([IDS]))[0, -1].detach()
    assert (values["position"], values["target_id"]) == (5, int(logits.argmax()))
    assert values["logit"] == pytest.approx(float(logits.max()))


def test_final_norm_is_told_at_its_actual_value():
    model = small_model(base())
    values = attribute(model, IDS, position=3).values
    last = model.hidden(torch.tensor([IDS]))[0, 3].detach().numpy()
    assert values["final_norm_mean"] == pytest.approx(last.mean())
    assert values["final_norm_inverse_deviation"] == pytest.approx(1 / np.sqrt(last.var() + 1e-5))
    assert attribute(small_model(VARIANTS["final_norm_none"]), IDS).values["final_norm_inverse_deviation"] is None
    assert attribute(small_model(VARIANTS["norm_rms_norm"]), IDS).values["final_norm_mean"] is None


def test_without_a_shortcut_only_the_last_mlp_is_read():
    found = terms(attribute(small_model(VARIANTS["residual_no_shortcut"]), IDS))
    assert {key for key, value in found.items() if value} == {
        ("mlp", 1, None),
        ("mlp_bias", 1, None),
        ("final_norm_bias", None, None),
    }


@pytest.mark.parametrize(
    ("spec", "place", "change"),
    [
        (base(), (FrozenNorm, "back"), lambda self, d: d * self.inverse_deviation * self.gain),
        (base(), (FrozenNorm, "constant"), lambda self, d: None),
        (base(), (module, "_mlp"), lambda block, layer, at, d: iter(())),
        (SANDWICH, (module, "_is_sandwich"), lambda block: False),
        (VARIANTS["residual_post"], (module, "_met"), lambda norm, x: FrozenNorm(None, 1.0, None, None)),
        (MASKED, (module, "ratio"), lambda outputs, inputs: torch.ones_like(inputs)),
        (VARIANTS["residual_no_shortcut"], (torch, "zeros_like"), lambda x: x),
        (base(), (module, "_before_cap"), lambda model, stream, rows: model.unembed(stream)[0, 0, [0]]),
    ],
    ids=["mean kept", "bias lost", "MLP lost", "sandwich forgotten", "post norm forgotten", "head", "shortcut", "row"],
)
def test_seeded_mutation_is_caught_by_the_check_of_every_call(spec, place, change, monkeypatch, unchecked):
    before = attribute(small_model(spec), IDS, target=3)
    assert "attribution_does_not_add_up" not in before.notes
    monkeypatch.setattr(*place, change)
    after = attribute(small_model(spec), IDS, target=3)
    assert "attribution_does_not_add_up" in after.notes
    assert after.values["check_error"] > after.values["tolerance"]


def test_half_precision_has_a_tolerance_of_its_own():
    values = attribute(small_model(base(), dtype=torch.bfloat16), IDS).values
    assert values["tolerance"] == pytest.approx(TOLERANCE[torch.bfloat16] * values["sum_of_absolute_parts"])
    assert values["check_error"] <= values["tolerance"]


def test_looking_changes_nothing_and_keeps_nothing():
    model = small_model(VARIANTS["grouped_query"])
    ids = torch.tensor([IDS])
    with torch.no_grad():
        before = model(ids, attention="explicit")
        seen = module.Seen(2)
        assert torch.equal(model(ids, tap=seen, attention="explicit"), before)
    attribute(model, IDS)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_pictures_are_drawn_and_models_without_blocks_have_fewer():
    found = attribute(small_model(base()), IDS)
    for picture in found.pictures:
        assert draw(picture, found.tables, lang="ko")
    assert [picture.key for picture in found.pictures] == [
        "attribution",
        "attribution_heads",
        "attribution_sources",
    ]
    bare = attribute(small_model(VARIANTS["no_blocks"]), [1, 2])
    assert [picture.key for picture in bare.pictures] == ["attribution"]
    assert "heads" not in bare.tables


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"position": 6}, UsageError, "position is 6; the text has 6 tokens, so positions run from 0 to 5"),
        ({"position": -1}, UsageError, "position is -1"),
        ({"ids": [1, 99]}, ShapeError, "ids run from 1 to 99"),
    ],
)
def test_message_for_what_is_not_there(options, error, message):
    with pytest.raises(error, match=message):
        attribute(small_model(base()), options.pop("ids", IDS), **options)
