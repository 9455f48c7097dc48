"""Everything that a run is told, as one frozen struct: what stands in run.json and what --set changes.

Scripts set a handful of short names (`learning_rate`, `steps`, ...); each stands for a path into the struct, and any
other path may be given in full (`training.clip_norm`). The next file to read is ranges.py.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from unembed.errors import RunError, SpecError, UsageError, did_you_mean
from unembed.model.check import check
from unembed.model.init import Init
from unembed.model.spec import HEADS, Learned, TransformerSpec, with_head, with_tying
from unembed.optim.make import NAMES as OPTIMIZERS
from unembed.optim.make import OptimizerConfig, optimizer_of
from unembed.optim.schedules import NAMES as SCHEDULES
from unembed.optim.schedules import Schedule, schedule_of
from unembed.training.ranges import INF, check_ranges, explained
from unembed.training.settings import OF_KINDS, OF_RECIPES, PAGE, READING, known_settings

LONGEST_CONTEXT = 2**31 - 1  # of a window, in tokens: far beyond what any machine can attend over
Kind = Literal["none", "ddp", "fsdp"]
Precision = Literal["float32", "bfloat16"]
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


class TyingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of the token table's two gradients (tying/watch.py).

    Every `gradient_every`-th step both are noted in tying.jsonl; 0 is never, and it changes no number of the training.
    `lookup_gradient_scale` multiplies the part that comes through looking rows up, and 1 changes no bit. With a head of
    its own a model has that part in the embedding's table alone, whose whole gradient is scaled then.
    """

    gradient_every: int = 0
    lookup_gradient_scale: float = 1.0


class TrainingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is trained. Steps count optimizer steps; a step sees accumulate * batch_size windows.

    `eval_every`, `checkpoint_every` and `log_every` count steps; the last step is always evaluated and saved.
    `keep_every` is the spacing of the checkpoints that are kept beyond the first, the best and the last two.
    `eval_at_start` is whether the untrained model is evaluated too. `early_stop` ends the run after so many evaluations in a
    row without a better validation loss; 0 never does. A sample is written every `sample_every` steps; null is with each
    evaluation, 0 is never. It changes no number of the training. `tensorboard` writes
    events beside metrics.jsonl, and needs the extra `track`.
    `checkpoint_activations` runs each block again in the backward pass instead of keeping its insides (blocks.py), and
    `chunked_loss` makes the scores in pieces: both save memory. The first changes no bit, the second only rounding.
    `parallel` is how the processes of torchrun share the model, `precision` the type of its products (parallel.py); a batch
    is that of all processes together.
    """

    steps: int
    batch_size: int
    accumulate: int
    optimizer: OptimizerConfig
    schedule: Schedule
    clip_norm: float | None
    dropout: float
    log_every: int
    eval_every: int
    checkpoint_every: int
    keep_every: int | None
    compile: bool
    early_stop: int = 0
    eval_at_start: bool = True
    sample_every: int | None = None
    tensorboard: bool = False
    checkpoint_activations: bool = False
    chunked_loss: bool = False
    tying: TyingConfig = TyingConfig()
    parallel: Kind = "none"
    precision: Precision = "float32"


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run but for its data: the model, how it starts, how it is trained, and the one seed of it all."""

    recipe: str
    seed: int
    model: TransformerSpec
    init: Init
    training: TrainingConfig


# The names that contract.md promises to scripts, and where each of them stands.
SHORT_NAMES: dict[str, str] = {
    "seed": "seed",
    "batch_size": "training.batch_size",
    "steps": "training.steps",
    "accumulate": "training.accumulate",
    "learning_rate": "training.schedule.peak",
    "weight_decay": "training.optimizer.weight_decay",
    "dropout": "training.dropout",
    "checkpoint_every": "training.checkpoint_every",
    "eval_every": "training.eval_every",
    "compile": "training.compile",
    "early_stop": "training.early_stop",
    "eval_at_start": "training.eval_at_start",
    "sample_every": "training.sample_every",
    "tensorboard": "training.tensorboard",
    "checkpoint_activations": "training.checkpoint_activations",
    "chunked_loss": "training.chunked_loss",
    "parallel": "training.parallel",
    "precision": "training.precision",
    "tying.gradient_every": "training.tying.gradient_every",
    "tying.lookup_gradient_scale": "training.tying.lookup_gradient_scale",
}
# These three change several fields of the model at once, and the next two are names for a group of numbers.
MODEL_SETTINGS = ("context_length", "tied", "sharing")
KINDS: dict[str, tuple[str, ...]] = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with some settings replaced, checked. Raises: UsageError naming the setting and what it takes.

    A new peak learning rate keeps the schedule's ratio of floor to peak.
    """
    model = config.model
    plain = msgspec.to_builtins(msgspec.structs.replace(config, model=model))
    # the learning rate first: it moves the floor, and a floor that is given beside it is meant as it stands; then the kinds,
    # which have the fields that others set
    for name, value in sorted(settings.items(), key=lambda item: (item[0] != "learning_rate", item[0] not in KINDS)):
        if name in KINDS:
            plain["training"][name] = _of_kind(config, plain["training"], name, value, settings.get("steps"))
        elif name == "tied":
            model = with_tying(model, _of_type(name, value, bool))
        elif name == "sharing":
            model = with_head(model, _one_of(name, value, HEADS))
        elif name == "context_length":
            length = _of_type(name, value, int)
            if not 1 <= length <= LONGEST_CONTEXT:
                raise UsageError(f"setting {name} is {length}; it must be at least 1 and at most {LONGEST_CONTEXT:,}")
            model = with_context_length(model, length)
        elif name == "learning_rate":
            schedule = plain["training"]["schedule"]
            rate = float(_of_type(name, value, float))
            peak, floor = schedule["peak"], schedule["floor"]
            # the first form gives back the very floor for the very peak, the second does not overflow
            schedule["floor"] = floor * (rate / peak) if rate / peak < INF else rate * (floor / peak)
            schedule["peak"] = rate
        else:
            _put(plain, name, value)
    if {"tied", "sharing"} <= set(settings) and settings["tied"] != (settings["sharing"] != "untied"):
        raise UsageError(
            f"setting tied is {str(settings['tied']).lower()} and sharing {settings['sharing']!r}, which contradict each "
            "other; give one of them"
        )
    plain["model"] = msgspec.to_builtins(model)
    try:
        return check_config(msgspec.convert(plain, RunConfig))
    except msgspec.ValidationError as error:
        raise UsageError(explained(str(error), settings, SHORT_NAMES)) from error


def parse_setting(text: str) -> tuple[str, Any]:
    """Reads one `name=value` of the command line; the value is JSON where it can be, otherwise text.

    >>> parse_setting("learning_rate=1e-3"), parse_setting("compile=true")
    (('learning_rate', 0.001), ('compile', True))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text!r}: expected NAME=VALUE, for example --set learning_rate=1e-3")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def check_config(config: RunConfig) -> RunConfig:
    """Returns the config if a run can be made of it. Raises: UsageError naming field, value and rule; SpecError."""
    check(config.model)
    check_ranges(config)
    return config


