"""What a token table is taught by its two uses: looking a row up, and scoring with it. Exact, row by row.

For a shared table dL/dE is the sum of both; with two tables each has its own. One forward and one backward pass show both,
through the two aliases that the model uses its table by (parts.py). The next file to read is watch.py, which notes the
same down while a model is trained.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from unembed.arguments import refuse_types
from unembed.errors import InputError, TapError, UsageError
from unembed.model.transformer import Transformer
from unembed.objectives import IGNORED, LossSum, chunked_next_token_loss, next_token_loss
from unembed.results import Picture, Result, Table
from unembed.tying.parts import TableGradients

ROWS_AT_ONCE = 4096
TOUCHED = ("neither", "only_lookup", "only_projection", "both")


def split_gradient(
    model: nn.Module,
    ids: Int[Tensor, "batch pos"] | Sequence[Sequence[int]],
    targets: Int[Tensor, "batch pos"] | Sequence[Sequence[int]],
    *,
    mask: Bool[Tensor, "batch pos"] | Sequence[Sequence[bool]] | None = None,
    chunked: bool = False,
    dropout: float = 0.0,
    seed: int = 0,
    accumulate: int = 1,
    clip_norm: float | None = None,
    frequencies: Sequence[int] | np.ndarray | None = None,
) -> Result:
    """Splits the gradient of the token table into its lookup part and its projection part, L being nats per counted token.

    dL/dE = sum over places t of onehot(id_t) (dL/de_t)^T  +  sum over places t of (dL/dscores_t) features_t^T

    `chunked` takes the loss without holding the scores; `dropout` draws from `seed`; `accumulate` cuts the batch into so
    many pieces whose gradients are added up; `clip_norm` scales both parts as clipping the whole model's gradient to that
    norm would. Neither the parameters' own `.grad` nor the generators are touched.

    Table `rows`, one row a token: `id`, `token` (null without a tokenizer), `count_in_ids`, `count_as_target`,
    `lookup_norm`, `projection_norm`, `sum_norm`, `cosine` of the two (null where one is 0) and `lookup_share`,
    |lookup| / (|lookup| + |projection|). Table `by_frequency`: the same for groups of rows, by how often each id is in
    `ids` (or by `frequencies`, such as counts in a corpus). Table `touched`: how many rows each part reaches. Values: the
    same over the whole table, `tied`, `loss_nats`, `grad_norm` (of the whole model) and `clip_factor` with `clip_norm`, and
    `sum_error`, |lookup + projection - PyTorch's gradient| relative to the parts' norms. In a model with two tables the
    parts belong to one each, and `sum_norm` and `cosine` are those that one shared table would have.

    Raises: InputError for another model, ShapeError for ids or targets that do not fit, UsageError for impossible options,
    TapError when the table is also used past its two aliases, so that the parts would not add up.

    >>> import unembed
    >>> model = unembed.load("mini-gpt")
    >>> ids = torch.tensor([[7, 12, 3, 40]])
    >>> found = split_gradient(model, ids[:, :-1], ids[:, 1:])
    >>> found.values["tied"], found.tables["touched"]["rows"].tolist()
    (True, [0, 0, 61, 3])
    """
    inner = _transformer(model)
    ids, targets = _numbers("ids", ids), _numbers("targets", targets)
    mask = None if mask is None else _numbers("mask", mask)
    refuse_types("split_gradient", dropout=dropout, seed=seed, accumulate=accumulate, clip_norm=clip_norm)
    if not 0 <= dropout < 1:
        raise UsageError(f"split_gradient: dropout is {dropout}; it must be at least 0 and below 1")
    _check(inner, accumulate, clip_norm, frequencies)
    embed, head = inner.embed.table, inner.unembed_table()
    tables = [embed] if embed is head else [embed, head]
    trained = [p for p in inner.parameters() if p.requires_grad] if clip_norm is not None else []
    wanted = [*tables, *(p for p in trained if all(p is not table for table in tables))]
    device = embed.device
    pieces = list(zip(_cut(ids, accumulate), _cut(targets, accumulate), _cut(mask, accumulate), strict=True))
    n_counted = max(1, int((targets != IGNORED).sum()))
    total, gradients = 0.0, [torch.zeros_like(p) for p in wanted]
    with _requiring_grad(tables), torch.enable_grad(), TableGradients() as parts:
        for number, (piece, labels, real) in enumerate(pieces):
            if not len(piece):
                continue
            loss = _loss(inner, piece.to(device), labels.to(device), real, parts, chunked, dropout, seed + number)
            found = torch.autograd.grad(loss.total / n_counted, wanted, allow_unused=True)
            for held, gradient in zip(gradients, found, strict=True):
                if gradient is not None:
                    held += gradient
            total += float(loss.total.detach())
        values: dict[str, Any] = {"tied": embed is head, "loss_nats": total / n_counted}
        values["sum_error"] = _sum_error(gradients[: len(tables)], parts, accumulate)
    if clip_norm is not None:
        by_id = dict(zip(map(id, wanted), gradients, strict=True))
        norm = float(torch.nn.utils.get_total_norm([by_id[id(p)] for p in trained]))
        values |= {"grad_norm": norm, "clip_factor": min(1.0, clip_norm / (norm + 1e-6))}
        parts.scale_by(values["clip_factor"])
    return _result(inner, ids, targets, parts, values, frequencies)


def _loss(
    model: Transformer,
    ids: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    tap: TableGradients,
    chunked: bool,
    dropout: float,
    seed: int,
) -> LossSum:
    """The two halves are called by name: a compiled forward keeps no aliases, while compiled blocks stay compiled."""
    devices = [] if ids.device.type == "cpu" else [ids.device]
    with torch.random.fork_rng(devices, enabled=dropout > 0):
        if dropout > 0:
            torch.manual_seed(seed)
        resid = model.hidden(ids, mask=None if mask is None else mask.to(ids.device), tap=tap, dropout=dropout)
    if chunked:
        return chunked_next_token_loss(model, resid, targets, tap=tap)
    return next_token_loss(model.unembed(resid, tap=tap), targets)


def _sum_error(gradients: Sequence[Tensor], parts: TableGradients, accumulate: int) -> float:
    """How far the parts are from what PyTorch has in the table(s). Raises: TapError when that is more than rounding."""
    lookup, projection = parts.lookup, parts.projection
    whole = [(gradients[0], lookup + projection)] if len(gradients) == 1 else zip(gradients, (lookup, projection))  # noqa: B905
    error = sum(float((gradient.double() - part.double()).square().sum()) for gradient, part in whole) ** 0.5
    size = float(lookup.double().norm() + projection.double().norm())
    relative: float = error / size if size else error
    if relative > 8 * accumulate * torch.finfo(lookup.dtype).eps:
        raise TapError(
            f"split_gradient: lookup and projection part differ from the table's gradient by {relative:.1e} of their norm. "
            "The table is also used past embed.table and unembed.table; use it through its aliases alone."
        )
    return relative


def _result(
    model: Transformer,
    ids: Tensor,
    targets: Tensor,
    parts: TableGradients,
    values: dict[str, Any],
    frequencies: Sequence[int] | np.ndarray | None,
) -> Result:
    lookup, projection, dot = _squares(parts.lookup, parts.projection)
    n_rows, tokenizer = len(lookup), model.tokenizer
    in_ids = np.bincount(ids.flatten().cpu().numpy(), minlength=n_rows)
    as_target = np.bincount(targets[targets != IGNORED].cpu().numpy(), minlength=n_rows)
    n_named = 0 if tokenizer is None else min(n_rows, tokenizer.vocab_size)
    rows = {
        "id": np.arange(n_rows),
        "token": [tokenizer.token_text(i) if i < n_named else None for i in range(n_rows)],
        "count_in_ids": in_ids,
        "count_as_target": as_target,
        **_columns(lookup, projection, dot),
    }
    names, groups = frequency_groups(in_ids if frequencies is None else np.asarray(frequencies))
    summed = [np.bincount(groups, weights=one, minlength=len(names)) for one in (lookup, projection, dot)]
    n_in_group = np.bincount(groups, minlength=len(names))
    here = n_in_group > 0
    by_frequency = {
        "frequency": [name for name, is_here in zip(names, here, strict=True) if is_here],
        "rows": n_in_group[here],
        **_columns(*(one[here] for one in summed)),
    }
    whole = {
        name: column[0]
        for name, column in _columns(*(np.array([one.sum()]) for one in (lookup, projection, dot))).items()
    }
    values |= {name: None if value is None else float(value) for name, value in whole.items()}
    touched = touched_rows(lookup > 0, projection > 0)
    return Result(
        name="split_gradient",
        tables={
            "rows": Table(columns=rows),
            "by_frequency": Table(columns=by_frequency),
            "touched": Table(columns={"touched": list(TOUCHED), "rows": [touched[name] for name in TOUCHED]}),
        },
        values=values,
        pictures=(
            Picture(
                key="share_by_frequency",
                kind="bars",
                table="by_frequency",
                x="lookup_share",
                y="frequency",
                tooltip=("frequency", "rows", "lookup_norm", "projection_norm", "cosine", "lookup_share"),
            ),
        ),
    )


def touched_rows(by_lookup: np.ndarray, by_projection: np.ndarray) -> dict[str, int]:
    """How many rows have a gradient from neither use, from one alone, or from both."""
    kinds = np.bincount(by_lookup + 2 * by_projection.astype(np.int64), minlength=4)
    return dict(zip(TOUCHED, kinds.tolist(), strict=True))


def frequency_groups(counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names of groups by count, each twice as wide as the one before, and the group of each row.

    >>> frequency_groups(np.array([0, 1, 2, 3, 4, 9]))
    (['0', '1', '2-3', '4-7', '8-15'], array([0, 1, 2, 2, 3, 4]))
    """
    groups = np.zeros(len(counts), dtype=np.int64)
    groups[counts > 0] = np.floor(np.log2(counts[counts > 0])).astype(np.int64) + 1
    names = ["0", "1", *(f"{1 << power}-{(2 << power) - 1}" for power in range(1, int(groups.max(initial=1))))]
    return names, groups


