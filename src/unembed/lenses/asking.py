"""What a question about a model names, turned into numbers: a text into ids, a target into one id, a position, a layer.

The analyses that look inside one text (attribution.py, attention_maps.py, patching.py, stream.py) all ask in these words, so
that a wrong one is answered alike everywhere. Before it: prompts.py, which reads texts and targets for all lenses. The next
file to read is attribution.py.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from unembed.errors import InputError, UsageError
from unembed.lenses.prompts import target_of, text_ids
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import placeholder


def token_ids(
    what: str, model: Transformer, text: str | None, ids: Any = None, *, parse_specials: bool = False
) -> list[int]:
    """The ids of one text with its start token, or the ids that were given. `what` begins every message.

    `parse_specials` is as for `text_ids`.

    Raises: UsageError where neither, both, or nothing to look at is given; InputError without a tokenizer.
    """
    if (text is None) == (ids is None):
        raise UsageError(f"{what}: give either a text or ids")
    return _whole(what, ids) if text is None else text_ids(model, text, what=what, parse_specials=parse_specials)


def target_id(what: str, model: Transformer, target: Any, name: str = "target") -> int | None:
    """The one id that a target means, as prompts.py reads it; None where none is named.

    Raises: UsageError for a text of no, several or unknown tokens, or an id without a row.
    """
    found = target_of(model, target, what=what if name == "target" else f"{what}, {name}")
    n_rows = model.spec.embedding.vocab_size
    if found is not None and not 0 <= found < n_rows:
        raise UsageError(f"{what}: {name} is the id {found}; this model's table has the rows 0 to {n_rows - 1}")
    return found


def targets(what: str, model: Transformer, target: Any, against: Any) -> dict[str, int | None]:
    """The ids of a target and of what it is held against, by these names. Raises: as `target_id`."""
    named = {"target": target, "against": against}
    return {name: target_id(what, model, value, name) for name, value in named.items()}


def position_of(what: str, ids: Sequence[int], position: int | None) -> int:
    """A position of the text, counted from 0; the last one where none is named. Raises: UsageError."""
    if position is None:
        return len(ids) - 1
    if not 0 <= position < len(ids):
        raise UsageError(
            f"{what}: position is {position}; the text has {len(ids)} token{'s' if len(ids) > 1 else ''}, so positions run "
            f"from 0 to {len(ids) - 1}"
        )
    return position


def one_of(what: str, name: str, number: int | None, n: int) -> int | None:
    """A layer or a head, counted from 0, or None for all of them. Raises: UsageError for one that is not there."""
    if number is not None and not 0 <= number < n:
        there = f"{name}s run from 0 to {n - 1}" if n else f"this model has no {name}s"
        raise UsageError(f"{what}: {name} is {number}; {there}")
    return number


def text_of(model: Transformer, token_id: int) -> str:
    """How one id is shown: its token, or its number where there is no tokenizer or no such token."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return str(token_id)
    return str(tokenizer.token_text(token_id)) if token_id < tokenizer.vocab_size else placeholder(token_id)


def best_id(model: Transformer, logits: Float[Tensor, " vocab"]) -> int:
    """The id with the highest score among those that the tokenizer knows."""
    n_known = model.spec.embedding.vocab_size
    if model.tokenizer is not None:
        n_known = min(n_known, model.tokenizer.vocab_size)
    return int(logits[:n_known].argmax())


def refuse_broken(what: str, numbers: Tensor, of: str = "scores") -> None:
    """Refuses to show what a model says that says no numbers: every answer would be one of chance, and look like any other.

    Raises: InputError, in the words in which `generate` refuses it.
    """
    largest = float(numbers.max()) if numbers.numel() else 0.0
    if not math.isfinite(largest):
        raise InputError(
            f"{what}: the largest of the model's {of} is {largest}, so there is nothing to see. Its weights are broken "
            "(unembed verify MODEL says where); try an earlier checkpoint"
        )


def is_too_long(model: Transformer, ids: Sequence[int]) -> tuple[str, ...]:
    """The note for a text that is longer than the context that the model was trained with."""
    return ("text_is_longer_than_the_context",) if len(ids) > model.spec.context_length else ()


def _whole(what: str, ids: Any) -> list[int]:
    plain = ids.tolist() if isinstance(ids, Tensor | np.ndarray) else ids
    if not isinstance(plain, list | tuple) or not plain:
        raise UsageError(f"{what}: ids are {repr(ids)[:60]}; give at least one id, as whole numbers, [pos]")
    if wrong := [one for one in plain if not isinstance(one, int) or isinstance(one, bool)]:
        raise UsageError(f"{what}: ids hold {repr(wrong[0])[:60]}; give whole numbers, [pos]")
    return list(plain)
