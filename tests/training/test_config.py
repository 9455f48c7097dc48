"""What a run can be told: short names, paths, and a message for each thing that it cannot be told."""

import math
import re

import msgspec
import pytest

from oracles.specs import base, changed
from small import run_config
from unembed.corpora.reading import Reading
from unembed.errors import UsageError
from unembed.model.spec import TiedHead, UntiedHead
from unembed.optim.muon import MuonConfig
from unembed.optim.schedules import Plateau
from unembed.training.config import (
    KINDS,
    MODEL_SETTINGS,
    SHORT_NAMES,
    RunConfig,
    _paths,
    check_config,
    parse_setting,
    with_context_length,
    with_settings,
)
from unembed.training.settings import OF_RECIPES, READING, WHAT

LEARNED = {"type": "learned", "n_rows": 15, "offset": 2}


def at(config, path):
    for name in path.split("."):
        config = getattr(config, name)
    return config


# --- what can be set --------------------------------------------------------------------------------------

VALUES = {
    "seed": 7,
    "batch_size": 5,
    "steps": 99,
    "accumulate": 4,
    "learning_rate": 0.5,
    "weight_decay": 0.25,
    "dropout": 0.125,
    "checkpoint_every": 3,
    "eval_every": 11,
    "compile": True,
    "early_stop": 3,
    "sample_every": 50,
    "tensorboard": True,
    "checkpoint_activations": True,
    "chunked_loss": True,
    "eval_at_start": False,
    "tying.gradient_every": 4,
    "tying.lookup_gradient_scale": 2.5,
    "parallel": "fsdp",
    "precision": "bfloat16",
}


def test_every_short_name_of_the_contract_is_tried():
    assert set(VALUES) == set(SHORT_NAMES)


@pytest.mark.parametrize("name", VALUES)
def test_short_name_and_its_path_set_the_same_field_and_no_other(name):
    config = run_config()
    by_name = with_settings(config, {name: VALUES[name]})
    assert at(by_name, SHORT_NAMES[name]) == VALUES[name]
    assert at(config, SHORT_NAMES[name]) != VALUES[name]
    if name != "learning_rate":  # which moves the floor too
        assert by_name == with_settings(config, {SHORT_NAMES[name]: VALUES[name]})
    back = with_settings(by_name, {name: at(config, SHORT_NAMES[name])})
    assert back == config


def test_learning_rate_keeps_the_ratio_of_floor_to_peak():
    schedule = with_settings(run_config(), {"learning_rate": 0.5}).training.schedule
    assert (schedule.peak, schedule.floor) == (0.5, pytest.approx(0.05, rel=1e-15))
    same = with_settings(run_config(), {"learning_rate": 1e-2})
    assert same == run_config()


def test_learning_rate_at_the_end_of_the_numbers_is_no_fault_of_the_floor():
    schedule = with_settings(run_config(), {"learning_rate": 1e308}).training.schedule
    assert (schedule.peak, schedule.floor) == (1e308, pytest.approx(1e307))
    assert with_settings(run_config(), {"learning_rate": 1e-300}).training.schedule.floor == pytest.approx(1e-301)


def test_order_of_settings_does_not_matter():
    settings = {"training.schedule.floor": 1e-5, "learning_rate": 0.5, "steps": 3}
    one = with_settings(run_config(), settings)
    assert one == with_settings(run_config(), dict(reversed(settings.items())))
    assert (one.training.schedule.floor, one.training.schedule.peak) == (1e-5, 0.5)


def test_dotted_paths_reach_what_has_no_short_name():
    config = with_settings(
        run_config(),
        {"training.clip_norm": None, "training.optimizer.beta2": 0.95, "init.std": 0.1, "training.keep_every": 5},
    )
    assert config.training.clip_norm is None
    assert (config.training.optimizer.beta2, config.init.std, config.training.keep_every) == (0.95, 0.1, 5)
    plateau = {"type": "plateau", "peak": 1.0, "floor": 0.1, "warmup_steps": 1, "decay_steps": 2}
    changed_kind = with_settings(run_config(), {"training.schedule": plateau})
    assert changed_kind.training.schedule == Plateau(peak=1.0, floor=0.1, warmup_steps=1, decay_steps=2)


