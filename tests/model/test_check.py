"""The rules of a spec: each has its message, and JSON comes back as it went or is refused by name."""

import copy
import json
import math
import re

import msgspec
import pytest

from oracles.mixtures import random_spec
from oracles.specs import BIDIRECTIONAL, ROTARY, SCALINGS, base, changed, variants
from unembed.errors import SpecError
from unembed.model.check import check, from_json, from_plain, to_json
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import LayerNorm, TransformerSpec, with_tying

VARIANTS = variants()
LEARNED = {"type": "learned", "n_rows": 13, "offset": 2}
DROPOUT = {"mask_id": 4, "trained_share": 0.12}


def rotary(**changes):
    return changed(base(), block__attention__position={**ROTARY, **changes})


def scaled(kind, **changes):
    return rotary(scaling={**SCALINGS[kind], **changes})


# --- the rules, one by one --------------------------------------------------------------------------------

BROKEN = {
    "context_zero": (changed(base(), context_length=0), "context_length is 0; it must be above 0"),
    "context_negative": (changed(base(), context_length=-5), "context_length is -5; it must be above 0"),
    "vocabulary": (changed(base(), embedding__vocab_size=0), "embedding.vocab_size is 0; it must be above 0"),
    "width": (changed(base(), embedding__d_model=-1), "embedding.d_model is -1; it must be above 0"),
    "embedding_scale": (changed(base(), embedding__scale=0.0), "embedding.scale is 0.0; it must be above 0"),
    "token_types": (changed(base(), embedding__n_token_types=0), "embedding.n_token_types is 0; it must be above 0"),
    "heads": (changed(base(), block__attention__n_heads=0), "blocks.0.attention.n_heads is 0; it must be above 0"),
    "d_head": (changed(base(), block__attention__d_head=0), "blocks.0.attention.d_head is 0; it must be above 0"),
    "score_scale": (
        changed(base(), block__attention__score_scale=-0.4),
        "attention.score_scale is -0.4; it must be above 0",
    ),
    "score_softcap": (changed(base(), block__attention__score_softcap=0.0), "score_softcap is 0.0; it must be above 0"),
    "window": (
        changed(base(), block__attention__sees={"type": "causal", "window": 0}),
        "blocks.0.attention.sees.window is 0; it must be above 0",
    ),
    "d_mlp": (changed(base(), block__mlp__d_mlp=0), "blocks.0.mlp.d_mlp is 0; it must be above 0"),
    "norm_eps": (
        changed(base(), final_norm={"type": "layer_norm", "eps": -1e-5, "has_bias": True}),
        "final_norm.eps is -1e-05; it must be at least 0",
    ),
    "head_softcap": (changed(base(), head__softcap=-3.0), "head.softcap is -3.0; it must be above 0"),
    "head_scale": (changed(base(), head__scale=0.0), "head.scale is 0.0; it must be above 0"),
    "theta": (rotary(theta=0.0), "blocks.0.attention.position.theta is 0.0; it must be above 0"),
    "offset": (
        changed(base(), embedding__position={"type": "learned", "n_rows": 20, "offset": -1}),
        "embedding.position.offset is -1; it must be at least 0",
    ),
    "rows": (
        changed(base(), embedding__position=LEARNED),
        "embedding.position has 13 rows and offset 2, room for 11 positions, but context_length is 12",
    ),
    "dropout_mask": (
        changed(base(), embedding__token_dropout={**DROPOUT, "mask_id": 13}),
        "embedding.token_dropout needs a mask_id below vocab_size and a trained_share between 0 and 1",
    ),
    "dropout_share": (
        changed(base(), embedding__token_dropout={**DROPOUT, "trained_share": 1.0}),
        "embedding.token_dropout needs a mask_id below vocab_size",
    ),
    "kv_heads": (
        changed(base(), block__attention__n_kv_heads=3),
        "blocks.0.attention.n_kv_heads is 3; it must divide n_heads, 4",
    ),
    "more_kv_heads": (
        changed(base(), block__attention__n_kv_heads=8),
        "attention.n_kv_heads is 8; it must divide n_heads, 4",
    ),
    "bias_twice": (
        changed(base(), block__attention__biases=["q", "q"]),
        "attention.biases names a projection twice: ['q', 'q']",
    ),
    "bias_order": (
        changed(base(), block__attention__biases=["v", "q"]),
        "attention.biases is ['v', 'q']; write it in the order q, k, v, o",
    ),
    "alibi_capped": (
        changed(base(), block__attention__position={"type": "alibi"}, block__attention__score_softcap=5.0),
        "attention.position is alibi and score_softcap is set",
    ),
    "fraction_above_1": (rotary(fraction=1.5), "position.fraction is 1.5; it must be above 0 and at most 1"),
    "fraction_odd": (
        rotary(fraction=0.5),
        "position turns 3 of 6 entries of a head; it must be an even number, 2 or more",
    ),
    "fraction_none": (
        rotary(fraction=0.1),
        "position turns 0 of 6 entries of a head; it must be an even number, 2 or more",
    ),
    "odd_head": (
        changed(base(), block__attention__position=ROTARY, block__attention__d_head=5),
        "position turns 5 of 5 entries of a head; it must be an even number",
    ),
    "llama3_factors": (scaled("llama3", low_frequency_factor=4.0), "scaling needs low_frequency_factor below high"),
    "yarn_betas": (scaled("yarn", beta_slow=3.0), "scaling needs beta_slow below beta_fast"),
    "yarn_theta": (
        rotary(scaling=SCALINGS["yarn"], theta=1.0),
        "attention.position.theta is 1.0; yarn scaling divides by its logarithm and needs it above 1",
    ),
    "dynamic_pair": (
        rotary(scaling=SCALINGS["dynamic"], fraction=0.34),
        "scaling is dynamic, which raises theta by n/(n-2) and needs more than 2 turned entries",
    ),
    "scaling_factor": (scaled("linear", factor=0.0), "attention.position.scaling.factor is 0.0; it must be above 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_names_field_value_and_rule(name):
    plain, message = BROKEN[name]
    with pytest.raises(SpecError, match=rf"^model spec: .*{re.escape(message)}"):
        from_plain(plain)
    with pytest.raises(SpecError, match=re.escape(message)):  # also where a spec is made in Python
        check(msgspec.convert(plain, TransformerSpec))
    assert len(str_of_error(plain).splitlines()) <= 6


def str_of_error(plain):
    with pytest.raises(SpecError) as caught:
        from_plain(plain)
    return str(caught.value)


def test_rule_is_told_by_the_first_block_that_breaks_it():
    plain = base(n_layers=5)
    plain["blocks"][3]["attention"]["n_kv_heads"] = 3
    assert "blocks.3.attention.n_kv_heads is 3" in str_of_error(plain)


def test_several_broken_rules_are_listed_and_the_rest_counted():
    plain = changed(base(1), context_length=0, embedding__scale=0.0, head__scale=0.0, block__attention__n_kv_heads=3)
    message = str_of_error(plain)
    assert message.count(";") >= 4
    assert "(and" not in message
    more = changed(plain, head__softcap=-1.0, block__mlp__d_mlp=0)
    assert str_of_error(more).endswith(" (and 2 more)")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("path", ["embedding__scale", "head__softcap", "block__attention__score_scale"])
def test_numbers_must_be_finite(path, value):
    assert f"{path.rsplit('__', 1)[-1]} is {value}; it must be finite" in str_of_error(changed(base(), **{path: value}))


@pytest.mark.parametrize("name", [*VARIANTS, "mixtures", "presets"])
def test_everything_that_is_a_model_passes_and_comes_back_from_json(name):
    if name == "presets":
        specs = [preset(one).spec for one in list(PRESETS)[::3]]
    elif name == "mixtures":
        specs = [from_plain(random_spec(seed)) for seed in range(60)]
    else:
        specs = [from_plain(VARIANTS[name])]
    for spec in specs:
        assert check(spec) is spec
        text = to_json(spec)
        assert from_json(text) == spec
        assert to_json(from_json(text)) == text
        assert from_json(text.encode()) == spec
        # numbers are not rounded on the way
        assert from_plain(json.loads(text)) == spec


# --- types and shapes of the JSON -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_length": "12"}, r"Expected `int`, got `str` - at `$.context_length`"),
        ({"context_length": 12.5}, r"Expected `int`, got `float` - at `$.context_length`"),
        ({"context_length": True}, r"Expected `int`, got `bool`"),
        ({"block__mlp__has_bias": 1}, r"Expected `bool`, got `int` - at `$.blocks[0].mlp.has_bias`"),
        ({"block__mlp__activation": "swish"}, r"Invalid enum value 'swish'"),
        ({"block__mlp__type": "wide"}, r"Invalid value 'wide' - at `$.blocks[0].mlp.type`"),
        ({"block__attention__position": {"type": "rope"}}, r"Invalid value 'rope'"),
        ({"block__attention__biases": ["x"]}, r"Invalid enum value 'x'"),
        ({"block__residual": {"type": "serial"}}, r"missing required field `norm_at`"),
        ({"head": None}, r"got `null` - at `$.head`"),
        ({"embedding__scale": "one"}, r"Expected `float | null`, got `str` - at `$.embedding.scale`"),
        (
            {"block__attention__position": {**ROTARY, "scaling": {"type": "longrope", "factor": 2.0}}},
            r"Invalid value 'longrope'",
        ),
        ({"block__attention__position": {**ROTARY, "pairing": "thirds"}}, r"Invalid enum value 'thirds'"),
    ],
)
def test_wrong_types_and_unknown_variants_are_named(changes, message):
    """A10c, A11c: an unknown pairing or scaling stops here, long before any number is computed."""
    plain = changed(base(), **changes)
    with pytest.raises(SpecError, match=re.escape(message)):
        from_json(json.dumps(plain))


