"""The part of each text that the model sees now, and the cache that holds all of it but the newest tokens.

Prompts of unequal length stand side by side, padded on the left. When a text fills the model's context, the stated rule
applies: `slide` reads its last three quarters again as a fresh text and goes on, `stop` ends it. A single text may be
helped by guesses (lookup.py): several tokens go through one forward, and what the model says after each is kept for as long
as the guesses come true. The next file to read is weights/packing.py.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.generation.checks import PastContext
from unembed.generation.continuation import Continuation
from unembed.generation.lookup import Lookup
from unembed.model.kv_cache import KvCache
from unembed.model.transformer import Transformer

# Kernels for one row and for many add in another order: in float32 scores differ by some 1e-6 of the largest, and this is
# 1.5e-5. Two best scores that are nearer than that are computed again, row by row.
_NEAR = 128


class Window:
    """Gives the scores for the next token of each text; a model that cannot have a cache reads all again for each token."""

    def __init__(
        self,
        model: Transformer,
        texts: Sequence[Continuation],
        n_tokens: int,
        past_context: PastContext,
        n_guesses: int = 0,
    ) -> None:
        self._model, self._texts, self._n_tokens, self._past_context = model, texts, n_tokens, past_context
        self._context_length = model.spec.context_length
        self._starts = [0] * len(texts)
        self._cache: KvCache | None = None
        self._n_guesses = n_guesses if len(texts) == 1 and model.can_cache else 0
        self._lookup = Lookup()
        self._known: Tensor | None = None  # scores after each guess that is still possible
        self._guessed: list[int] = []
        self._rough_from: int | None = None  # the first slot of the cache that a forward over guesses has filled

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
        if self._n_guesses and (known := self._after_guesses(self._texts[0], self._cache)) is not None:
            return known
        return self._step([[text.newest_id()] for text in self._texts])

    @torch.no_grad()
    def certain_logits(
        self, logits: Float[Tensor, "batch vocab"], best: Float[Tensor, "..."]
    ) -> Float[Tensor, "batch vocab"]:
        """The scores as they would be without guesses, where the two `best` ones are too near to tell; else as they are.

        What forwards over guesses left in the cache is then computed again, a token at a time, as without guesses: each
        token once at most, however often this is asked.
        """
        cache, begin = self._cache, self._rough_from
        if cache is None or begin is None:
            return logits
        near = _NEAR * torch.finfo(logits.dtype).eps * float(logits.abs().max())
        if len(best) > 1 and float(best[0] - best[1]) > near:
            return logits
        seen = self._seen(self._texts[0])
        self._known, self._rough_from, cache.length = None, None, begin
        for one in seen[begin:]:
            logits = self._step([[one]])
        return logits

    def _after_guesses(self, text: Continuation, cache: KvCache) -> Float[Tensor, "batch vocab"] | None:
        """What a forward over guesses has found or finds now; None where there is nothing to guess."""
        if self._known is not None and self._guessed and self._guessed[0] == text.newest_id():
            self._guessed, self._known = self._guessed[1:], self._known[1:]
            cache.length += 1
            text.n_guessed_right += 1
            return self._known[:1]
        self._known = None
        # room in the cache, in the context, and among the tokens that are still wanted
        most = min(self._n_guesses, cache.capacity - cache.length - 1, self._n_tokens - len(text.ids) - 1)
        guesses = self._lookup.guesses(text.prompt_ids + text.ids, most) if most > 0 else []
        if not guesses:
            return None
        length = cache.length
        ids = torch.tensor([[text.newest_id(), *guesses]], device=self._model.embed.table.device)
        logits: Tensor = self._model.unembed(self._model.hidden(ids, cache=cache))[0].cpu()
        text.n_forwards += 1
        text.n_guessed += len(guesses)
        self._rough_from = length if self._rough_from is None else self._rough_from
        # only the newest token is certain to stay; each guess that comes true moves the cache on
        cache.length = length + 1
        self._guessed, self._known = guesses, logits
        return logits[:1]

    def _visible_length(self, row: int) -> int:
        text = self._texts[row]
        return len(text.prompt_ids) + len(text.ids) - self._starts[row]

    def _seen(self, text: Continuation) -> list[int]:
        return (text.prompt_ids + text.ids)[self._starts[0] :]

    def _read_afresh(self) -> Float[Tensor, "batch vocab"]:
        # a text that has ended only keeps the batch's shape: one token of it will do
        views = [
            (text.prompt_ids + text.ids)[self._starts[row] if text.stopped is None else -1 :]
            for row, text in enumerate(self._texts)
        ]
        longest = max(map(len, views))
        ids = [[0] * (longest - len(view)) + view for view in views]
        mask = torch.tensor([[False] * (longest - len(view)) + [True] * len(view) for view in views])
        table = self._model.embed.table
        self._known, self._rough_from = None, None
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
        return self._step(ids, None if bool(mask.all()) else mask)

    def _step(self, rows: Sequence[Sequence[int]], mask: Tensor | None = None) -> Float[Tensor, "batch vocab"]:
        device = self._model.embed.table.device
        mask = None if mask is None else mask.to(device)
        for text in self._texts:
            text.n_forwards += text.stopped is None
        resid = self._model.hidden(torch.tensor(rows, device=device), mask=mask, cache=self._cache)
        return self._model.unembed(resid[:, -1:])[:, 0].cpu()
