"""How alike the two tables of an untied model have become: row by row, after the best turn, and in shape.

    row_cosine          the mean cosine of the two rows of each token; 1 for equal directions, 0 for strangers
    procrustes_cosine   the same after the one rotation (or reflection) of all rows that brings the tables closest
    cka                 linear centred kernel alignment: whether the same tokens lie far from the same tokens

The second grows by itself with the width, and the third where there are few tokens: two tables of pure noise are alike to a
degree. So each stands beside what the same tables give with their rows paired at random. The next file to read is doctor.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unembed.arguments import refuse_types
from unembed.checkpoints.load import find, open_found
from unembed.errors import InputError
from unembed.model.transformer import Transformer
from unembed.results import Result, Table
from unembed.tying.effective import effective_tables

N_SHUFFLES = 5
MEASURES = ("row_cosine", "procrustes_cosine", "cka")


def likeness(model: Transformer | str | Path, *, seed: int = 0) -> Result:
    """Compares what embeds a token with what scores it, in a model or any MODEL by name. Values: `d_model`, `rows`,
    `rows_without_length`.

    Table `likeness`: for each `measure` its `value`, and `paired_at_random`, the mean over five pairings of the rows by
    chance, drawn from `seed`. Rows of length 0 have no direction and are left out of cosines. With a map between table and
    stream the two matrices as they act are compared (effective.py). Raises: InputError for a model with one table, which is
    like itself, and for tables that are not finite; as `load` for a name.

    >>> from unembed.model.init import Gpt2Init, build
    >>> from unembed.model.presets import preset
    >>> from unembed.model.spec import with_head
    >>> model = build(with_head(preset("mini-gpt").spec, "untied"), Gpt2Init(std=0.02), seed=0)
    >>> likeness(model).tables["likeness"]["measure"].tolist()
    ['row_cosine', 'procrustes_cosine', 'cka']
    """
    refuse_types("likeness", seed=seed)
    embeds, scores = effective_tables(_opened(model))
    if embeds is scores or (embeds.shape == scores.shape and embeds.data_ptr() == scores.data_ptr()):
        raise InputError(
            "likeness: the model has one table, which is like itself; give an untied one, or one with a map. "
            "Train one with: unembed train DATA --set sharing=untied --out DIR"
        )
    first, second = embeds.double(), scores.double()
    if not (first.isfinite().all() and second.isfinite().all()):
        raise InputError("likeness: the tables hold numbers that are not finite; unembed inspect MODEL says where")
    found = measures(first, second)
    generator = torch.Generator().manual_seed(seed)
    by_chance = [
        measures(first, second[torch.randperm(len(second), generator=generator).to(second.device)])
        for _ in range(N_SHUFFLES)
    ]
    means = {name: _mean([one[name] for one in by_chance]) for name in MEASURES}
    columns: dict[str, Any] = {
        "measure": list(MEASURES),
        "value": [found[name] for name in MEASURES],
        "paired_at_random": [means[name] for name in MEASURES],
    }
    n_empty = int((~_has_direction(first, second)).sum())
    values = {"rows": len(first), "d_model": first.shape[1], "rows_without_length": n_empty}
    return Result(name="likeness", tables={"likeness": Table(columns=columns)}, values=values)


def _opened(model: Transformer | str | Path) -> Transformer:
    if isinstance(model, str | Path):
        found = find(model)
        if found.preset is not None:
            raise InputError(f"likeness: {model} is a preset, a shape without numbers; give a run, a folder or a file")
        return open_found(found)
    if not isinstance(model, Transformer):
        raise InputError(
            f"likeness: got a {type(model).__name__}; give what unembed.load returns, or the name of a MODEL"
        )
    return model


def measures(first: Float[Tensor, "vocab d_model"], second: Float[Tensor, "vocab d_model"]) -> dict[str, float | None]:
    """The three measures of two tables; None where there is nothing to measure (no row with a direction, no spread).

    The rotation R = U V^T maximises <first R, second>, U S V^T being the singular values of first^T second.
    cka = |A^T B|^2 / (|A^T A| |B^T B|), A and B the tables less their mean rows. Source: Schoenemann 1966; Kornblith et al.
    2019, arXiv:1905.00414, equation 3.
    """
    u, _, v = torch.linalg.svd(first.T @ second)
    a, b = first - first.mean(0), second - second.mean(0)
    size = float((a.T @ a).norm() * (b.T @ b).norm())
    return {
        "row_cosine": _row_cosine(first, second),
        "procrustes_cosine": _row_cosine(first @ (u @ v), second),
        "cka": float((a.T @ b).square().sum()) / size if size else None,
    }


def _row_cosine(first: Tensor, second: Tensor) -> float | None:
    rows = _has_direction(first, second)
    if not rows.any():
        return None
    one, other = first[rows], second[rows]
    return float(((one * other).sum(1) / (one.norm(dim=1) * other.norm(dim=1))).mean())


def _has_direction(first: Tensor, second: Tensor) -> Tensor:
    found: Tensor = (first.norm(dim=1) > 0) & (second.norm(dim=1) > 0)
    return found


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
