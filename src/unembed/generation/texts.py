"""From a prompt's text to its continuation's text: the tokenizer on both sides of decode.py.

The next file to read is ../lenses/logit_lens.py.
"""

from typing import Any

from unembed.errors import InputError
from unembed.generation.decode import Continuation, PastContext, generate_ids
from unembed.generation.sampling import Sampling
from unembed.model.transformer import Transformer
from unembed.results import Result
from unembed.tokenizers.base import Tokenizer, decode_after


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], bool]:
    """The ids to begin with, and whether they spell text of the user's.

    Without a prompt a text begins after a start token, else after an end token (the end of the text before), else after a
    line break or a space, which is what stands before a text in a running file. Raises: InputError when there is none.
    """
    ids = [int(i) for i in tokenizer.encode(prompt).ids]
    if ids:
        return ids, True
    for mark in (tokenizer.start_id, tokenizer.end_id):
        if mark is not None:
            return [mark], False
    for character in ("\n", " "):
        try:
            found = [int(i) for i in tokenizer.encode(character).ids]
        except InputError:
            continue  # not in this alphabet; the next candidate may be
        if found:
            return found, False
    raise InputError(f"generate: the {tokenizer.kind} tokenizer has no token that begins a text; give a --prompt")


def continue_text(
    model: Transformer,
    prompt: str,
    *,
    n_tokens: int,
    sampling: Sampling,
    seed: int,
    past_context: PastContext = "slide",
) -> Result:
    """Continues one text; see `Continuation` for the values. Raises: InputError when the model has no tokenizer."""
    tokenizer = tokenizer_of(model)
    ids, is_text = prompt_ids(tokenizer, prompt)
    (text,) = generate_ids(
        model,
        [ids],
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=[seed],
        n_known=tokenizer.vocab_size,
        end_id=tokenizer.end_id,
        past_context=past_context,
    )
    return Result(name="sample", values=values_of(text, tokenizer, is_text))


def tokenizer_of(model: Transformer) -> Tokenizer:
    """The model's tokenizer. Raises: InputError when whoever loaded the model knew of none."""
    if model.tokenizer is None:
        raise InputError("this model has no tokenizer, so text has no ids; presets have none, runs and files do")
    tokenizer: Tokenizer = model.tokenizer
    return tokenizer


def values_of(text: Continuation, tokenizer: Tokenizer, is_text: bool) -> dict[str, Any]:
    """A continuation as the values of a Result; its first space is kept after a prompt and dropped without one."""
    return {
        "prompt_ids": text.prompt_ids,
        "ids": text.ids,
        "text": decode_after(tokenizer, text.prompt_ids if is_text else [], text.ids),
        "logprobs": text.logprobs,
        "stopped": text.stopped or "length",
        "n_slides": text.n_slides,
    }
