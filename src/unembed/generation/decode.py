"""The decoding loop: read the prompts once, then one token at a time, with the keys and values kept in a cache.

Prompts of unequal length stand side by side, padded on the left. When a text fills the model's context, the stated rule
applies: `slide` reads its last three quarters again as a fresh text and goes on, `stop` ends it. Each text has a
generator of its own, so a seed gives the same draws alone or in a batch. The next file to read is ../lenses/logit_lens.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import InputError, UsageError
from unembed.generation.sampling import Sampling, check_sampling, draw, known_logits, probabilities
from unembed.model.kv_cache import KvCache
from unembed.model.transformer import Transformer

PastContext = Literal["slide", "stop"]
Stopped = Literal["length", "end", "context"]


@dataclass
class Continuation:
    """What was generated after one prompt: ids, natural log-probabilities of the unfiltered distribution, and why it ended.

    `n_slides` counts how often the context was full and the last three quarters were read again.
    """

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: Stopped | None = None
    n_slides: int = 0


def generate_ids(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    n_tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    n_known: int | None = None,
    end_id: int | None = None,
    past_context: PastContext = "slide",
) -> list[Continuation]:
    """Continues each prompt by up to n_tokens ids, or until `end_id` (which is not kept) is drawn.

    Raises: UsageError for options that cannot be followed; InputError for an empty prompt or a masked model.
    """
    texts = [Continuation(prompt_ids=list(prompt)) for prompt in prompts]
    for _ in stream_ids(
        model,
        texts,
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=seeds,
        n_known=n_known,
        end_id=end_id,
        past_context=past_context,
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
    end_id: int | None = None,
    past_context: PastContext = "slide",
) -> Iterator[list[int | None]]:
    """As generate_ids, one step at a time: fills the texts and yields each step's new id per text, None where it ended."""
    check_sampling(sampling)
    _refuse(model, texts, n_tokens, seeds)
    if n_tokens == 0:
        for text in texts:
            text.stopped = "length"
    n_known = model.spec.embedding.vocab_size if n_known is None else n_known
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    window = _Window(model, texts, past_context)
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
            scores = known_logits(logits[row], n_known)
            seen = torch.tensor(text.prompt_ids + text.ids) if sampling.repetition_penalty is not None else None
            chosen = draw(probabilities(scores, sampling, seen), uniform)
            if chosen == end_id:
                text.stopped = "end"
                new.append(None)
                continue
            text.ids.append(chosen)
            text.logprobs.append(float(scores.log_softmax(-1)[chosen]))
            new.append(chosen)
            if len(text.ids) == n_tokens:
                text.stopped = "length"
        yield new
        if all(text.stopped is not None for text in texts):
            return


class _Window:
    """The part of each text that the model sees now, and the cache that holds all of it but the newest tokens.

    A model that cannot have a cache reads all of it again for each token.
    """

    def __init__(self, model: Transformer, texts: Sequence[Continuation], past_context: PastContext) -> None:
        self._model, self._texts, self._past_context = model, texts, past_context
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
        newest = [[(text.prompt_ids + text.ids)[-1]] for text in self._texts]
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
            # Room until the longest text is full: by then one of them slides or ends, and all are read again.
            self._cache = KvCache(
                self._model.spec,
                batch=len(views),
                capacity=self._context_length,
                dtype=table.dtype,
                device=table.device,
            )
        return self._last_logits(ids, None if bool(mask.all()) else mask)

    def _last_logits(self, ids: Tensor, mask: Tensor | None) -> Float[Tensor, "batch vocab"]:
        device = self._model.embed.table.device
        mask = None if mask is None else mask.to(device)
        resid = self._model.hidden(ids.to(device), mask=mask, cache=self._cache)
        return self._model.unembed(resid[:, -1:])[:, 0].cpu()


def _refuse(model: Transformer, texts: Sequence[Continuation], n_tokens: int, seeds: Sequence[int]) -> None:
    if not model.spec.is_causal:
        raise InputError(
            "generate: this is a masked model, every position sees every other, so it cannot continue a text. "
            "Look into it with the lens instead."
        )
    if n_tokens < 0:
        raise UsageError(f"tokens is {n_tokens}; it must be 0 or more")
    if len(seeds) != len(texts):
        raise UsageError(f"{len(texts)} prompts but {len(seeds)} seeds; give one seed for each prompt")
    if bad_seeds := [seed for seed in seeds if not 0 <= seed < 2**63]:
        raise UsageError(f"seed is {bad_seeds[0]}; it must be 0 or more, and below 2**63")
    vocab_size = model.spec.embedding.vocab_size
    for text in texts:
        if not text.prompt_ids:
            raise InputError("generate: a prompt has no tokens; give some text, or a start token")
        if bad := [i for i in text.prompt_ids if not 0 <= i < vocab_size]:
            raise InputError(f"generate: prompt id {bad[0]} has no row in the table of {vocab_size}")
