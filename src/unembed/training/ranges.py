"""What each setting of a run may be, in one table: the same words whether a value is out of range or of the wrong type.

The next file to read is loop.py, which relies on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unembed.errors import UsageError

if TYPE_CHECKING:
    from unembed.training.config import RunConfig

INF = float("inf")
# A window of one token each would fill 16 MiB of ids: nobody means more, and what is larger ends in numbers that overflow.
MOST_WINDOWS = 2**20
MOST_STEPS = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """What one setting may be: its name in messages, its path into RunConfig, the rule in words, and as a test.

    The test is also handed the whole config, for a value whose range depends on another.
    """

    name: str
    path: str
    rule: str
    holds: Callable[[Any, "RunConfig"], bool]


def _at_least(least: int, most: int | None = None) -> Callable[[Any, "RunConfig"], bool]:
    return lambda value, config: least <= value and (most is None or value <= most)


def _positive(value: Any, config: "RunConfig") -> bool:
    return bool(0 < value < INF)


def _share(value: Any, config: "RunConfig") -> bool:
    return bool(0 <= value < 1)


def _plain(name: str, rule: str, holds: Callable[[Any, "RunConfig"], bool]) -> Range:
    return Range(name, f"training.{name}", rule, holds)


RANGES: tuple[Range, ...] = (
    Range("seed", "seed", "0 or more, and below 2**63", _at_least(0, 2**63 - 1)),
    _plain("steps", "at least 1, and below 2**63", _at_least(1, MOST_STEPS)),
    _plain("batch_size", f"at least 1 and at most {MOST_WINDOWS:,}", _at_least(1, MOST_WINDOWS)),
    _plain("accumulate", "at least 1 and at most 65,536", _at_least(1, 2**16)),
    _plain("dropout", "at least 0 and below 1", _share),
    Range("learning_rate", "training.schedule.peak", "above 0 and finite", _positive),
    Range(
        "training.schedule.floor",
        "training.schedule.floor",
        "between 0 and the peak",
        lambda value, config: 0 <= value <= config.training.schedule.peak,
    ),
    Range("training.schedule.warmup_steps", "training.schedule.warmup_steps", "0 or more", _at_least(0)),
    Range("training.schedule.decay_steps", "training.schedule.decay_steps", "0 or more", _at_least(0)),
    Range(
        "weight_decay",
        "training.optimizer.weight_decay",
        "0 or more, and finite",
        lambda value, config: 0 <= value < INF,
    ),
    Range(
        "training.optimizer.matrix_learning_rate",
        "training.optimizer.matrix_learning_rate",
        "above 0 and finite",
        _positive,
    ),
    Range("training.optimizer.momentum", "training.optimizer.momentum", "at least 0 and below 1", _share),
    Range("training.optimizer.beta1", "training.optimizer.beta1", "at least 0 and below 1", _share),
    Range("training.optimizer.beta2", "training.optimizer.beta2", "at least 0 and below 1", _share),
    Range("training.optimizer.eps", "training.optimizer.eps", "above 0 and finite", _positive),
    _plain("log_every", "at least 1", _at_least(1)),
    _plain("eval_every", "at least 1", _at_least(1)),
    _plain("checkpoint_every", "at least 1", _at_least(1)),
    _plain("early_stop", "0 (never) or a number of evaluations", _at_least(0)),
    _plain(
        "sample_every",
        "at least 1, 0 (never), or null (with each evaluation)",
        lambda value, config: value is None or value >= 0,
    ),
    _plain("clip_norm", "above 0 and finite, or null", lambda value, config: value is None or _positive(value, config)),
    _plain("keep_every", "at least 1, or null", lambda value, config: value is None or value >= 1),
    _plain("parallel", "none, ddp or fsdp", lambda value, config: True),
    _plain("precision", "float32 or bfloat16", lambda value, config: True),
    Range("tying.gradient_every", "training.tying.gradient_every", "at least 1, or 0 (never)", _at_least(0)),
    Range(
        "tying.lookup_gradient_scale",
        "training.tying.lookup_gradient_scale",
        "0 or more, and finite",
        lambda value, config: 0 <= value < INF,
    ),
    Range("init.std", "init.std", "above 0 and finite", _positive),
)
BY_PATH = {one.path: one for one in RANGES}


def check_ranges(config: "RunConfig") -> None:
    """Returns if every setting is in its range. Raises: UsageError naming setting, value and rule."""
    for one in RANGES:
        found = _fields(config, one.path)  # not every schedule and init has every field
        if found and not one.holds(found[0], config):
            raise UsageError(f"setting {one.name} is {found[0]}; it must be {one.rule}")


def explained(message: str, settings: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    """What msgspec says of a value of the wrong type, with the setting's own name and what it may be.

    `paths` gives the path of each short name. Text that names no single setting stays as it is.

    >>> explained("Expected `int`, got `str` - at `$.training.steps`", {"steps": "many"}, {"steps": "training.steps"})
    "setting steps is 'many': expected `int`, got `str`; it must be at least 1, and below 2**63"
    """
    what, _, path = message.partition(" - at `$.")
    path = path.rstrip("`")
    for name, value in settings.items():
        if path and paths.get(name, name) == path:
            rule = f"; it must be {BY_PATH[path].rule}" if path in BY_PATH else ""
            return f"setting {name} is {_short(value)}: {what[0].lower()}{what[1:]}{rule}"
    return f"settings: {message}"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _fields(config: "RunConfig", path: str) -> list[Any]:
    """The value at a path in a list, or an empty list where the config has no such field."""
    place: Any = config
    for key in path.split("."):
        if key not in place.__struct_fields__:
            return []
        place = getattr(place, key)
    return [place]
