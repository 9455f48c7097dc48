"""What a function of `import unembed` is given by mistake, answered in words instead of an error from deep inside.

A type checker finds most of these before a program runs; a notebook has none. The next file to read is python/models.py, where
the functions stand.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path

from unembed.errors import UsageError


def refuse_both(name: str, prompt: object, ids: object) -> None:
    """A text and ids at once: which of them is meant cannot be told."""
    if ids is not None and prompt != "":
        raise UsageError(f"{name}: give either a prompt or ids, not both")


def names_of(what: str, name: str, given: Sequence[str] | None) -> Sequence[str] | None:
    """A list of names as it was given, None for all of them. Raises: UsageError for anything else, the empty list too."""
    if given is None:
        return None
    if isinstance(given, str):
        raise UsageError(f"{what}: {name} is the text {given!r}, expected a list of names. Write [{given!r}]")
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise UsageError(f"{what}: {name} is {repr(given)[:60]}, expected a list of names")
    if not given:
        raise UsageError(
            f"{what}: {name} is empty, so there is nothing to do. Name at least one, or leave it out for all"
        )
    return given


def refuse_no_model(what: str, model: object) -> None:
    """Names the likeliest mistake: a path or a preset's name where the model itself is wanted."""
    from torch import nn

    if isinstance(model, str | Path):
        name = repr(str(model))
        raise UsageError(f"{what}: got the name {name}, expected a model. Open it first: unembed.load({name})")
    if not isinstance(model, nn.Module):
        raise UsageError(f"{what}: got a {type(model).__name__}, expected a model. Open one with unembed.load")


def refuse_no_path(what: str, name: str, path: object, of: str) -> None:
    """A file is named by a text or a Path; None stands for an option that was not given."""
    if path is not None and not isinstance(path, str | Path):
        raise UsageError(f"{what}: {name} is {repr(path)[:60]}, expected the path of {of}")


def refuse_no_flag(what: str, name: str, value: object) -> None:
    """A switch is True or False: any other value would count as one of them, and "no" as True."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}: {name} is {repr(value)[:60]}, expected True or False")


def refuse_below(what: str, name: str, value: object, *, least: int) -> None:
    """A whole number that must be given, and be at least so large."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{what}: {name} is {repr(value)[:60]}, expected a whole number")
    if int(value) < least:
        raise UsageError(f"{what}: {name} is {value}; it must be at least {least}")


_TEXT, _WHOLE, _NUMBER = (str, "a text"), (Integral, "a whole number"), (Real, "a number")
_KINDS: dict[str, tuple[type, str]] = {
    "by": _TEXT,
    "metric": _TEXT,
    "prompt": _TEXT,
    "text": _TEXT,
    "tap": _TEXT,
    "column": _TEXT,
    "position": _WHOLE,
    "layer": _WHOLE,
    "head": _WHOLE,
    "tokens": _WHOLE,
    "start_tokens": _WHOLE,
    "steps": _WHOLE,
    "rows": _WHOLE,
    "window": _WHOLE,
    "top": _WHOLE,
    "top_k": _WHOLE,
    "seed": _WHOLE,
    "accumulate": _WHOLE,
    "dropout": _NUMBER,
    "clip_norm": _NUMBER,
    "learning_rate": _NUMBER,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "repetition_penalty": _NUMBER,
}


def refuse_types(what: str, **given: object) -> None:
    """Options of another type than they are read as; None stands for an option that was not given."""
    for name, value in given.items():
        kind, words = _KINDS[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(f"{what}: {name} is {repr(value)[:60]}, expected {words}")
