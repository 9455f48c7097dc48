"""From a prompt's text to its continuation's text: the tokenizer on both sides of decode.py.

A `Writing` is one text in the making. `write` lets any number of them grow, step by step, and hands out what may be
shown. The next file to read is candidates.py, which watches the draws.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from unembed.errors import InputError
from unembed.generation.checks import PastContext, check_ids, check_model, check_prompt, check_stops
from unembed.generation.continuation import Continuation
from unembed.generation.decode import Observe, stream_ids
from unembed.generation.sampling import Sampling
from unembed.generation.stops import StopMatcher
from unembed.model.transformer import Transformer
from unembed.results import Result, Table
from unembed.tokenizers.base import StreamDecoder, Tokenizer, gaps, with_start
from unembed.tokenizers.notes import refuse_misfit

# Texts that grow side by side: more of them take more memory, and on most machines bring no more tokens a second.
MOST_TOGETHER = 32
VALUES = ("prompt_ids", "ids", "text", "logprobs", "stopped", "n_slides")


def prompt_ids(
    tokenizer: Tokenizer, prompt: str, start_ids: Sequence[int] | None = None, *, parse_specials: bool = False
) -> tuple[list[int], bool]:
    """The ids to begin with, and whether they spell text of the user's.

    A prompt begins with the start token where the tokenizer's own rule puts one: exactly one. Without a prompt a text
    begins with `start_ids`, what the model was trained to begin with where that is known; else after a start token, an
    end token (the end of the text before), a line break or a space, which is what stands before a text in a running file.
    `parse_specials` reads the names of special tokens in the prompt as those tokens.
    Raises: InputError when there is none of them.
    """
    ids = [int(i) for i in tokenizer.encode(prompt, parse_specials=parse_specials).ids]
    if ids:
        return (with_start(tokenizer, ids) if tokenizer.adds_start else ids), True
    if start_ids:
        return list(start_ids), False
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


class Writing:
    """One text in the making: what it began with, the continuation so far, and its text up to a stop string.

    Give a prompt, or ids, which are taken as they are. A first space is kept after a prompt and dropped without one. A
    stop string that is the name of a special token also ends the text at that token, which has no text of its own.
    Raises: InputError for a prompt when the model has no tokenizer, or another model's; with ids it needs none, and `text`
    is None.
    """

    def __init__(
        self,
        model: Transformer,
        prompt: str = "",
        *,
        ids: Any = None,
        stops: Sequence[str] | str = (),
        parse_specials: bool = False,
    ) -> None:
        check_model(model)
        stops = check_stops(stops)
        self.tokenizer: Tokenizer | None = tokenizer_of(model) if ids is None or stops else model.tokenizer
        if ids is None:
            assert self.tokenizer is not None
            begun, is_text = prompt_ids(
                self.tokenizer, check_prompt(prompt), model.start_ids, parse_specials=parse_specials
            )
            refuse_misfit("generate", self.tokenizer, begun, model.spec.embedding.vocab_size)
        else:
            begun, is_text = check_ids(ids, model.spec.embedding.vocab_size), True
        self.continuation = Continuation(prompt_ids=begun)
        self._parts: list[str] = []
        self._n_shown = 0
        self._matcher = StopMatcher(stops)
        self._decoder: StreamDecoder | None = None
        self._stop_ids: set[int] = set()
        if self.tokenizer is not None:
            n_known, holes = self.tokenizer.vocab_size, set(gaps(self.tokenizer))
            readable = [i for i in begun if i < n_known and i not in holes]  # ids given by hand may be anything
            self._decoder = StreamDecoder(self.tokenizer, after=readable if is_text else [])
            self._stop_ids = {self.tokenizer.specials[stop] for stop in stops if stop in self.tokenizer.specials}

    def news(self) -> str:
        """The text that may be shown since this was asked for the last time."""
        parts, self._n_shown = self._parts[self._n_shown :], len(self._parts)
        return "".join(parts)

    @property
    def text(self) -> str | None:
        """The text of the continuation as far as it may be shown; None without a tokenizer."""
        return None if self.tokenizer is None else "".join(self._parts)

    def take(self, token_id: int) -> bool:
        """Takes one more id in; True when it completes a stop string."""
        if self._decoder is not None:
            self._parts.append(self._matcher.feed(self._decoder.feed(token_id)))
        return self._matcher.found is not None or token_id in self._stop_ids

    def close(self) -> None:
        """Lets out what was held back: half a character, or the beginning of a stop string that did not come."""
        if self._decoder is not None:
            self._parts += [self._matcher.feed(self._decoder.finish()), self._matcher.finish()]
            self._decoder = None
        if self._matcher.found is not None:
            self.continuation.stopped = "stop"

    def values(self) -> dict[str, Any]:
        """What came of it, as the values of a Result.

        `ids` and `logprobs` hold every token drawn but an end token, those that spell a stop string included; `text` is
        the text of these ids up to the stop string, which it leaves out.
        """
        made = self.continuation
        found = (made.prompt_ids, made.ids, self.text, made.logprobs, made.stopped or "length", made.n_slides)
        return dict(zip(VALUES, found, strict=True))


def end_of(model: Transformer) -> int | list[int] | None:
    """The id that ends a text, or several: what the model's file names, else the tokenizer's own end."""
    named: int | list[int] | None = (model.special_ids or {}).get("eos_token_id")
    if named is not None or model.tokenizer is None:
        return named
    end: int | None = model.tokenizer.end_id
    return end


def write(
    model: Transformer,
    writings: Sequence[Writing],
    *,
    n_tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    past_context: PastContext = "slide",
    observe: Observe | None = None,
    lookup: int = 0,
) -> Iterator[list[str]]:
    """Lets texts grow together, and gives what may be shown of each after every step; the last step closes them.

    Raises: as `stream_ids` does.
    """
    tokenizer = writings[0].tokenizer if writings else None
    steps = stream_ids(
        model,
        [writing.continuation for writing in writings],
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=seeds,
        n_known=None if tokenizer is None else tokenizer.vocab_size,
        gaps=() if tokenizer is None else gaps(tokenizer),
        end_id=end_of(model),
        past_context=past_context,
        ends_at=lambda row, token_id: writings[row].take(token_id),
        observe=observe,
        lookup=lookup,
    )
    for _ in steps:
        yield [writing.news() for writing in writings]
    for writing in writings:
        writing.close()
    yield [writing.news() for writing in writings]


def write_all(
    model: Transformer,
    writings: Sequence[Writing],
    *,
    n_tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    past_context: PastContext = "slide",
    lookup: int = 0,
) -> None:
    """Writes any number of texts to their ends, some at a time: the company that a text has changes nothing in it."""
    for first in range(0, len(writings), MOST_TOGETHER):
        some = slice(first, first + MOST_TOGETHER)
        for _ in write(
            model,
            writings[some],
            n_tokens=n_tokens,
            sampling=sampling,
            seeds=seeds[some],
            past_context=past_context,
            lookup=lookup,
        ):
            pass


def table_of(
    requests: Sequence[tuple[str, int]], writings: Sequence[Writing], columns: Sequence[str] | None = None
) -> Result:
    """Many texts as one table, a row each: `prompt`, `seed`, and the keys of `Writing.values`; or some columns of it."""
    rows = [
        {"prompt": prompt, "seed": seed} | writing.values()
        for (prompt, seed), writing in zip(requests, writings, strict=True)
    ]
    names = columns if columns is not None else ("prompt", "seed", *VALUES)
    return Result(
        name="samples", tables={"samples": Table(columns={name: [row[name] for row in rows] for name in names})}
    )


def continue_text(
    model: Transformer,
    prompt: str = "",
    *,
    n_tokens: int,
    sampling: Sampling,
    seed: int,
    past_context: PastContext = "slide",
    stops: Sequence[str] | str = (),
    ids: Any = None,
    lookup: int = 0,
    parse_specials: bool = False,
) -> Result:
    """Continues one text; see `Writing.values`. Raises: InputError when the model has no tokenizer."""
    writing = Writing(model, prompt, ids=ids, stops=stops, parse_specials=parse_specials)
    write_all(
        model,
        [writing],
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=[seed],
        past_context=past_context,
        lookup=lookup,
    )
    return Result(name="sample", values=writing.values())


def tokenizer_of(model: Transformer) -> Tokenizer:
    """The model's tokenizer. Raises: InputError when whoever loaded the model knew of none."""
    if model.tokenizer is None:
        raise InputError(
            "this model has no tokenizer, so text has no ids; presets have none, and in or beside other models none was "
            "found. Name one with --tokenizer FILE: a tokenizer's file, or a run or folder that has one"
        )
    tokenizer: Tokenizer = model.tokenizer
    return tokenizer