def config_of(description: Mapping[str, Any], where: str | Path) -> RunConfig:
    """The configuration that a run's description holds. Raises: RunError where it is not one that a run can be made of."""
    try:
        return check_config(msgspec.convert(description["config"], RunConfig))
    except (KeyError, TypeError, msgspec.ValidationError, UsageError, SpecError) as error:
        told = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(
            f"{where}: its run.json holds no configuration of this version of unembed ({told}), so it cannot go on. "
            "Was it edited? Put the run's own file back, or begin another run"
        ) from error


def with_context_length(spec: TransformerSpec, context_length: int) -> TransformerSpec:
    """The same model for another context length; a table of learned positions gets as many rows as it then needs."""
    embedding = spec.embedding
    if isinstance(embedding.position, Learned):
        rows = context_length + embedding.position.offset
        position = msgspec.structs.replace(embedding.position, n_rows=rows)
        embedding = msgspec.structs.replace(embedding, position=position)
    return msgspec.structs.replace(spec, context_length=context_length, embedding=embedding)


def _put(plain: dict[str, Any], name: str, value: Any) -> None:
    """Writes a value at a dotted path that exists already."""
    path = SHORT_NAMES.get(name, name).split(".")
    place: Any = plain
    for key in path[:-1]:
        place = place.get(key) if isinstance(place, dict) else None
    if path[0] == "model" or not isinstance(place, dict) or path[-1] not in place or path[-1] in ("type", "recipe"):
        raise UsageError(_unknown(name, plain))
    if isinstance(place[path[-1]], dict) and not isinstance(value, dict):
        raise UsageError(
            f"setting {name} is a group; set one of its fields, such as {_paths(place[path[-1]], name + '.')[0]}"
        )
    place[path[-1]] = value


def _of_kind(config: RunConfig, plain: dict[str, Any], name: str, value: Any, steps: Any) -> Any:
    """The optimizer or the schedule of a name, with the numbers that it has in common with the one before."""
    if value not in KINDS[name]:
        raise UsageError(f"setting {name} is {str(value)[:60]!r}; it must be {' or '.join(KINDS[name])}")
    if name == "optimizer":
        return msgspec.to_builtins(optimizer_of(value, config.training.optimizer))
    total = steps if type(steps) is int and steps > 0 else config.training.steps
    return msgspec.to_builtins(schedule_of(value, msgspec.convert(plain["schedule"], Schedule), total))


def _unknown(name: str, plain: dict[str, Any]) -> str:
    if name in OF_RECIPES:
        return f"setting {name} belongs to recipe {OF_RECIPES[name][0]} alone; see {PAGE}"
    if name in OF_KINDS:
        return f"setting {name} belongs to {OF_KINDS[name]}; give that too"
    known = [*SHORT_NAMES, *MODEL_SETTINGS, *KINDS, *READING, *_paths({"training": plain["training"]}, "")]
    return f"no setting is named {name!r}. {did_you_mean(name, known, '')}".rstrip() + f"\n{known_settings()}"


def _paths(plain: dict[str, Any], where: str) -> list[str]:
    found = []
    for key, value in plain.items():
        if isinstance(value, dict):
            found += _paths(value, f"{where}{key}.")
        elif key != "type":
            found.append(where + key)
    return found


def _of_type(name: str, value: Any, kind: type) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"setting {name} is {value!r}; it must be {_KINDS[kind]}") from error


def _one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"setting {name} is {repr(value)[:60]}; it must be one of {', '.join(choices)}")
    return value
