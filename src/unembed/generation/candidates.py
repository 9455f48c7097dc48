"""What a model could have written instead: for every draw the candidates, what cut each of them, and which was drawn.

The next file to read is ../lenses/logit_lens.py, which asks the same of every layer.
"""

from collections.abc import Sequence
from typing import Any

import torch

from unembed.errors import UsageError
from unembed.generation.checks import PastContext
from unembed.generation.decode import Draw
from unembed.generation.sampling import Sampling
from unembed.generation.texts import Writing, write
from unembed.model.transformer import Transformer
from unembed.results import Result, Table
from unembed.tokenizers.base import placeholder

CANDIDATE_COLUMNS = ("step", "rank", "id", "token", "logit", "logprob", "probability", "rule", "drawn")
STEP_COLUMNS = ("step", "id", "token", "logprob", "probability", "kept", "kept_mass")


def look(
    model: Transformer,
    writing: Writing,
    *,
    n_top: int,
    n_tokens: int,
    sampling: Sampling,
    seed: int,
    past_context: PastContext = "slide",
    lookup: int = 0,
) -> Result:
    """Lets a text grow as `write` does, and tables what was possible at each of its draws.

    `candidates` has a row for each of the n_top best rows of the table, and for the id drawn wherever it stands. `rank`
    counts from 1 by the score after the repetition penalty, rows that no token has included. `logit` is the model's own,
    `logprob` that of the unfiltered distribution over the ids the tokenizer knows, `probability` what was drawn with. `rule`
    is `kept`, or what cut the id: `unknown`, `greedy`, `top_k`, `top_p`, `min_p`, `zero` (too small to hold).
    `steps` has a row for each draw: how many ids were kept, and their share of the unfiltered distribution. An end token
    that was drawn has its rows, though it is not among the ids. Raises: UsageError, InputError as generation does.
    """
    found = _Tables(writing, check_top(n_top))
    steps = write(
        model,
        [writing],
        n_tokens=n_tokens,
        sampling=sampling,
        seeds=[seed],
        past_context=past_context,
        observe=found.add,
        lookup=lookup,
    )
    for _ in steps:
        pass
    return Result(name="candidates", tables=found.tables(), values=writing.values())


def check_top(n_top: Any) -> int:
    """Gives how many candidates to list. Raises: UsageError."""
    if isinstance(n_top, bool) or not isinstance(n_top, int) or n_top < 1:
        raise UsageError(f"top is {n_top!r}; it must be at least 1, a whole number: so many candidates are listed")
    return n_top


class _Tables:
    """Gathers draws as the rows of two tables."""

    def __init__(self, writing: Writing, n_top: int) -> None:
        self._tokenizer, self._n_top = writing.tokenizer, n_top
        self._rows: list[tuple[Any, ...]] = []
        self._steps: list[tuple[Any, ...]] = []

    def add(self, draw: Draw) -> None:
        step, found = len(self._steps), draw.filtered
        logprobs = draw.known.log_softmax(-1)
        # What no token has takes no part in the draw; here it stands where its own score would have put it.
        ranked = torch.where(draw.is_known, found.scores, draw.logits.double())
        order = ranked.sort(descending=True, stable=True).indices.tolist()
        rank_of = {token_id: rank for rank, token_id in enumerate(order, start=1)}
        shown = order[: self._n_top]
        for token_id in shown if draw.chosen in shown else [*shown, draw.chosen]:
            is_known = bool(draw.is_known[token_id])
            self._rows.append(
                (
                    step,
                    rank_of[token_id],
                    token_id,
                    self._text(token_id),
                    float(draw.logits[token_id]),
                    float(logprobs[token_id]),
                    float(found.probs[token_id]),
                    found.rule(token_id) if is_known else "unknown",
                    token_id == draw.chosen,
                )
            )
        kept = found.probs > 0
        self._steps.append(
            (
                step,
                draw.chosen,
                self._text(draw.chosen),
                float(logprobs[draw.chosen]),
                float(found.probs[draw.chosen]),
                int(kept.sum()),
                float(logprobs[kept].exp().sum()),
            )
        )

    def tables(self) -> dict[str, Table]:
        """The two tables, empty ones when nothing was drawn."""
        units = {"logit": "nats", "logprob": "nats"}
        return {
            "candidates": _table(CANDIDATE_COLUMNS, self._rows, units),
            "steps": _table(STEP_COLUMNS, self._steps, {"logprob": "nats"}),
        }

    def _text(self, token_id: int) -> str | None:
        if self._tokenizer is None:
            return None
        return self._tokenizer.token_text(token_id) if token_id < self._tokenizer.vocab_size else placeholder(token_id)


def _table(names: Sequence[str], rows: Sequence[tuple[Any, ...]], units: dict[str, str]) -> Table:
    return Table(columns={name: [row[i] for row in rows] for i, name in enumerate(names)}, units=units)
