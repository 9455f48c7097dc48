"""Which descriptions are models: the rules between the fields of a spec, and the way to JSON and back.

msgspec checks types and unknown keys when it reads, but not when a struct is made in Python; it also lets a key occur
twice and writes infinity as null. All of that is closed here, in one place. The next file to read is counts.py.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from unembed.errors import SpecError
from unembed.model.spec import (
    Alibi,
    Block,
    DynamicScaling,
    Learned,
    Llama3Scaling,
    PseudoInverseHead,
    Rotary,
    Spec,
    TransformerSpec,
    YarnScaling,
)

# Fields that may be zero or below; every other number of a spec is a size, a factor or an epsilon and must be positive.
_MAY_BE_ZERO = {"offset", "mask_id", "eps"}
_PROJECTIONS = ("q", "k", "v", "o")


def to_json(spec: TransformerSpec) -> str:
    """The spec as JSON text, checked first, so that what is written can always be read. Raises: SpecError."""
    return msgspec.json.encode(check(spec)).decode()


def from_json(text: str | bytes) -> TransformerSpec:
    """Reads a spec from JSON. Raises: SpecError on bad JSON, a repeated or unknown key, a wrong type or a broken rule."""
    try:
        return from_plain(parse_json(text))
    except ValueError as error:
        raise SpecError(f"model spec: {error}. Expected the JSON that `to_json` writes.") from error


def parse_json(text: str | bytes) -> Any:
    """Strict JSON as plain values. Raises: ValueError also for a key given twice, NaN, infinity, and too deep a nesting."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def from_plain(plain: Any) -> TransformerSpec:
    """Reads a spec from JSON that is parsed already, such as a part of run.json. Raises: SpecError."""
    try:
        return check(msgspec.convert(plain, TransformerSpec))
    except msgspec.ValidationError as error:
        raise SpecError(f"model spec: {error}. Expected the JSON that `to_json` writes.") from error


def check(spec: TransformerSpec) -> TransformerSpec:
    """Returns the spec if it describes a model. Raises: SpecError naming field, value and rule.

    All broken rules are listed, at most four of them, so that one look mends the file.
    """
    try:
        msgspec.convert(msgspec.to_builtins(spec), type(spec))
    except msgspec.ValidationError as error:
        raise SpecError(f"model spec: {error}") from error
    if problems := [*_numbers(spec, ""), *_rules(spec)]:
        more = f" (and {len(problems) - 4} more)" if len(problems) > 4 else ""
        raise SpecError("model spec: " + "; ".join(problems[:4]) + more)
    return spec


def _numbers(spec: Spec, where: str) -> Iterator[str]:
    """Every number of the tree is finite and, unless a field may be zero, positive."""
    for name in spec.__struct_fields__:
        value, path = getattr(spec, name), f"{where}{name}"
        if isinstance(value, Spec):
            yield from _numbers(value, path + ".")
        elif isinstance(value, tuple):
            # Blocks are mostly the same object many times over; each distinct one is looked at once.
            firsts = {id(item): (index, item) for index, item in reversed(list(enumerate(value)))}
            for index, item in sorted(firsts.values(), key=lambda pair: pair[0]):
                if isinstance(item, Spec):
                    yield from _numbers(item, f"{path}.{index}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            lowest_is_zero = name in _MAY_BE_ZERO
            if abs(value) >= 2**63 and isinstance(value, int):
                yield f"{path} is {str(value)[:20]}...; it must be below 2**63"
            elif not math.isfinite(value):
                yield f"{path} is {value}; it must be finite"
            elif value < 0 or (value == 0 and not lowest_is_zero):
                yield f"{path} is {value}; it must be {'at least 0' if lowest_is_zero else 'above 0'}"


def _rules(spec: TransformerSpec) -> Iterator[str]:
    """The rules that tie two fields together."""
    position = spec.embedding.position
    if isinstance(position, Learned) and position.room < spec.context_length:
        yield (
            f"embedding.position has {position.n_rows} rows and offset {position.offset}, room for "
            f"{position.room} positions, but context_length is {spec.context_length}"
        )
    dropout = spec.embedding.token_dropout
    if dropout is not None and not (dropout.mask_id < spec.embedding.vocab_size and 0 < dropout.trained_share < 1):
        yield "embedding.token_dropout needs a mask_id below vocab_size and a trained_share between 0 and 1"
    rows, width = spec.embedding.vocab_size, spec.embedding.d_model
    if isinstance(spec.head, PseudoInverseHead) and rows < width:
        yield (
            f"head is pseudo_inverse, whose table has orthonormal columns, but vocab_size is {rows} and d_model {width}; "
            "so many columns cannot be orthonormal: it needs d_model at most vocab_size"
        )
    for index, block in {id(b): (i, b) for i, b in reversed(list(enumerate(spec.blocks)))}.values():
        for problem in _block_rules(block):
            yield f"blocks.{index}.{problem}"


def _block_rules(block: Block) -> Iterator[str]:
    attention = block.attention
    if attention.n_kv_heads > 0 and attention.n_heads % attention.n_kv_heads:
        yield f"attention.n_kv_heads is {attention.n_kv_heads}; it must divide n_heads, {attention.n_heads}"
    if len(set(attention.biases)) < len(attention.biases):
        yield f"attention.biases names a projection twice: {list(attention.biases)}"
    elif list(attention.biases) != [name for name in _PROJECTIONS if name in attention.biases]:
        yield f"attention.biases is {list(attention.biases)}; write it in the order q, k, v, o"
    if isinstance(attention.position, Rotary):
        yield from _rotary_rules(attention.position, attention.d_head)
    if isinstance(attention.position, Alibi) and attention.score_softcap is not None:
        yield "attention.position is alibi and score_softcap is set; no known model caps a biased score"


def _rotary_rules(rotary: Rotary, d_head: int) -> Iterator[str]:
    n_rotated = rotary.n_rotated(d_head)
    if not 0 < rotary.fraction <= 1:
        yield f"attention.position.fraction is {rotary.fraction}; it must be above 0 and at most 1"
    elif n_rotated < 2 or n_rotated % 2:
        yield f"attention.position turns {n_rotated} of {d_head} entries of a head; it must be an even number, 2 or more"
    scaling = rotary.scaling
    if isinstance(scaling, Llama3Scaling) and scaling.low_frequency_factor >= scaling.high_frequency_factor:
        yield "attention.position.scaling needs low_frequency_factor below high_frequency_factor"
    if isinstance(scaling, YarnScaling) and scaling.beta_slow >= scaling.beta_fast:
        yield "attention.position.scaling needs beta_slow below beta_fast"
    if isinstance(scaling, YarnScaling) and rotary.theta <= 1:
        yield f"attention.position.theta is {rotary.theta}; yarn scaling divides by its logarithm and needs it above 1"
    if isinstance(scaling, DynamicScaling) and n_rotated == 2:
        yield "attention.position.scaling is dynamic, which raises theta by n/(n-2) and needs more than 2 turned entries"


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} occurs twice in one object")
    return plain


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a spec can hold")
