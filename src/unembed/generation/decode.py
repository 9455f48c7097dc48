"""The decoding loop: read the prompts once, then one token at a time, with the keys and values kept in a cache.

Prompts of unequal length stand side by side, padded on the left. When a text fills the model's context, the stated rule
applies: `slide` reads its last three quarters again as a fresh text and goes on, `stop` ends it. Each text has a
generator of its own, so a seed gives the same draws alone or in a batch. The next file to read is ../lenses/logit_lens.py.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unembed.generation.checks import PastContext, check_ids, check_model, check_past_context, check_seeds, check_tokens
from unembed.generation.sampling import Filtered, Sampling, check_sampling, draw, filtered, known_ids, known_logits
from unembed.model.kv_cache import KvCache
from unembed.model.transformer import Transformer

Stopped = Literal["length", "end", "context", "stop"]


@dataclass
class Continuation:
    """What was generated after one prompt: ids, natural log-probabilities of the unfiltered distribution, and why it ended.

    The end token is not among the ids; the tokens that spell a stop string are, so the ids are all that was drawn but the
    end. `n_slides` counts how often the context was full and the last three quarters were read again.
    """

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: Stopped | None = None
    n_slides: int = 0

    def newest_id(self) -> int:
        """The last id of prompt and continuation together."""
        return self.ids[-1] if self.ids else self.prompt_ids[-1]


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
) -> list[Continuation]:
    """Continues each prompt by up to n_tokens ids, or until `end_id` (one or several, not kept) is drawn or `ends_at` says so.

    Ids from n_known on, and the gaps below it, are never drawn. A prompt longer than the context is no error: the rule
    past the context holds for it too. Raises: UsageError for options that cannot be followed; InputError for an empty
    prompt, an id without a row, or a masked model.
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
    window = _Window(model, texts, n_tokens, past_context)
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


class _Window:
    """The part of each text that the model sees now, and the cache that holds all of it but the newest tokens.

    A model that cannot have a cache reads all of it again for each token.
    """

    def __init__(
        self, model: Transformer, texts: Sequence[Continuation], n_tokens: int, past_context: PastContext
    ) -> None:
        self._model, self._texts, self._n_tokens, self._past_context = model, texts, n_tokens, past_context
        self._context_length = model.spec.context_length
        self._starts = [0] * len(texts)
        self._cache: KvCache | None = None

    @torch.no_grad()
    def next_logits(self) -> Float[Tensor, "batch vocab"] | None:
        """Scores for the token after each text, or None when all have ended."""
        is_full = [self._visible_length(row) > self._context_length for row in range(len(self._texts))]
        for row, text in enumerate(self._texts):
            if is_full[row] and text.stopped is None and self._past_context == "stop":
                text.stopped = "context"
            elif is_full[row] and text.stopped is None:
                self._starts[row] += self._visible_length(row) - max(1, 3 * self._context_length // 4)
                text.n_slides += 1
                self._cache = None
        if all(text.stopped is not None for text in self._texts):
            return None
        if not self._model.can_cache:
            self._cache = None
        if self._cache is None or self._cache.length == self._cache.capacity:
            return self._read_afresh()
        newest = [[text.newest_id()] for text in self._texts]
        return self._last_logits(torch.tensor(newest), None)

    def _visible_length(self, row: int) -> int:
        text = self._texts[row]
        return len(text.prompt_ids) + len(text.ids) - self._starts[row]

    def _read_afresh(self) -> Float[Tensor, "batch vocab"]:
        # a text that has ended only keeps the batch's shape: one token of it will do
        views = [
            (text.prompt_ids + text.ids)[self._starts[row] if text.stopped is None else -1 :]
            for row, text in enumerate(self._texts)
        ]
        longest = max(map(len, views))
        ids = torch.tensor([[0] * (longest - len(view)) + view for view in views])
        mask = torch.tensor([[False] * (longest - len(view)) + [True] * len(view) for view in views])
        table = self._model.embed.table
        if self._model.can_cache:
            # Room until the longest text is full, when one of them slides or ends and all are read again; or until the
            # last token is made, which comes long before that in a context of 100,000.
            n_left = self._n_tokens - min(len(text.ids) for text in self._texts if text.stopped is None)
            self._cache = KvCache(
                self._model.spec,
                batch=len(views),
                capacity=min(self._context_length, longest + n_left),
                dtype=table.dtype,
                device=table.device,
            )
        return self._last_logits(ids, None if bool(mask.all()) else mask)

    def _last_logits(self, ids: Tensor, mask: Tensor | None) -> Float[Tensor, "batch vocab"]:
        device = self._model.embed.table.device
        mask = None if mask is None else mask.to(device)
        resid = self._model.hidden(ids.to(device), mask=mask, cache=self._cache)
        return self._model.unembed(resid[:, -1:])[:, 0].cpu()
