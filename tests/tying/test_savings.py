"""What tying saves, side by side: published figures, the difference in every preset, and what it does not save."""

import json

import pytest

from commands import run as command
from unembed.model.counts import count
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import with_tying
from unembed.planning.flops import flops
from unembed.tying.savings import side_by_side


def rows(name):
    spec = preset(name).spec
    return {row["head_table"]: row for row in side_by_side(spec, round(flops(spec).forward)).rows()}


def test_gpt2_has_the_published_numbers():
    """A02d: 124,439,808 tied, 163,037,184 untied, 50,257 x 768 between them; 31 % of the tied model is its table."""
    found = rows("gpt2")
    assert [found[name]["parameters"] for name in ("tied", "untied", "saved")] == [
        124_439_808,
        163_037_184,
        50_257 * 768,
    ]
    assert found["tied"]["share"] == pytest.approx(0.3102, abs=1e-4)
    assert found["untied"]["share"] == pytest.approx(2 * 38_597_376 / 163_037_184)
    assert found["saved"]["share"] == pytest.approx(38_597_376 / 163_037_184)
    assert found["saved"]["weight_bytes"] == 4 * 38_597_376
    assert found["saved"]["optimizer_bytes"] == 2 * 4 * 38_597_376
    assert found["tied"]["optimizer_bytes"] == 8 * 124_439_808


@pytest.mark.parametrize("name", PRESETS)
def test_the_difference_is_one_table_and_no_operation(name):
    found, spec = rows(name), preset(name).spec
    table = spec.embedding.vocab_size * spec.embedding.d_model
    assert found["untied"]["parameters"] - found["tied"]["parameters"] == table == found["saved"]["parameters"]
    assert found[("tied" if spec.ties_embeddings else "untied")]["parameters"] == count(spec).parameters
    assert flops(with_tying(spec, True)).forward == flops(with_tying(spec, False)).forward
    assert found["saved"]["flops_per_token"] == 0


def test_the_command_shows_both_only_where_one_is_asked_for():
    plain = command("count", "gpt2", "--format", "json").json
    assert "side_by_side" not in plain
    asked = command("count", "gpt2", "--tied", "--format", "json").json
    assert {key: asked[key] for key in plain} == plain
    assert asked["side_by_side"]["parameters"] == [124_439_808, 163_037_184, 38_597_376]
    assert asked["side_by_side"]["head_table"] == ["tied", "untied", "saved"]
    table = command("count", "gpt2", "--untied").out
    assert "tied        124,439,808" in table
    csv = command("count", "gpt2", "--untied", "--format", "csv").out
    assert csv.startswith("parameters,")
    assert "163037184" in csv
    assert json.dumps(asked["tied"]) == "true"
