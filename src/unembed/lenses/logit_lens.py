"""The logit lens: the final norm and the unembedding, applied to the residual stream after every block.

The stream has one width from the embedding to the end, so the model's own head can read any of it. It was trained for the
last layer only: what it says of an early one is a clue, not the model's belief, and every result says so. The reading of
the last layer must equal the model's logits; that identity is measured on each call. Source: nostalgebraist 2020,
"interpreting GPT: the logit lens". The next file to read is ../geometry/projections.py.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import UsageError
from unembed.model.taps import Recorder
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table


@torch.no_grad()
def logit_lens(
    model: Transformer,
    ids: Sequence[int],
    token_texts: Sequence[str],
    *,
    texts_of_vocabulary: Sequence[str],
    n_top: int = 5,
) -> Result:
    """Reads the stream before the first block (layer 0) and after each block (layers 1 to n_layers).

    Tables: `lens`, a row per layer and position: the n_top best tokens with their probabilities, the entropy in nats, the
    divergence KL(final || layer) in nats, and the rank (from 1) and log-probability of the token that really came next
    (null at the last position). Value `identity_error` is the largest difference between the last layer's reading and the
    model's logits. Ids without a text in `texts_of_vocabulary` (padding rows of the table) are left out.
    Raises: UsageError if ids and texts do not belong together.
    """
    if len(ids) != len(token_texts) or not len(ids):
        raise UsageError(
            f"lens: {len(ids)} ids and {len(token_texts)} token texts; give one text for each of at least one id"
        )
    streams, logits = _streams(model, ids)
    n_known = len(texts_of_vocabulary)
    final = _log_probs(model, streams[-1], n_known)
    following = torch.tensor(ids[1:], device=final.device)
    rows: dict[str, list[object]] = {name: [] for name in _COLUMNS}
    for layer, stream in enumerate(streams):
        log_probs = _log_probs(model, stream, n_known)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(-1)
        divergence = (final.exp() * (final - log_probs)).sum(-1)
        best = probs.topk(min(n_top, n_known), dim=-1)
        target = log_probs[:-1].gather(-1, following[:, None])
        ranks = 1 + (log_probs[:-1] > target).sum(-1)
        for position, token in enumerate(token_texts):
            texts = [texts_of_vocabulary[i] for i in best.indices[position].tolist()]
            shares = best.values[position].tolist()
            is_last = position == len(ids) - 1
            cells = [layer, position, token, texts[0], shares[0], float(entropy[position]), float(divergence[position])]
            cells += [None if is_last else int(ranks[position]), None if is_last else float(target[position, 0])]
            cells += [", ".join(f"{text} {share:.2f}" for text, share in zip(texts, shares, strict=True))]
            for name, cell in zip(_COLUMNS, cells, strict=True):
                rows[name].append(cell)
    reading = model.unembed(streams[-1][None])[0]
    return Result(
        name="lens",
        tables={"lens": Table(columns={k: _column(v) for k, v in rows.items()}, units=_UNITS)},
        values={"n_layers": model.spec.n_layers, "identity_error": float((reading - logits).abs().max())},
        notes=("lens_is_a_clue",),
        pictures=(
            Picture(
                key="lens",
                kind="grid",
                table="lens",
                x="position",
                y="layer",
                color="probability",
                text="text",
                tooltip=("token", "top", "entropy_nats", "kl_to_final_nats"),
            ),
        ),
    )


_COLUMNS = (
    "layer",
    "position",
    "token",
    "text",
    "probability",
    "entropy_nats",
    "kl_to_final_nats",
    "target_rank",
    "target_logprob",
    "top",
)
_UNITS = {"entropy_nats": "nats", "kl_to_final_nats": "nats", "target_logprob": "nats"}


def _streams(model: Transformer, ids: Sequence[int]) -> tuple[list[Float[Tensor, "pos d_model"]], Tensor]:
    """The residual stream before the first block and after each, and the model's own logits."""
    recorder = Recorder(["blocks.0.resid_pre", "blocks.*.resid_post"])
    batch = torch.tensor([list(ids)], device=model.embed.table.device)
    resid = model.hidden(batch, tap=recorder)
    streams = [value[0] for value in recorder.values.values()] or [resid[0]]
    return streams, model.unembed(resid)[0]


def _log_probs(model: Transformer, stream: Float[Tensor, "pos d_model"], n_known: int) -> Float[Tensor, "pos vocab"]:
    return model.unembed(stream[None])[0, :, :n_known].float().log_softmax(-1)


def _column(values: list[object]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column if any(v is None or isinstance(v, str) for v in values) else np.asarray(values)
