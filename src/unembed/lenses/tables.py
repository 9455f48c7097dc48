"""The lens's numbers as a Result: one row a layer and position, for the picture, and the best tokens of each.

A number stands at [batch, layer, pos], the best tokens at [batch, layer, pos, rank]; a single sequence has no batch
column. The next file to read is agreement.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from unembed.results import Picture, Table

Numbers = dict[str, np.ndarray]
# In the order in which they are shown, with their units.
MATRICES = {
    "entropy_nats": "nats",
    "kl_to_final_nats": "nats",
    "js_to_final_nats": "nats",
    "tv_to_final": None,
    "target_rank": None,
    "target_logit": "nats",
    "target_logprob": "nats",
    "target_probability": None,
    "cross_entropy_nats": "nats",
    "logsumexp_nats": "nats",
    "agrees": None,
}
MOST_PANELS = 8


def shown_matrices(found: Numbers) -> list[str]:
    """The names of the numbers that there are, in the order in which they are shown."""
    return [name for name in MATRICES if name in found]


def texts_of(ids: Int[Tensor, "..."], texts: Sequence[str] | None) -> list[Any]:
    """Texts in the shape of the ids; null where there is none."""

    def named(item: Any) -> Any:
        if isinstance(item, list):
            return [named(one) for one in item]
        return None if texts is None or item >= len(texts) else texts[item]

    return [named(item) for item in ids.tolist()]


def _places(shape: Sequence[int], is_single: bool, layers: Sequence[float]) -> Numbers:
    """The columns that say where a row stands, for arrays [batch, layer, pos] laid out flat."""
    batch, layer, position = (axis.ravel() for axis in np.indices(shape[:3]))
    return ({} if is_single else {"batch": batch}) | {"layer": np.asarray(layers)[layer], "position": position}


def lens_table(
    ids: Int[Tensor, "batch pos"],
    found: Numbers,
    texts: Sequence[str] | None,
    is_single: bool,
    layers: Sequence[float],
) -> Table:
    """Every statistic of a layer and position in one row; where there is no text, the id stands for it."""

    def shown(index: int) -> str:
        return str(index) if texts is None or index >= len(texts) else texts[index]

    shape = (ids.shape[0], len(layers), ids.shape[1])
    columns: dict[str, Any] = dict(_places(shape, is_single, layers))
    columns["token"] = [shown(i) for row in ids.tolist() for _ in layers for i in row]
    columns |= {name: found[name].reshape(-1) for name in shown_matrices(found)}
    if "top_ids" in found:
        n_top = found["top_ids"].shape[-1]
        best, shares = found["top_ids"].reshape(-1, n_top), found["top_probabilities"].reshape(-1, n_top)
        columns["text"] = [shown(row[0]) for row in best.tolist()]
        columns["probability"] = shares[:, 0]
        columns["top"] = [
            [[shown(i), share] for i, share in zip(row, part, strict=True)]
            for row, part in zip(best.tolist(), shares.tolist(), strict=True)
        ]
    return Table(columns=columns, units={name: unit for name, unit in MATRICES.items() if unit and name in columns})


def top_table(found: Numbers, texts: Sequence[str] | None, is_single: bool, layers: Sequence[float]) -> Table:
    """The best ids of each layer and position with their texts and probabilities, as lists in a row."""
    n_top = found["top_ids"].shape[-1]
    best = found["top_ids"].reshape(-1, n_top).tolist()
    return Table(
        columns={
            **_places(found["top_ids"].shape, is_single, layers),
            "ids": best,
            "texts": [[None if texts is None else texts[i] for i in row] for row in best],
            "probabilities": found["top_probabilities"].reshape(-1, n_top).tolist(),
        }
    )


def pictures(lens: Table, n_sequences: int) -> tuple[Picture, ...]:
    """A grid, one panel a sequence; none for many sequences, or when nobody asked for the best tokens."""
    if "probability" not in lens.columns or n_sequences > MOST_PANELS:
        return ()
    hints = ("token", "top", "entropy_nats", "kl_to_final_nats")
    return (
        Picture(
            key="lens",
            kind="grid",
            table="lens",
            x="position",
            x_text="token",
            y="layer",
            color="probability",
            text="text",
            facet="batch" if "batch" in lens.columns else None,
            tooltip=tuple(name for name in hints if name in lens.columns),
        ),
    )