def _squares(lookup: Tensor, projection: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row |lookup|^2, |projection|^2 and their inner product, in float64, a few rows at a time."""
    found = []
    for start in range(0, len(lookup), ROWS_AT_ONCE):
        one, other = (part[start : start + ROWS_AT_ONCE].double() for part in (lookup, projection))
        found.append(torch.stack([one.square().sum(1), other.square().sum(1), (one * other).sum(1)]).cpu())
    lookups, projections, dots = torch.cat(found, dim=1).numpy()
    return lookups, projections, dots


def _columns(lookup: np.ndarray, projection: np.ndarray, dot: np.ndarray) -> dict[str, Any]:
    """Norms, cosine and share from squares and inner products."""
    norms = np.sqrt(lookup), np.sqrt(projection)
    product, both = norms[0] * norms[1], norms[0] + norms[1]
    return {
        "lookup_norm": norms[0],
        "projection_norm": norms[1],
        "sum_norm": np.sqrt(np.maximum(0.0, lookup + projection + 2 * dot)),
        "cosine": [float(d / p) if p else None for d, p in zip(dot, product, strict=True)],
        "lookup_share": [float(n / b) if b else None for n, b in zip(norms[0], both, strict=True)],
    }


def _transformer(model: nn.Module) -> Transformer:
    inner = model
    if type(model).__name__ == "OptimizedModule":  # what torch.compile(model) gives, without importing the compiler
        inner = model.get_submodule("_orig_mod")
    if not isinstance(inner, Transformer):
        raise InputError(
            f"split_gradient: got {type(model).__name__}, expected a model of unembed. Open the file with unembed.load first."
        )
    return inner


def _check(
    model: Transformer, accumulate: int, clip_norm: float | None, frequencies: Sequence[int] | np.ndarray | None
) -> None:
    if accumulate < 1 or (clip_norm is not None and clip_norm <= 0):
        raise UsageError(
            f"split_gradient: accumulate is {accumulate}, clip_norm {clip_norm}; they must be at least 1 and above 0"
        )
    n_rows = len(model.embed.table)
    if frequencies is not None and (np.ndim(frequencies) != 1 or np.asarray(frequencies).dtype.kind not in "iuf"):
        raise UsageError(f"split_gradient: frequencies is {repr(frequencies)[:60]}, expected a count for each row")
    if frequencies is not None and len(frequencies) != n_rows:
        raise UsageError(
            f"split_gradient: {len(frequencies)} frequencies for a table of {n_rows} rows; give one for each row"
        )


def _numbers(name: str, given: Any) -> Tensor:
    """A batch as a tensor, [batch, pos]. Raises: UsageError for what is none, or holds nothing."""
    of = "True or False" if name == "mask" else "whole numbers"
    try:
        made = torch.as_tensor(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"split_gradient: {name} are no [batch, pos] of one length each: {error}") from error
    is_right = (
        made.dtype == torch.bool if name == "mask" else not (made.is_floating_point() or made.dtype == torch.bool)
    )
    if made.ndim != 2 or not made.numel() or not is_right:
        raise UsageError(
            f"split_gradient: {name} are {list(made.shape)} of {made.dtype}; give at least one sequence of at least one "
            f"token, as {of}, in the shape [batch, pos]"
        )
    return made if name == "mask" else made.long()


def _cut(tensor: Tensor | None, n: int) -> list[Any]:
    """n pieces of a batch; the last ones are empty where there are fewer sequences than pieces."""
    return [None] * n if tensor is None else list(torch.tensor_split(tensor, n))


@contextmanager
def _requiring_grad(tables: Sequence[nn.Parameter | Tensor]) -> Iterator[None]:
    """Frozen tables require a gradient for a while."""
    frozen = [table for table in tables if not table.requires_grad]
    try:
        for table in frozen:
            table.requires_grad_(True)
        yield
    finally:
        for table in frozen:
            table.requires_grad_(False)
