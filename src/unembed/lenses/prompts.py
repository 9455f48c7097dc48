"""From what a person gives a lens to what it reads: a text's ids, the token to follow, the layers, the texts of all ids.

The next file to read is logit_lens.py, or any other lens: all of them begin here.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from unembed.errors import InputError, UsageError, did_you_mean
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import Tokenizer, with_start
from unembed.tokenizers.notes import refuse_misfit


def text_ids(model: Transformer, text: str, *, what: str = "lens", parse_specials: bool = False) -> list[int]:
    """A text as the model reads it, the start token before it where the model was trained with one.

    A model that sees both sides was trained with the end token behind its texts too, and gets it where it gets the start.
    `parse_specials` reads the names of special tokens in the text as those tokens.
    Raises: InputError when the model has no tokenizer, or another model's; UsageError when the text has no tokens.
    """
    tokenizer = _tokenizer_of(model, what)
    ids = [int(i) for i in tokenizer.encode(text, parse_specials=parse_specials).ids]
    if not ids:
        raise UsageError(f"{what}: the text {text!r} has no tokens; give at least one")
    if tokenizer.adds_start:
        ids = with_start(tokenizer, ids)
        if not model.spec.is_causal and tokenizer.end_id is not None and ids[-1] != tokenizer.end_id:
            ids.append(tokenizer.end_id)
    refuse_misfit(what, tokenizer, ids, model.spec.embedding.vocab_size)
    return ids


def token_texts(model: Transformer) -> list[str] | None:
    """The text of every id that the model's tokenizer knows; None without a tokenizer."""
    tokenizer = model.tokenizer
    return None if tokenizer is None else [tokenizer.token_text(i) for i in range(tokenizer.vocab_size)]


def target_of(model: Transformer, target: Any, *, what: str = "lens") -> int | None:
    """The id of a token to follow: an id as it is, a text that is one token (as it would stand after another
    text), or the name of a special token.

    Raises: UsageError when the text is not one token, saying which are like it; InputError without a tokenizer.
    """
    is_id = isinstance(target, int | np.integer) and not isinstance(target, bool)
    if target is None or is_id:
        return None if target is None else int(target)
    if not isinstance(target, str):
        raise UsageError(f"{what}: target is {repr(target)[:60]}, expected a token's text or its id")
    tokenizer = _tokenizer_of(model, what)
    if not target:
        raise UsageError(f"{what}: the target '' has no tokens; a target is one token, as a text or an id")
    for text in (target, f" {target}"):
        ids = [int(i) for i in tokenizer.encode_ids(text, is_continuation=True)]
        if len(ids) == 1 and text == target and ids[0] != tokenizer.unknown_id:
            return ids[0]
        if text == target and target in tokenizer.specials:
            return int(tokenizer.specials[target])  # named by whoever asks, not found in a text: no letters are meant
        if text == target:
            pieces = " ".join(repr(tokenizer.token_text(i)) for i in ids[:8])
            told = f"{what}: the target {target!r} is {len(ids)} tokens ({pieces}); a target is one token"
            if tokenizer.unknown_id in ids:
                told = f"{what}: the target {target!r} is no token of this model"
        elif len(ids) == 1 and ids[0] != tokenizer.unknown_id:
            raise UsageError(f"{told}. {text!r}, with the space, is one")
    if tokenizer.unknown_id in ids:
        like = did_you_mean(target, (tokenizer.token_text(i) for i in range(tokenizer.vocab_size)), "")
        raise UsageError(f"{told}. {like or '`unembed tokenize` shows how it reads a text'}")
    raise UsageError(f"{told}. Give its first one, or in Python the id of any")


def layers_of(layers: Any, *, what: str = "lens") -> Sequence[float] | None:
    """The layers as they were given. Raises: UsageError for anything but a list of numbers."""
    if layers is None:
        return None
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not all(isinstance(one, Real) for one in layers):
        raise UsageError(f"{what}: layers is {repr(layers)[:60]}, expected a list of numbers such as [0, 4, 8]")
    return layers


def _tokenizer_of(model: Transformer, what: str) -> Tokenizer:
    tokenizer: Tokenizer | None = model.tokenizer
    if tokenizer is None:
        raise InputError(
            f"{what}: this model has no tokenizer, so a text has no ids; name its file with --tokenizer, or in Python give "
            "ids=[...] instead"
        )
    return tokenizer
