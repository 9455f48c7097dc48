"""The logit lens: the final norm and the unembedding, applied to the residual stream after every block.

The stream has one width from the embedding to the end, so the model's own head can read any of it. It was trained for the
last layer only: what it says of an early one is a clue, not the model's belief, and every result says so. The reading of
the last layer must equal the model's logits; that identity is measured on each call, against a forward of its own.
Source: nostalgebraist 2020, "interpreting GPT: the logit lens". The next file to read is tables.py, where the numbers
become a result.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.errors import UsageError
from unembed.lenses.tables import MATRICES, Numbers, lens_table, pictures, texts_of, top_table
from unembed.model.taps import Recorder
from unembed.model.transformer import Transformer
from unembed.results import Result

STATISTICS = ("top", "entropy", "kl_to_final", "target", "logsumexp")
# Scores are made for so many numbers at once; a whole text by a whole vocabulary by all layers need not fit in memory.
NUMBERS_AT_ONCE = 2**24


@torch.no_grad()
def logit_lens(
    model: Transformer,
    ids: Sequence[int] | Sequence[Sequence[int]] | Tensor,
    *,
    texts: Sequence[str] | None = None,
    n_top: int = 5,
    statistics: Sequence[str] = STATISTICS,
) -> Result:
    """Reads the stream before the first block (layer 0) and after each block (layers 1 to n_layers).

    `ids` are one sequence, [pos], or several of one length, [batch, pos]. `texts` holds the text of every id that the
    tokenizer knows: later rows of the table are padding and left out of all distributions. Without it every row counts
    and texts are null.

    Values, as arrays [layer, pos], or [batch, layer, pos] for several sequences: `entropy_nats`; `kl_to_final_nats`, the
    divergence KL(final || layer); `target_rank` and `target_logprob` of the token that really came next (rank from 1;
    null at the last position; a masked model has the token itself as its target); `logsumexp_nats` of the scores. Also
    `layers`, `tokens`, and `identity_error`, the largest difference between the last layer's reading and the model's
    logits. Table `top`: the n_top best ids of a layer and position with texts and probabilities, a row each. Table
    `lens`: all of it in one row a layer and position, for the picture. Several sequences have a column `batch`.
    A note says where a sequence is longer than the context that the model was trained with.
    Raises: UsageError for an unknown statistic or ids that are no sequence; ShapeError for ids without a row.
    """
    _check(statistics, n_top)
    batch = _as_batch(ids)
    is_single = batch.ndim == 1
    batch = (batch[None] if is_single else batch).to(model.embed.table.device)
    vocab_size = model.spec.embedding.vocab_size
    n_known = vocab_size if texts is None else min(len(texts), vocab_size)
    is_long = batch.shape[1] > model.spec.context_length
    streams = _streams(model, batch)
    found = _read(model, streams, _targets(model, batch, n_known), n_known, min(n_top, n_known), statistics)
    values: dict[str, Any] = {
        "layers": list(range(len(streams))),
        "tokens": texts_of(batch[0] if is_single else batch, texts),
        "identity_error": _identity_error(model, streams[-1], batch),
    }
    for name in MATRICES:
        if name in found:
            values[name] = found[name][0] if is_single else found[name]
    tables = {"lens": lens_table(batch, found, texts, is_single)}
    if "top" in statistics:
        tables["top"] = top_table(found, texts, is_single)
    return Result(
        name="lens",
        tables=tables,
        values=values,
        notes=("lens_is_a_clue", *(["text_is_longer_than_the_context"] if is_long else [])),
        pictures=pictures(tables["lens"], batch.shape[0]),
    )


def _check(statistics: Sequence[str], n_top: int) -> None:
    if unknown := [name for name in statistics if name not in STATISTICS]:
        raise UsageError(f"lens: no statistic is named {unknown[0]!r}; there are {', '.join(STATISTICS)}")
    if n_top < 1:
        raise UsageError(f"lens: top is {n_top}; it must be at least 1")


def _as_batch(ids: Sequence[int] | Sequence[Sequence[int]] | Tensor) -> Int[Tensor, "..."]:
    try:
        batch = torch.as_tensor(ids)
    except (ValueError, TypeError) as error:
        raise UsageError(f"lens: ids are no [pos] or [batch, pos] of one length each: {error}") from error
    if batch.ndim not in (1, 2) or not batch.numel() or batch.is_floating_point() or batch.dtype == torch.bool:
        raise UsageError(
            f"lens: ids are {list(batch.shape)} of {batch.dtype}; give at least one id, as whole numbers, in the shape "
            "[pos] or [batch, pos]"
        )
    return batch.long()


def _streams(model: Transformer, ids: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos d_model"]]:
    """The residual stream before the first block and after each."""
    recorder = Recorder(["blocks.0.resid_pre", "blocks.*.resid_post"] if model.spec.n_layers else [])
    resid = model.hidden(ids, tap=recorder)
    return list(recorder.values.values()) or [resid]


def _targets(model: Transformer, ids: Int[Tensor, "batch pos"], n_known: int) -> Int[Tensor, "batch pos"]:
    """The id that each position is held against; -1 where there is none."""
    following = ids.roll(-1, dims=1) if model.spec.is_causal else ids.clone()
    if model.spec.is_causal:
        following[:, -1] = -1
    return following.masked_fill(following >= n_known, -1)


def _read(
    model: Transformer,
    streams: list[Float[Tensor, "batch pos d_model"]],
    targets: Int[Tensor, "batch pos"],
    n_known: int,
    n_top: int,
    statistics: Sequence[str],
) -> Numbers:
    """Every statistic as an array [batch, layer, pos], the best ids and probabilities as [batch, layer, pos, rank]."""
    n_batch, n_pos = targets.shape
    flat = [stream.flatten(0, 1) for stream in streams]
    step = max(1, NUMBERS_AT_ONCE // model.spec.embedding.vocab_size)
    pieces: dict[str, list[list[Tensor]]] = {}
    for start in range(0, n_batch * n_pos, step):
        wanted = targets.flatten()[start : start + step]
        final = _scores(model, flat[-1][start : start + step], n_known).log_softmax(-1)
        for layer, stream in enumerate(flat):
            scores = _scores(model, stream[start : start + step], n_known)
            for name, value in _statistics(scores, final, wanted, n_top, statistics).items():
                pieces.setdefault(name, [[] for _ in streams])[layer].append(value)
    arrays = {}
    for name, layers in pieces.items():
        stacked = torch.stack([torch.cat(layer) for layer in layers])  # [layer, batch * pos, ...]
        shaped = stacked.reshape(len(layers), n_batch, n_pos, *stacked.shape[2:])
        array = shaped.transpose(0, 1).double().cpu().numpy()
        arrays[name] = array.astype(np.int64) if name == "top_ids" else array
    for name in ("target_rank", "target_logprob"):
        if name in arrays:
            arrays[name] = _with_null(arrays[name], targets.cpu().numpy()[:, None, :] < 0, whole=name == "target_rank")
    return arrays


def _statistics(
    scores: Float[Tensor, "rows vocab"],
    final: Float[Tensor, "rows vocab"],
    targets: Int[Tensor, " rows"],
    n_top: int,
    statistics: Sequence[str],
) -> dict[str, Tensor]:
    """One layer's numbers for some positions. Local axis: rows, positions of all sequences one after the other."""
    log_probs = scores.log_softmax(-1)
    probs = log_probs.exp()
    made = {}
    if "top" in statistics:
        made["top_probabilities"], made["top_ids"] = probs.topk(n_top, dim=-1)
    if "entropy" in statistics:
        made["entropy_nats"] = -(probs * log_probs).sum(-1)
    if "kl_to_final" in statistics:
        made["kl_to_final_nats"] = (final.exp() * (final - log_probs)).sum(-1)
    if "target" in statistics:
        logprob = log_probs.gather(-1, targets.clamp(min=0)[:, None])
        made["target_rank"] = 1 + (log_probs > logprob).sum(-1)
        made["target_logprob"] = logprob[:, 0]
    if "logsumexp" in statistics:
        made["logsumexp_nats"] = scores.logsumexp(-1)
    return made


def _scores(model: Transformer, stream: Float[Tensor, "rows d_model"], n_known: int) -> Float[Tensor, "rows vocab"]:
    scores = model.unembed(stream[None])[0, :, :n_known]
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def _identity_error(
    model: Transformer, last: Float[Tensor, "batch pos d_model"], ids: Int[Tensor, "batch pos"]
) -> float:
    """How far the last layer's reading lies from the logits of a forward that nobody looked into."""
    step = max(1, NUMBERS_AT_ONCE // (ids.shape[1] * model.spec.embedding.vocab_size))
    errors = [
        (model.unembed(last[i : i + step]) - model(ids[i : i + step])).abs().max() for i in range(0, ids.shape[0], step)
    ]
    return float(torch.stack(errors).max())


def _with_null(values: np.ndarray, is_absent: np.ndarray, *, whole: bool) -> np.ndarray:
    out = (values.astype(np.int64) if whole else values).astype(object)
    out[np.broadcast_to(is_absent, out.shape)] = None
    return out
