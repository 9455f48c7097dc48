"""JSON that gives back exactly what went in, for state.json, run.json and the manifest.

Strict JSON has no word for a number that is not finite, and a training state has such numbers (the best loss before the
first evaluation is infinite). They are written as `{"not_finite": "inf"}` and read back as the float. Everything else
that JSON would change on the way (integer keys, arrays, tensors) is refused when written, not discovered when read.
Next to read: ../run/native.py, which stores a training state this way.
"""

import json
import math
from typing import Any

MARK = "not_finite"
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> bytes:
    """Writes plain values as indented UTF-8 JSON; floats keep every bit, tuples come back as lists.

    Raises: TypeError for keys and values that JSON cannot hold, naming where they stand.

    >>> decode(encode({"best": float("inf"), "step": 3, "seen": [1, None]}))
    {'best': inf, 'step': 3, 'seen': [1, None]}
    """
    text = json.dumps(_marked(value, "$"), ensure_ascii=False, allow_nan=False, indent=1)
    # A lone surrogate (from a file name that is no UTF-8) has no UTF-8 bytes; its backslash form is its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def decode(data: bytes) -> Any:
    """Reads what `encode` wrote.

    Raises: ValueError for what is not strict JSON: NaN and Infinity, a key given twice, too deep a nesting.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unmarked)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _marked(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {MARK: "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")}
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, list | tuple):
        return [_marked(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is no string; JSON would change it")
        if set(value) == {MARK}:
            raise TypeError(
                f"{where}: a mapping with the one key {MARK!r} is how a number that is not finite is written"
            )
        return {key: _marked(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(
        f"{where}: holds a {type(value).__name__}; give str, bool, int, float, None, or lists and dicts of them"
    )


def _unmarked(pairs: list[tuple[str, Any]]) -> Any:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in names if names.count(key) > 1)!r} is given twice")
    if set(mapping) == {MARK}:
        name = mapping[MARK]
        if not isinstance(name, str) or name not in _NUMBERS:
            raise ValueError(f"{MARK} is {name!r}; it must be one of {sorted(_NUMBERS)}")
        return _NUMBERS[name]
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
