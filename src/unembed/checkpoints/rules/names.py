"""Other spellings of a file's tensor names, turned into the one that a family's rules know.

Wrappers put words into names, base models leave the first word out, and releases renamed parts. A file that holds one
tensor under two spellings stops the load: which of the two is meant cannot be told. The next file to read is tensors.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.rules.ignoring import matches
from unembed.errors import CheckpointError


class Renamed(NamedTuple):
    """An older spelling, as a pattern that the whole name must match, and what stands in its place."""

    pattern: str
    name: str


def with_one_spelling(
    stored: Mapping[str, Any],
    prefix: str,
    renamed: Sequence[Renamed],
    known: Iterable[str],
    *,
    where: str,
    ignored: Sequence[str] = (),
) -> dict[str, Any]:
    """Gives each tensor the name that the rules use: `h.0...` of a base model's file becomes `transformer.h.0...`.

    Names that the rules know are left as they are, and so is another spelling that `ignored` names, where the file has two.
    Raises: CheckpointError if a file holds a tensor under two names.
    """
    full = set(known)
    named: dict[str, Any] = {}
    source: dict[str, str] = {}
    for name, value in stored.items():
        whole = _spelled(name, prefix, renamed, full)
        if whole in named:
            others = [one for one in (source[whole], name) if one != whole]  # the rules' own name cannot be left out
            left_out = next((one for one in others if any(matches(pattern, one) for pattern in ignored)), None)
            if left_out is None:
                raise CheckpointError(
                    f"{where}: {short(source[whole])} and {short(name)} are two names of {short(whole)}; keep one of them. To "
                    f"leave one out: --ignore-tensor {' or '.join(short(one) for one in others)}."
                )
            named[left_out] = stored[left_out]
            if left_out == name:
                continue
        named[whole], source[whole] = value, name
    return named


def _spelled(name: str, prefix: str, renamed: Sequence[Renamed], known: set[str]) -> str:
    candidates = [name, prefix + name]
    for old in renamed:
        if re.fullmatch(old.pattern, name):
            new = re.sub(old.pattern, old.name, name)
            candidates += [new, prefix + new]
    return next((candidate for candidate in candidates if candidate in known), name)
