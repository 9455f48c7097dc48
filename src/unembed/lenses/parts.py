"""The terms of a score as tables: all of them, those of the heads, whom the heads read, and the largest by name.

Layers and heads are counted from 0, as in a tap's name: layer 3 is `blocks.3`. Before it: attribution.py. The next file to
read is attention_maps.py, what the heads look at.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from unembed.results import Picture, Table

N_STRONGEST = 12
UNITS = {"contribution": "nats"}


class Part(NamedTuple):
    """One term: what wrote it (`attention_head`, `mlp`, `embedding`, ...), where that stands, and how many nats it adds."""

    part: str
    layer: int | None
    head: int | None
    contribution: float

    @property
    def term(self) -> str:
        """A short name: `L3H5` for head 5 of layer 3, `L3 MLP`, and the word itself for what is in no layer."""
        if self.part.endswith("bias"):
            return "biases"
        if self.layer is None:
            return self.part
        return f"L{self.layer}H{self.head}" if self.part == "attention_head" else f"L{self.layer} MLP"


def parts_tables(
    parts: Sequence[Part], sources: Float64[np.ndarray, "layer pos"], texts: Sequence[str]
) -> dict[str, Table]:
    """The tables of an attribution; those without a row are left out."""
    heads = [part for part in parts if part.part == "attention_head"]
    layer, position = (axis.ravel() for axis in np.indices(sources.shape))
    tables = {
        "parts": _table(parts, ("part", "layer", "head", "contribution")),
        "strongest": _strongest(parts),
        "by_token": Table(
            columns={"position": list(range(len(texts))), "token": list(texts), "contribution": sources.sum(0)},
            units=UNITS,
        ),
        "heads": _table(heads, ("layer", "head", "contribution")),
        "sources": Table(
            columns={
                "layer": layer,
                "position": position,
                "token": [texts[p] for p in position.tolist()],
                "contribution": sources.ravel(),
            },
            units=UNITS,
        ),
    }
    return {name: table for name, table in tables.items() if table.n_rows}


def pictures(tables: Mapping[str, Table]) -> tuple[Picture, ...]:
    """The largest parts as bars; heads, and the positions that were read, as grids."""
    found = [Picture(key="attribution", kind="bars", table="strongest", x="contribution", y="term")]
    if "heads" in tables:
        for table, x, x_text in (("heads", "head", None), ("sources", "position", "token")):
            found.append(
                Picture(
                    key=f"attribution_{table}",
                    kind="grid",
                    table=table,
                    x=x,
                    x_text=x_text,
                    y="layer",
                    color="contribution",
                    text="contribution",
                )
            )
    return tuple(found)


def _table(parts: Sequence[Part], columns: Sequence[str]) -> Table:
    return Table(columns={name: [getattr(part, name) for part in parts] for name in columns}, units=UNITS)


def _strongest(parts: Sequence[Part]) -> Table:
    """The largest terms, all biases counted as one, and what is left as `others`: together they are the whole score."""
    totals: dict[str, float] = {}
    for part in parts:
        totals[part.term] = totals.get(part.term, 0.0) + part.contribution
    order = sorted(totals, key=lambda name: -abs(totals[name]))
    kept = {name: totals[name] for name in order[:N_STRONGEST]}
    if order[N_STRONGEST:]:
        kept["others"] = sum(totals[name] for name in order[N_STRONGEST:])
    return Table(columns={"term": list(kept), "contribution": list(kept.values())}, units=UNITS)
