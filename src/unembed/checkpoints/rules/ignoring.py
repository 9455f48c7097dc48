"""Surplus tensors that a user wants left out of a load: by name or by a pattern, never one that the model is made of.

A file may carry a buffer that no family knows, and only its owner can say that the model does without. What is named here
is excused in the load report; a name that meets nothing is an error, since a slip of the pen would else go unseen. The
next file to read is tensors.py, where the account of the tensors is kept.
"""

from collections.abc import Iterable, Mapping

from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.rules.accounting import listed
from unembed.errors import CheckpointError, UsageError, closest

REASON = "ignored by request"
_LONGEST_COMPARED = 200


def checked(given: object) -> tuple[str, ...]:
    """The names and patterns as they were given. Raises: UsageError for anything but a list or tuple of texts."""
    if isinstance(given, str):
        raise UsageError(f"ignore_tensors is the text {given[:60]!r}, expected a list of names. Write [{given[:60]!r}]")
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one for one in given):
        raise UsageError(
            f"ignore_tensors is {repr(given)[:60]}, expected a list of tensors' names, in which * stands for any part"
        )
    return tuple(given)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern means a tensor: it is its name, or becomes it when each `*` is replaced by some text, or none.

    >>> matches("h.*.bias", "h.3.attn.bias"), matches("h.*", "wte.weight"), matches("a*a", "a")
    (True, False, False)
    """
    if pattern == name or "*" not in pattern:
        return pattern == name
    first, *middle, last = pattern.split("*")
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:  # the leftmost place is never worse; a regular expression could try them all
        if (at := name.find(part, at, end)) < 0:
            return False
        at += len(part)
    return True


def ignored_names(
    patterns: Iterable[str], names: Mapping[str, str], needed: Mapping[str, tuple[str, ...]], *, where: str
) -> list[str]:
    """The tensors that the patterns mean. `names` gives those of the file, as the rules spell them, with the file's own
    spelling; `needed` what of the model is made of each tensor that has a rule.

    Raises: CheckpointError where a pattern meets no tensor, or one that the model needs.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        met = [name for name, spelled in names.items() if matches(pattern, name) or matches(pattern, spelled)]
        if not met:
            raise CheckpointError(
                f"{where}: {short(pattern)} was to be ignored, and matches none of the file's {len(names)} tensors. "
                f"{_near(pattern, names, needed)}"
            )
        if wanted := [name for name in met if name in needed]:
            several = len(wanted) > 1
            told = (
                f"tensors {short(wanted[0])} and {len(wanted) - 1} more were"
                if several
                else f"tensor {short(wanted[0])} was"
            )
            raise CheckpointError(
                f"{where}: {told} to be ignored, but the model needs {'them: the first' if several else 'it: it'} is needed by "
                f"{listed(needed[wanted[0]])}. Only tensors that no rule uses can be left out{_surplus(names, needed)}"
            )
        found |= dict.fromkeys(met)
    return list(found)


def _surplus(names: Mapping[str, str], needed: Mapping[str, tuple[str, ...]]) -> str:
    left = [short(name) for name in names if name not in needed]
    return f": {listed(left)}." if left else "; the file has none."


def _near(pattern: str, names: Mapping[str, str], needed: Mapping[str, tuple[str, ...]]) -> str:
    compared = [name for name in names if len(name) <= _LONGEST_COMPARED]
    if close := closest(pattern.replace("*", ""), compared):
        return f"Did you mean {' or '.join(short(name) for name in close)}?"
    if any(name not in needed for name in names):
        return f"Those that no rule uses{_surplus(names, needed)}"
    return "No rule leaves one of them unused, so nothing is to be ignored."
