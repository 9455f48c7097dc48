"""Any vector as wide as the stream, read through the model's head: what a direction says, wherever it was found.

A row of an MLP's output matrix, the difference of two states, a direction that somebody trained: none of them is a layer, so
nothing is held against a last layer. A state is normed on its way, as every state is; a direction has no size of its own, and
`normalises=False` scores it as it is. Before it: logit_lens.py. The next file to read is agreement.py.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import InputError, ShapeError, UsageError
from unembed.lenses.asking import refuse_broken
from unembed.lenses.reading import read
from unembed.model.transformer import Transformer
from unembed.results import Result, Table

STATISTICS = ("top", "entropy", "logsumexp")


@torch.no_grad()
def read_vectors(
    model: Transformer,
    vectors: Float[Tensor, "*rows d_model"],
    *,
    texts: Sequence[str] | None = None,
    n_top: int = 5,
    normalises: bool = True,
) -> Result:
    """Scores vectors with the final norm and the head, or without the norm. Local axis: rows, [d_model] or [n, d_model].

    Table `vectors`, a row each: `vector` (its number), `text` and `probability` of the best token, `top`, `entropy_nats` and
    `logsumexp_nats`. Table `top`: ids, texts, probabilities and scores of the n_top best. Raises: ShapeError for another
    width; UsageError for what is no vector; InputError for numbers that are not finite, the model's or the vectors'.
    """
    try:
        given = torch.as_tensor(vectors)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"lens: vectors are no [d_model] or [n, d_model] of numbers: {error}") from error
    d_model = model.spec.embedding.d_model
    if given.ndim not in (1, 2) or not given.numel() or not given.is_floating_point():
        raise UsageError(
            f"lens: vectors are {list(given.shape)} of {given.dtype}; give numbers in the shape [d_model] or [n, d_model]"
        )
    if given.shape[-1] != d_model:
        raise ShapeError(f"lens: the vectors are {given.shape[-1]} wide, the stream of this model {d_model}")
    if not bool(given.isfinite().all()):
        row = int((~given.reshape(-1, d_model).isfinite().all(1)).nonzero()[0])
        raise InputError(f"lens: vector {row} holds a number that is not finite; give finite ones")
    if n_top < 1:
        raise UsageError(f"lens: top is {n_top}; it must be at least 1")
    table = model.embed.table
    rows = given.to(table).reshape(1, -1, d_model)
    n_known = None if texts is None else len(texts)
    reading = read(
        model,
        rows,
        statistics=STATISTICS,
        n_top=n_top,
        n_known=n_known,
        normalises=normalises,
        checks_identity=normalises,
    )
    refuse_broken("lens", reading.numbers["logsumexp_nats"].abs())
    found = {name: value[0].cpu().numpy() for name, value in reading.numbers.items()}
    ids, scores = found["top_ids"], found["top_scores"].astype(np.float64)
    shares = np.exp(scores - found["logsumexp_nats"].astype(np.float64)[:, None])
    named = [[None if texts is None else texts[i] for i in row] for row in ids.tolist()]
    shown = [
        [str(i) if text is None else text for i, text in zip(*row, strict=True)] for row in zip(ids, named, strict=True)
    ]
    numbers = range(len(ids))
    return Result(
        name="lens_of_vectors",
        tables={
            "vectors": Table(
                columns={
                    "vector": numbers,
                    "text": [row[0] for row in shown],
                    "probability": shares[:, 0],
                    "entropy_nats": found["entropy_nats"].astype(np.float64),
                    "logsumexp_nats": found["logsumexp_nats"].astype(np.float64),
                },
                units={"entropy_nats": "nats", "logsumexp_nats": "nats"},
            ),
            "top": Table(
                columns={
                    "vector": numbers,
                    "ids": ids.tolist(),
                    "texts": named,
                    "probabilities": shares.tolist(),
                    "scores": scores.tolist(),
                }
            ),
        },
        values={"normalises": normalises},
    )
