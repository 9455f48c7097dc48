"""The logit lens: the final norm and the unembedding, applied to the residual stream after every block.

The stream has one width from the embedding to the end, so the model's own head can read any of it. It was trained for the
last layer only: what it says of an early one is a clue, not the model's belief, and every result says so. The reading of
the last layer must equal the model's logits; that identity is measured on each call. Source: nostalgebraist 2020,
"interpreting GPT: the logit lens". Before it: reading.py. The next file to read is tables.py, where the numbers become a
result.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unembed.errors import UsageError, did_you_mean
from unembed.lenses.asking import refuse_broken
from unembed.lenses.measures import STATISTICS, settled
from unembed.lenses.reading import Reading, Translator, read
from unembed.lenses.states import notes_on, take_states
from unembed.lenses.tables import Numbers, lens_table, pictures, shown_matrices, texts_of, top_table
from unembed.lenses.translators import Translators
from unembed.model.spec import TransformerSpec
from unembed.model.transformer import Transformer
from unembed.results import Result

__all__ = ["STATISTICS", "as_batch", "following_ids", "logit_lens"]


@torch.no_grad()
def logit_lens(
    model: Transformer,
    ids: Sequence[int] | Sequence[Sequence[int]] | Tensor,
    *,
    texts: Sequence[str] | None = None,
    n_top: int = 5,
    statistics: Sequence[str] = STATISTICS,
    layers: Sequence[float] | None = None,
    after_attention: bool = False,
    target: int | None = None,
    tuned: Translators | None = None,
) -> Result:
    """Reads the stream before the first block (layer 0) and after each block (layers 1 to n_layers).

    `ids` are one sequence, [pos], or several of one length, [batch, pos]. `texts` holds the text of every id that the
    tokenizer knows: later rows of the table are padding and left out of all distributions. Without it every row counts
    and texts are null. `layers` chooses some (the last is always read); `after_attention` adds the stream inside each
    block, as layers 0.5, 1.5 and so on. `target` is an id to follow at every position; without it each position's target
    is the token that really came next (in a masked model, the token itself). `tuned` reads every layer but the last through
    its translator (tuned_lens.py), and a note says so.

    Values, as arrays [layer, pos], or [batch, layer, pos] for several sequences, those of the chosen statistics:
    `entropy`: `entropy_nats`. `logsumexp`: `logsumexp_nats` of the scores. `kl_to_final`, `js_to_final`, `tv_to_final`:
    `kl_to_final_nats`, the divergence KL(final || layer); `js_to_final_nats`, that of Jensen and Shannon, at most log 2;
    `tv_to_final`, half the sum of absolute differences. `target`: `target_rank` (from 1), `target_logit`,
    `target_logprob`, `target_probability`. `cross_entropy`: `cross_entropy_nats` of the token that really came next.
    `agreement`: `agrees`, whether the best token is the last layer's, and `settled_layer` [pos], from which on it never
    changes again. What has no target (the last position, an id that the tokenizer does not know) is null. Also `layers`,
    `tokens`, and `identity_error`, the largest difference between the last layer's reading and the model's logits. Table
    `top`: the n_top best ids of a layer and position with texts and probabilities, a row each. Table `lens`: all of it
    in one row a layer and position, for the picture. Several sequences have a column `batch`.

    A note says where a sequence is longer than the context that the model was trained with.
    Raises: UsageError for an unknown statistic or layer, ids that are no sequence, or a place that no translator was made
    for; ShapeError for ids without a row; InputError for a model that scores no number.
    """
    vocab_size = model.spec.embedding.vocab_size
    n_known = vocab_size if texts is None else min(len(texts), vocab_size)
    _check(statistics, n_top, target, n_known)
    batch = as_batch(ids)
    is_single = batch.ndim == 1
    batch = (batch[None] if is_single else batch).to(model.embed.table.device)
    states = take_states(model, batch, layers=layers, after_attention=after_attention)
    following = following_ids(model.spec, batch, n_known)
    targets = following if target is None else torch.full_like(batch, target)
    reading = read(
        model,
        states.values.flatten(1, 2),
        statistics=statistics,
        n_top=n_top,
        n_known=n_known,
        targets=targets.flatten(),
        following=following.flatten(),
        translate=None if tuned is None else _through(tuned, states.layers),
    )
    # where the last layer's scores hold no number, so does their difference from themselves
    refuse_broken("lens", torch.tensor(reading.identity_error))
    found = _arrays(reading, targets, following, statistics)
    values: dict[str, Any] = {
        "layers": states.layers,
        "tokens": texts_of(batch[0] if is_single else batch, texts),
        "identity_error": reading.identity_error,
    }
    if target is not None:
        values["target"] = {"id": target, "text": None if texts is None else texts[target]}
    values |= {name: found[name][0] if is_single else found[name] for name in shown_matrices(found)}
    if "agreement" in statistics:
        best = found["best_ids"]
        settles = [settled(torch.from_numpy(one.T), states.layers) for one in best]
        values["settled_layer"] = settles[0] if is_single else settles
    tables = {"lens": lens_table(batch, found, texts, is_single, states.layers)}
    if "top" in statistics:
        tables["top"] = top_table(found, texts, is_single, states.layers)
    is_long = batch.shape[1] > model.spec.context_length
    return Result(
        name="lens",
        tables=tables,
        values=values,
        notes=(
            "lens_is_a_clue" if tuned is None else "lens_is_tuned",
            *notes_on(model.spec),
            *(["text_is_longer_than_the_context"] if is_long else []),
        ),
        pictures=pictures(tables["lens"], batch.shape[0]),
    )


def _through(tuned: Translators, labels: Sequence[float]) -> Translator:
    """The translators by layer, for states that may be those of some layers alone. Raises: UsageError."""
    if any(label % 1 for label in labels):
        raise UsageError("lens: a tuned lens has translators after whole blocks alone; leave after_attention out")

    def translate(places: Sequence[int], states: Tensor) -> Tensor:
        return tuned([int(labels[place]) for place in places], states)

    return translate


def as_batch(ids: Sequence[int] | Sequence[Sequence[int]] | Tensor) -> Int[Tensor, "..."]:
    """Ids as a tensor, [pos] or [batch, pos]. Raises: UsageError for anything else."""
    try:
        batch = torch.as_tensor(ids)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"lens: ids are no [pos] or [batch, pos] of one length each: {error}") from error
    if batch.ndim not in (1, 2) or not batch.numel() or batch.is_floating_point() or batch.dtype == torch.bool:
        raise UsageError(
            f"lens: ids are {list(batch.shape)} of {batch.dtype}; give at least one id, as whole numbers, in the shape "
            "[pos] or [batch, pos]"
        )
    return batch.long()


def following_ids(spec: TransformerSpec, ids: Int[Tensor, "batch pos"], n_known: int) -> Int[Tensor, "batch pos"]:
    """What really stood where each position guesses: the next id, in a masked model its own; -1 where there is none."""
    following = ids.roll(-1, dims=1) if spec.is_causal else ids.clone()
    if spec.is_causal:
        following[:, -1] = -1
    return following.masked_fill(following >= n_known, -1)


def _check(statistics: Sequence[str], n_top: int, target: int | None, n_known: int) -> None:
    if unknown := [name for name in statistics if name not in STATISTICS]:
        there_are = f"there are {', '.join(STATISTICS)}"
        hint = did_you_mean(unknown[0], STATISTICS, "", n=1, cutoff=0.6)
        raise UsageError(f"lens: no statistic is named {unknown[0]!r}; {there_are}. {hint}".rstrip(". ").rstrip())
    if n_top < 1:
        raise UsageError(f"lens: top is {n_top}; it must be at least 1")
    if target is not None and not 0 <= target < n_known:
        raise UsageError(f"lens: the target is id {target}, but ids run from 0 to {n_known - 1}")


def _arrays(
    reading: Reading,
    targets: Int[Tensor, "batch pos"],
    following: Int[Tensor, "batch pos"],
    statistics: Sequence[str],
) -> Numbers:
    """The numbers as arrays [batch, layer, pos], the best tokens with a rank more; null where there is no target."""
    n_batch, n_pos = targets.shape

    def shaped(value: Tensor) -> np.ndarray:
        array: np.ndarray = (
            value.reshape(value.shape[0], n_batch, n_pos, *value.shape[2:]).transpose(0, 1).cpu().numpy()
        )
        return array if value.dtype == torch.int64 else array.astype(np.float64)

    raw = {name: shaped(value) for name, value in reading.numbers.items()}
    has_target, has_next = (ids.cpu().numpy()[:, None, :] >= 0 for ids in (targets, following))
    made: Numbers = {
        name: raw[name]
        for name in ("entropy_nats", "kl_to_final_nats", "js_to_final_nats", "tv_to_final")
        if name in raw
    }
    if "target" in statistics:
        logprob = raw["target_logit"] - raw["logsumexp_nats"]
        made["target_rank"] = _with_null(raw["target_rank"].astype(np.int64), has_target)
        made["target_logit"] = _with_null(raw["target_logit"], has_target)
        made["target_logprob"] = _with_null(logprob, has_target)
        made["target_probability"] = _with_null(np.exp(logprob), has_target)
    if "cross_entropy" in statistics:
        made["cross_entropy_nats"] = _with_null(raw["logsumexp_nats"] - raw["following_logit"], has_next)
    if "logsumexp" in statistics:
        made["logsumexp_nats"] = raw["logsumexp_nats"]
    if "top" in statistics:
        made["top_ids"] = raw["top_ids"]
        made["top_probabilities"] = np.exp(raw["top_scores"] - raw["logsumexp_nats"][..., None])
    if "agreement" in statistics:
        made["best_ids"] = raw["top_ids"][..., 0]
        made["agrees"] = made["best_ids"] == made["best_ids"][:, -1:]
    return made


def _with_null(values: np.ndarray, is_there: np.ndarray) -> np.ndarray:
    out = values.astype(object)
    out[~np.broadcast_to(is_there, out.shape)] = None
    return out
