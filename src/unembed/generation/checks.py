"""What generation is asked for, looked at before any work: a wrong type or number is named, never met half-way.

Python lets anybody pass anything; here it becomes plain ints or an error of ours. The next file to read is decode.py.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

from unembed.errors import InputError, UsageError
from unembed.model.transformer import Transformer

PastContext = Literal["slide", "stop"]
SEED_LIMIT = 2**63


def check_model(model: Any) -> Transformer:
    """Gives a model that can continue a text. Raises: UsageError if it is no model, InputError if it is a masked one."""
    if not isinstance(model, Transformer):
        raise UsageError(
            f"generate: the model is {_shown(model)}; give what unembed.load(...) returns, a Transformer of ours"
        )
    if not model.spec.is_causal:
        raise InputError(
            "generate: this is a masked model, every position sees every other, so it cannot continue a text. "
            "Look into it with the lens instead."
        )
    return model


def check_tokens(n_tokens: Any) -> int:
    """Gives how many tokens to make at most. Raises: UsageError."""
    found = _whole(n_tokens)
    if found is None or found < 0:
        raise UsageError(f"tokens is {_shown(n_tokens)}; it must be 0 or more, a whole number")
    return found


def check_seeds(seeds: Any, n_texts: int) -> list[int]:
    """Gives one seed for each text. Raises: UsageError."""
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise UsageError(f"seeds is {_shown(seeds)}; give a list with one whole number for each prompt")
    given = list(seeds)
    if len(given) != n_texts:
        raise UsageError(f"{n_texts} prompts but {len(given)} seeds; give one seed for each prompt")
    return [check_seed(seed) for seed in given]


def check_seed(seed: Any) -> int:
    """Gives a seed that a generator takes. Raises: UsageError."""
    found = _whole(seed)
    if found is None or not 0 <= found < SEED_LIMIT:
        raise UsageError(f"seed is {_shown(seed)}; it must be 0 or more, and below 2**63, a whole number")
    return found


def seed_of(first_seed: int, n: int) -> int:
    """The seed of prompt n, from 0, of many: the next whole number each time, beginning anew after the last seed."""
    return (first_seed + n) % SEED_LIMIT


def check_ids(ids: Any, vocab_size: int) -> list[int]:
    """Gives the ids of one prompt as ints, from a list, a tuple, or an array or tensor of one axis.

    Raises: UsageError for what is no list of whole numbers; InputError for no ids, or one without a row in the table.
    """
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UsageError(
            f"generate: the ids of a prompt are {_shown(ids)}; give a list of whole numbers such as [1, 2]"
        )
    if getattr(ids, "ndim", 1) != 1:
        raise UsageError(
            f"generate: the ids of a prompt have the shape {list(ids.shape)}; one prompt is one list"  # type: ignore[attr-defined]
        )
    found: list[int] = []
    for position, one in enumerate(ids):
        whole = _whole(one)
        if whole is None:
            raise UsageError(f"generate: prompt id {position} is {_shown(one)}; ids are whole numbers")
        found.append(whole)
    if not found:
        raise InputError("generate: a prompt has no tokens; give some text, or a start token")
    if bad := [i for i in found if not 0 <= i < vocab_size]:
        raise InputError(
            f"generate: prompt id {bad[0]} has no row in the table of {vocab_size}; ids go from 0 to {vocab_size - 1}"
        )
    return found


def check_past_context(past_context: Any) -> PastContext:
    """Gives the rule past the context. Raises: UsageError if there is no such rule."""
    for rule in get_args(PastContext):
        if isinstance(past_context, str) and past_context == rule:
            return cast(PastContext, rule)
    raise UsageError(f"past_context is {_shown(past_context)}; it must be 'slide' or 'stop'")


def check_prompt(prompt: Any) -> str:
    """Gives a prompt that is a text. Raises: UsageError."""
    if not isinstance(prompt, str):
        raise UsageError(
            f"generate: the prompt is {_shown(prompt)}; it must be a text. Token ids are ids=[...], several texts "
            "generate_many(model, [...])"
        )
    return prompt


def check_prompts(prompts: Any) -> list[str]:
    """Gives many prompts, each a text. Raises: UsageError."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise UsageError(f"generate_many: prompts is {_shown(prompts)}; give a list of texts")
    return [check_prompt(prompt) for prompt in prompts]


def check_stops(stops: Any) -> tuple[str, ...]:
    """Gives the stop strings; one text alone is one stop string. Raises: UsageError for an empty one or another type."""
    given: Sequence[Any] = (
        [stops] if isinstance(stops, str) else list(stops) if isinstance(stops, Iterable) else [stops]
    )
    for stop in given:
        if not isinstance(stop, str) or not stop:
            raise UsageError(f"stop is {_shown(stop)}; a stop string is a text of at least one character")
    return tuple(dict.fromkeys(given))


def _whole(value: Any) -> int | None:
    """The whole number that a value is: an int, NumPy's or torch's included, but no bool and no float."""
    try:
        found = operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # torch raises of its own for tensors that hold no single number
        return None
    return None if isinstance(value, bool) else found


def _shown(value: Any) -> str:
    """A value in an error: short, with its type where the value alone would not tell."""
    text = repr(value)
    short = text if len(text) <= 40 else text[:37] + "..."
    return (
        short
        if isinstance(value, int | str | None) and not isinstance(value, bool)
        else f"{short} ({type(value).__name__})"
    )