def test_tied_exchanges_the_head_and_nothing_else():
    untied = with_settings(run_config(), {"tied": False})
    assert isinstance(untied.model.head, UntiedHead)
    assert isinstance(with_settings(untied, {"tied": True}).model.head, TiedHead)
    assert with_settings(untied, {"tied": True}) == run_config()


def test_optimizer_and_schedule_by_name_keep_the_numbers_that_they_share():
    config = with_settings(run_config(), {"optimizer": "muon", "schedule": "plateau", "steps": 50, "weight_decay": 0.3})
    expected = MuonConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.3, matrix_learning_rate=0.02, momentum=0.95)
    assert config.training.optimizer == expected
    assert config.training.schedule == Plateau(peak=1e-2, floor=1e-3, warmup_steps=2, decay_steps=30)
    back = with_settings(config, {"optimizer": "adamw", "schedule": "cosine", "steps": 10, "weight_decay": 0.1})
    assert back == run_config()
    same = with_settings(config, {"training.optimizer.momentum": 0.5, "training.schedule.decay_steps": 7})
    assert with_settings(same, {"optimizer": "muon", "schedule": "plateau"}) == same
    assert (same.training.optimizer.momentum, same.training.schedule.decay_steps) == (0.5, 7)


@pytest.mark.parametrize("order", [1, -1])
def test_a_kind_is_put_in_before_its_fields_and_after_the_rate(order):
    settings = {
        "training.optimizer.momentum": 0.5,
        "training.schedule.decay_steps": 3,
        "training.schedule.floor": 0.25,
        "schedule": "plateau",
        "optimizer": "muon",
        "learning_rate": 0.5,
    }
    config = with_settings(run_config(), dict(list(settings.items())[::order]))
    assert config.training.schedule == Plateau(peak=0.5, floor=0.25, warmup_steps=2, decay_steps=3)
    assert config.training.optimizer.momentum == 0.5


def test_context_length_brings_the_rows_that_a_table_needs():
    config = run_config(changed(base(), embedding__position=LEARNED))
    longer = with_settings(config, {"context_length": 40}).model
    assert (longer.context_length, longer.embedding.position.n_rows, longer.embedding.position.offset) == (40, 42, 2)
    assert with_context_length(run_config().model, 40).embedding == run_config().model.embedding
    both = with_settings(config, {"context_length": 40, "tied": False}).model
    assert both.context_length == 40
    assert isinstance(both.head, UntiedHead)


def test_no_settings_change_nothing_and_json_gives_the_config_back():
    assert with_settings(run_config(), {}) == run_config()
    plain = msgspec.json.decode(msgspec.json.encode(run_config()))
    assert msgspec.convert(plain, RunConfig) == run_config()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps=20", ("steps", 20)),
        ("learning_rate=1e-3", ("learning_rate", 1e-3)),
        ("compile=true", ("compile", True)),
        ("training.clip_norm=null", ("training.clip_norm", None)),
        ("language=es", ("language", "es")),
        ("name=a=b", ("name", "a=b")),
        ('init={"type":"andrea"}', ("init", {"type": "andrea"})),
        ("empty=", ("empty", "")),
    ],
)
def test_parse_setting(text, expected):
    assert parse_setting(text) == expected


