"""A table of vectors seen from its two longest sides: principal components, exact and always turned the same way.

A plane keeps only a share of what there is; that share is part of every result. The next file to read is
../recipes/__init__.py, where runs are put together.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.errors import UsageError
from unembed.geometry.neighbours import cosine_neighbours
from unembed.results import Picture, Result, Table


def principal_components(
    vectors: Float[Tensor, "rows d_model"], n_components: int
) -> tuple[Float[Tensor, "rows components"], Float[Tensor, " components"]]:
    """Coordinates along the directions of largest variance, and the share of all variance that each holds.

    Local axes: rows, components. By a singular value decomposition of the centred rows in float64; each direction is
    turned so that its largest coordinate is positive, so that two calls agree. Raises: UsageError if there are fewer
    directions than components.

    >>> coordinates, shares = principal_components(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2)
    >>> [round(share, 3) for share in shares.tolist()]
    [0.9, 0.1]
    """
    if n_components > min(vectors.shape):
        raise UsageError(f"projection: {n_components} components asked of a {list(vectors.shape)} table")
    centred = vectors.double() - vectors.double().mean(0)
    left, values, _ = torch.linalg.svd(centred, full_matrices=False)
    coordinates = left * values
    largest = coordinates.abs().argmax(0)
    coordinates = coordinates * coordinates[largest, torch.arange(len(values))].sign()
    shares = values.square() / values.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    return coordinates[:, :n_components], shares[:n_components]


def token_map(
    tables: Sequence[tuple[str, Float[Tensor, "vocab d_model"]]],
    texts: Sequence[str],
    *,
    groups: Sequence[str] | None = None,
    focus: Sequence[int] = (),
    n_neighbours: int = 5,
) -> Result:
    """Draws several states of one token table as planes, with the neighbours of a few tokens in each.

    `tables` pairs a name (`before`, `after`) with a table; rows beyond `texts` are padding and left out. `groups` colours
    the points. The focus defaults to the tokens whose vectors moved the most between the first and the last state. Rows
    of zeros have no direction, so they are nobody's neighbour. Raises: UsageError if a table is too small for a plane,
    has fewer rows than there are texts, or a focus is no row.
    """
    n = len(texts)
    for when, table in tables:
        if table.shape[0] < n:
            raise UsageError(f"token map: {n} texts, but the table {when!r} has only {table.shape[0]} rows")
    names = list(groups) if groups is not None else [""] * n
    points: dict[str, list[object]] = {k: [] for k in ("when", "id", "text", "x", "y", "group")}
    near: dict[str, list[object]] = {k: [] for k in ("text", "when", "rank", "neighbour", "cosine")}
    shares = {}
    chosen = list(focus) or _most_moved(tables[0][1][:n], tables[-1][1][:n], 4)
    for when, table in tables:
        known = table[:n].detach().cpu()
        coordinates, share = principal_components(known, 2)
        shares[f"explained_{when}"] = float(share.sum())
        for i in range(n):
            row = (when, i, texts[i], float(coordinates[i, 0]), float(coordinates[i, 1]), names[i])
            for key, value in zip(points, row, strict=True):
                points[key].append(value)
        for i in chosen:
            nearest = [(j, cosine) for j, cosine in cosine_neighbours(known, i, n_neighbours) if not math.isnan(cosine)]
            for rank, (j, cosine) in enumerate(nearest, start=1):
                for key, value in zip(near, (texts[i], when, rank, texts[j], cosine), strict=True):
                    near[key].append(value)
    return Result(
        name="token_map",
        tables={"points": Table(columns=points), "neighbours": Table(columns=near)},
        values=shares,
        notes=("map_is_a_shadow",),
        pictures=(
            Picture(
                key="token_map",
                kind="points",
                table="points",
                x="x",
                y="y",
                color="group" if groups is not None else None,
                text="text",
                facet="when",
                tooltip=("text", "id"),
            ),
        ),
    )


def _most_moved(before: Float[Tensor, "vocab d_model"], after: Float[Tensor, "vocab d_model"], n: int) -> list[int]:
    return [int(i) for i in (after - before).norm(dim=-1).argsort(descending=True)[:n]]