@pytest.mark.parametrize(
    "path", ["n_layer", "embedding.d_modle", "blocks.attention.rope", "head.weight", "final_norm.gain"]
)
def test_unknown_fields_are_refused_at_every_depth(path):
    plain = changed(base())  # a copy all through: parts of `base()` are shared
    *steps, name = path.split(".")
    place = plain
    for step in steps:
        place = place[step][0] if step == "blocks" else place[step]
    place[name] = 1
    with pytest.raises(
        SpecError, match=f"Object contains unknown field `{name}`.*Expected the JSON that `to_json` writes"
    ):
        from_plain(plain)


def test_no_field_has_a_default():
    """What a file leaves out is missing, not guessed: every field of every struct, one at a time."""

    def without_each(plain):
        for key, value in plain.items():
            less = copy.deepcopy(plain)
            del less[key]
            yield key, less
            inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
            if isinstance(inner, dict):
                for name, changed_part in without_each(inner):
                    more = copy.deepcopy(plain)
                    more[key] = [changed_part, *value[1:]] if isinstance(value, list) else changed_part
                    yield name, more

    plain = changed(
        VARIANTS["tied_head_everything"],
        embedding__token_dropout=DROPOUT,
        embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
        block__attention__position={**ROTARY, "scaling": SCALINGS["yarn"]},
    )
    from_plain(plain)
    n_fields = 0
    for name, less in without_each(plain):
        with pytest.raises(SpecError, match=f"missing required field `{name}`|missing required field `type`"):
            from_plain(less)
        n_fields += 1
    assert n_fields > 55


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"context_length": 1, "context_length": 2}', "key 'context_length' occurs twice in one object"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "key 'b' occurs twice in one object"),
        ('{"context_length": NaN}', "NaN is not a number that a spec can hold"),
        ('{"context_length": -Infinity}', "-Infinity is not a number that a spec can hold"),
        ('{"context_length": 12', "Expecting ',' delimiter"),
        ("", "Expecting value"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        (b'{"\xff": 1}', "codec can't decode"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_text_that_is_no_spec_is_refused(text, message):
    with pytest.raises(
        SpecError, match=f"^model spec: .*{re.escape(message)}.* Expected the JSON that `to_json` writes"
    ):
        from_json(text)


def test_number_too_large_for_a_float_is_refused():
    text = json.dumps(base()).replace('"score_scale": 0.4', '"score_scale": 1e999')
    with pytest.raises(SpecError, match="score_scale is inf; it must be finite"):
        from_json(text)


@pytest.mark.parametrize("digits", [30, 400])
def test_integer_beyond_64_bits_is_refused(digits):
    text = json.dumps(base()).replace('"context_length": 12', '"context_length": 1' + "0" * digits)
    with pytest.raises(SpecError, match=r"context_length is 10000000000000000000...; it must be below 2\*\*63"):
        from_json(text)


def test_spec_made_in_python_with_wrong_types_is_refused_when_a_model_or_json_is_made():
    """msgspec checks types when it reads only; a wrong one would be written and could not be read again."""
    spec = from_plain(base())
    wrong = msgspec.structs.replace(spec, final_norm=LayerNorm(eps="small", has_bias=True))
    with pytest.raises(SpecError, match=r"Expected `float`, got `str` - at `\$.final_norm.eps`"):
        to_json(wrong)
    nan = msgspec.structs.replace(spec, final_norm=LayerNorm(eps=math.nan, has_bias=True))
    with pytest.raises(SpecError, match=r"final_norm.eps"):
        to_json(nan)


# --- what follows from a spec -----------------------------------------------------------------------------


def test_derived_values():
    spec = from_plain(base(n_layers=3))
    assert (spec.n_layers, spec.ties_embeddings, spec.is_causal) == (3, True, True)
    mixed = base(n_layers=3)
    mixed["blocks"][1]["attention"]["sees"] = BIDIRECTIONAL
    assert not from_plain(mixed).is_causal
    assert from_plain(rotary(fraction=0.67)).blocks[0].attention.position.n_rotated(6) == 4


@pytest.mark.parametrize("name", ["tied_head_everything", "untied_head_softcap", "plain"])
def test_with_tying_keeps_every_other_field(name):
    spec = from_plain(VARIANTS[name])
    for tied in (True, False):
        other = with_tying(spec, tied)
        assert other.ties_embeddings is tied
        assert with_tying(other, spec.ties_embeddings) == spec
        for field in ("transform", "has_bias", "scale", "softcap"):
            assert getattr(other.head, field) == getattr(spec.head, field)