# --- what cannot ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["steps", "=3", ""])
def test_setting_without_name_or_value_is_refused(text):
    with pytest.raises(
        UsageError, match=re.escape(f"--set {text!r}: expected NAME=VALUE, for example --set learning_rate")
    ):
        parse_setting(text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("learning_rat", "Did you mean learning_rate"),
        ("lerning_rate", "Did you mean learning_rate"),
        ("batchsize", "Did you mean batch_size"),
        ("training.clip", "Did you mean training.clip_norm"),
        ("training.optimiser.beta1", "Did you mean training.optimizer.beta1"),
        ("zzz", "There are: seed, steps"),
        ("training.steps.more", "Did you mean training.steps"),
        ("model.context_length", "Did you mean context_length"),
        ("recipe", r"no setting is named 'recipe'"),
        ("init.type", r"no setting is named 'init.type'"),
        ("training.schedule.type", r"no setting is named"),
        ("", "no setting is named ''"),
    ],
)
def test_unknown_settings_are_told_from_known_ones(name, hint):
    with pytest.raises(UsageError, match=f"no setting is named {re.escape(repr(name))}") as caught:
        with_settings(run_config(), {name: 1})
    assert re.search(hint, str(caught.value))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": "many"}, "setting steps is 'many': expected `int`, got `str`; it must be at least 1, and below"),
        (
            {"batch_size": 2.5},
            r"setting batch_size is 2.5: expected `int`, got `float`; .* at least 1 and at most 1,048,576",
        ),
        (
            {"training.accumulate": "2"},
            "setting training.accumulate is '2': expected `int`, .* at least 1 and at most 65,536",
        ),
        ({"compile": 1}, "setting compile is 1: expected `bool`, got `int`$"),
        ({"dropout": None}, "setting dropout is None: expected `float`, got `null`; it must be at least 0 and below 1"),
        ({"steps": "x" * 99}, r"setting steps is 'x{56}\.\.\.: expected"),
        ({"training.schedule": {"type": "linear"}}, r"Invalid value 'linear' - at `\$.training.schedule.type`"),
        ({"init": {"type": "gpt2", "std": 0.1, "mean": 1}}, "setting init is .*: object contains unknown field `mean`"),
        ({"training": 3}, "setting training is a group; set one of its fields, such as training.steps"),
        ({"tied": "yes"}, "setting tied is 'yes'; it must be true or false"),
        ({"tied": 1}, "setting tied is 1; it must be true or false"),
        ({"context_length": "long"}, "setting context_length is 'long'; it must be a whole number"),
        ({"context_length": True}, "setting context_length is True; it must be a whole number"),
        ({"learning_rate": "fast"}, "setting learning_rate is 'fast'; it must be a number"),
        ({"optimizer": "sgd"}, "setting optimizer is 'sgd'; it must be adamw or muon"),
        ({"optimizer": None}, "setting optimizer is 'None'; it must be adamw or muon"),
        ({"schedule": ["cosine"]}, r"""setting schedule is "\['cosine'\]"; it must be cosine or plateau"""),
    ],
)
def test_wrong_types_are_named(settings, message):
    with pytest.raises(UsageError, match=message):
        with_settings(run_config(), settings)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("seed", -1, "0 or more, and below"),
        ("seed", 2**63, "0 or more, and below"),
        ("steps", 0, "at least 1"),
        ("batch_size", 0, "at least 1 and at most 1,048,576"),
        ("batch_size", 10**12, "at least 1 and at most 1,048,576"),
        ("accumulate", -2, "at least 1 and at most 65,536"),
        ("early_stop", -1, r"0 [(]never[)] or a number of evaluations"),
        ("sample_every", -1, r"at least 1, 0 [(]never[)], or null"),
        ("dropout", 1.0, "at least 0 and below 1"),
        ("dropout", -0.1, "at least 0 and below 1"),
        ("dropout", math.nan, "at least 0 and below 1"),
        ("learning_rate", 0.0, "above 0 and finite"),
        ("learning_rate", -1.0, "above 0 and finite"),
        ("learning_rate", math.nan, "above 0 and finite"),
        ("learning_rate", math.inf, "above 0 and finite"),
        ("training.schedule.floor", 1.0, "between 0 and the peak"),
        ("training.schedule.floor", -1.0, "between 0 and the peak"),
        ("training.schedule.warmup_steps", -1, "0 or more"),
        ("weight_decay", -0.1, "0 or more, and finite"),
        ("weight_decay", math.inf, "0 or more, and finite"),
        ("training.optimizer.beta1", 1.0, "at least 0 and below 1"),
        ("training.optimizer.beta2", -0.1, "at least 0 and below 1"),
        ("training.optimizer.eps", 0.0, "above 0 and finite"),
        ("training.optimizer.matrix_learning_rate", 0.0, "above 0 and finite"),
        ("training.optimizer.momentum", 1.0, "at least 0 and below 1"),
        ("training.schedule.decay_steps", -1, "0 or more"),
        ("log_every", 0, "at least 1"),
        ("eval_every", 0, "at least 1"),
        ("checkpoint_every", 0, "at least 1"),
        ("clip_norm", 0.0, "above 0 and finite, or null"),
        ("clip_norm", math.nan, "above 0 and finite, or null"),
        ("keep_every", 0, "at least 1, or null"),
    ],
)
def test_ranges_are_named(name, value, rule):
    path = name if name in SHORT_NAMES or "." in name else f"training.{name}"
    kinds = {"optimizer": "muon", "schedule": "plateau"}
    with pytest.raises(UsageError, match=f"setting {re.escape(name)} is {re.escape(str(value))}; it must be {rule}"):
        with_settings(run_config(), {**kinds, path: value})


