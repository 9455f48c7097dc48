"""The decoding loop: read the prompts once, then one token at a time, with the keys and values kept in a cache.

Each text has a generator of its own, so a seed gives the same draws alone or in a batch. What the model sees of the texts
is window.py's business, the next file to read.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unembed.errors import UsageError
from unembed.generation.checks import PastContext, check_ids, check_model, check_past_context, check_seeds, check_tokens
from unembed.generation.continuation import Continuation
from unembed.generation.lookup import check_lookup
from unembed.generation.sampling import (
    Filtered,
    Sampling,
    best_two,
    check_sampling,
    draw,
    filtered,
    greedy,
    known_ids,
    known_logits,
    penalised,
)
from unembed.generation.weights.copies import is_rounded
from unembed.generation.window import Window
from unembed.model.transformer import Transformer


@dataclass(frozen=True)
class Draw:
    """One draw, for whoever wants to watch: the model's own scores, what the filters left of them, and the id drawn.

    `known` are the scores as the draw took them, -inf where `is_known` is False: no token has that row.
    """

    row: int
    logits: Float[Tensor, " vocab"]
    known: Float[Tensor, " vocab"]
    is_known: Bool[Tensor, " vocab"]
    filtered: Filtered
    chosen: int


# Called with the text's place in the batch and its new id; True ends that text with `stop`.
EndsAt = Callable[[int, int], bool]
Observe = Callable[[Draw], None]


def generate_ids(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    n_tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    n_known: int | None = None,
    gaps: Sequence[int] = (),
    end_id: int | Collection[int] | None = None,
    past_context: PastContext = "slide",
    ends_at: EndsAt | None = None,
    observe: Observe | None = None,
    lookup: int = 0,
) -> list[Continuation]:
    """Continues each prompt by up to n_tokens ids, or until `end_id` (one or several, not kept) is drawn or `ends_at` says so.

    Ids from n_known on, and the gaps below it, are never drawn. A prompt longer than the context is no error: the rule
    past the context holds for it too. `lookup` > 0 lets a single greedy text guess so many of its next tokens from itself: the
    ids are the same. Raises: UsageError for options that cannot be followed; InputError for an empty prompt, an id without a
    row, or a masked model.
    """
    vocab_size = check_model(model).spec.embedding.vocab_size
    texts = [Continuation(prompt_ids=check_ids(prompt, vocab_size)) for prompt in prompts]
    for _ in stream_ids(
        model,
        texts,
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=seeds,
        n_known=n_known,
        gaps=gaps,
        end_id=end_id,
        past_context=past_context,
        ends_at=ends_at,
        observe=observe,
        lookup=lookup,
    ):
        pass
    return texts


def stream_ids(
    model: Transformer,
    texts: Sequence[Continuation],
    *,
    n_tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    n_known: int | None = None,
    gaps: Sequence[int] = (),
    end_id: int | Collection[int] | None = None,
    past_context: PastContext = "slide",
    ends_at: EndsAt | None = None,
    observe: Observe | None = None,
    lookup: int = 0,
) -> Iterator[list[int | None]]:
    """As generate_ids, one step at a time: fills the texts and yields each step's new id per text, None where it ended."""
    check_sampling(sampling)
    vocab_size = check_model(model).spec.embedding.vocab_size
    for text in texts:
        text.prompt_ids = check_ids(text.prompt_ids, vocab_size)
    n_tokens = check_tokens(n_tokens)
    generators = [torch.Generator().manual_seed(seed) for seed in check_seeds(seeds, len(texts))]
    check_past_context(past_context)
    if n_tokens == 0:
        for text in texts:
            text.stopped = "length"
    ends = set() if end_id is None else {end_id} if isinstance(end_id, int) else set(end_id)
    is_known = known_ids(vocab_size, vocab_size if n_known is None else n_known, gaps)
    window = Window(model, texts, n_tokens, past_context, _checked_lookup(model, sampling, lookup))
    for _ in range(n_tokens):
        logits = window.next_logits()
        if logits is None:
            return
        new: list[int | None] = []
        for row, text in enumerate(texts):
            uniform = float(torch.rand((), generator=generators[row], dtype=torch.float64))
            if text.stopped is not None:
                new.append(None)
                continue
            scores = known_logits(logits[row], is_known)
            seen = torch.tensor(text.prompt_ids + text.ids) if sampling.repetition_penalty is not None else None
            if lookup:
                logits = window.certain_logits(logits, best_two(penalised(scores, sampling, seen)))
                scores = known_logits(logits[row], is_known)
            if sampling.temperature == 0 and observe is None:
                # ranking a whole vocabulary for its first takes as long as half the layers of a small model
                chosen = greedy(penalised(scores, sampling, seen))
            else:
                found = filtered(scores, sampling, seen)
                chosen = draw(found.probs, uniform)
                if observe is not None:
                    observe(Draw(row, logits[row], scores, is_known, found, chosen))
            if chosen in ends:
                text.stopped = "end"
                new.append(None)
                continue
            text.ids.append(chosen)
            text.logprobs.append(float(scores.log_softmax(-1)[chosen]))
            new.append(chosen)
            if ends_at is not None and ends_at(row, chosen):
                text.stopped = "stop"
            elif len(text.ids) == n_tokens:
                text.stopped = "length"
        yield new
        if all(text.stopped is not None for text in texts):
            return


def _checked_lookup(model: Transformer, sampling: Sampling, lookup: int) -> int:
    """How many tokens to guess at once. Raises: UsageError where guessing could change the text."""
    if not check_lookup(lookup):
        return 0
    if sampling.temperature != 0:
        raise UsageError("lookup guesses what greedy decoding will choose; give temperature 0 (--greedy) with it")
    if is_rounded(model):
        raise UsageError(
            "lookup reads several tokens at once, which goes through exact weights; packed ones would choose others. "
            "Take float32 weights with it"
        )
    return lookup