def test_ranges_hold_for_a_config_made_in_python_too():
    schedule = Plateau(peak=1.0, floor=0.1, warmup_steps=1, decay_steps=-1)
    with pytest.raises(UsageError, match=r"setting training.schedule.decay_steps is -1; it must be 0 or more"):
        check_config(run_config(schedule=schedule))


def test_context_that_no_model_has_is_refused():
    with pytest.raises(UsageError, match="setting context_length is 0; it must be at least 1"):
        with_settings(run_config(), {"context_length": 0})


# --- settings.md and the list in an error -------------------------------------------------------------------


def test_every_field_of_a_run_has_its_sentence():
    plain = msgspec.to_builtins(with_settings(run_config(), {"optimizer": "muon", "schedule": "plateau"}))
    paths = {SHORT_NAMES.get(name, name) for name in WHAT} - set(MODEL_SETTINGS) - set(KINDS)
    fields = set(_paths({"training": plain["training"], "init": plain["init"]}, ""))
    assert paths == {"seed", *fields}
    assert set(READING) == set(Reading.__struct_fields__)


def test_an_unknown_setting_gets_the_whole_list_and_the_likest_name_first():
    for given in ("lerning_rate", "learning_rat", "qqqq"):
        with pytest.raises(UsageError) as caught:
            with_settings(run_config(), {given: 1})
        said = str(caught.value)
        assert {*WHAT, *READING, *OF_RECIPES} <= set(re.split(r"[\s,]+", said.replace(". ", " ")))
        assert "docs/settings.md" in said
        assert all(len(line) <= 400 for line in said.splitlines())
        assert len(said.splitlines()) <= 4
        if given != "qqqq":
            assert "Did you mean learning_rate" in said


def test_a_setting_of_another_optimizer_or_schedule_is_told():
    for name, kind in (
        ("training.optimizer.momentum", "optimizer=muon"),
        ("training.schedule.decay_steps", "schedule=pl"),
    ):
        with pytest.raises(UsageError, match=f"setting {name} belongs to {kind}.*; give that too"):
            with_settings(run_config(), {name: 1})


def test_a_setting_of_another_recipe_is_told():
    with pytest.raises(UsageError, match="setting minutes belongs to recipe small alone; see docs/settings"):
        with_settings(run_config(), {"minutes": 1})


@pytest.mark.parametrize("kind", ["tied", "untied", "mapped", "pseudo_inverse"])
def test_sharing_sets_the_head_and_contradicts_tied_in_either_order(kind):
    config, is_tied = run_config(), kind != "untied"
    assert with_settings(config, {"sharing": kind}).model.head.__struct_config__.tag == kind
    agreeing = [{"sharing": kind, "tied": is_tied}, {"tied": is_tied, "sharing": kind}]
    assert all(with_settings(config, one).model.head.__struct_config__.tag == kind for one in agreeing)
    for names in (("sharing", "tied"), ("tied", "sharing")):
        both = {"sharing": kind, "tied": not is_tied}
        with pytest.raises(UsageError, match=f"and sharing '{kind}', which contradict each other; give one of them"):
            with_settings(config, {name: both[name] for name in names})
