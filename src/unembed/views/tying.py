"""What its two uses taught the token table over a run: from the run's own notes, or measured anew at each kept checkpoint.

Before it: accounts.py, what sharing the table saves. The next file to read is inside.py.
"""

from typing import Any

import numpy as np
import torch

from unembed.results import Picture, Result, Table
from unembed.tying.gradients import split_gradient
from unembed.views.progress import GRADIENT_TOKENS
from unembed.views.run import RunView

N_STRONGEST = 20
NOTED = ("step", "lookup_norm", "projection_norm", "cosine", "lookup_share", "update_norm", "update_lookup_share")
MEASURED = NOTED[:5]


def two_gradients(run: RunView) -> Result:
    """The lengths of the two parts, their shares of both lengths and the angle between them, over the steps.

    A run with `tying.gradient_every` has noted them in tying.jsonl, as its own batches had them; of any other they are
    measured at each kept checkpoint, on the same held-out tokens. With its data at hand, the newest model is also looked at
    by token: groups by how often a token stands in the text, and the rows that are pulled the most.
    """
    noted = run.noted_gradients
    measured = [] if not run.has_data else _measured(run, newest_alone=bool(noted))
    records, names = (noted, NOTED) if noted else ([found.values for found in measured], MEASURED)
    steps = [record["step"] for record in noted] if noted else [one.step for one in run.checkpoints]
    columns: dict[str, list[Any]] = {name: [record.get(name) for record in records] for name in names if name != "step"}
    parts = {
        "lookup": (columns["lookup_norm"], columns["lookup_share"]),
        "projection": (
            columns["projection_norm"],
            [None if share is None else 1 - share for share in columns["lookup_share"]],
        ),
    }
    tables = {
        "two_gradients": Table(
            columns={
                "step": steps * 2,
                "part": [part for part in parts for _ in steps],
                "share": [share for _, shares in parts.values() for share in shares],
                "norm": [norm for norms, _ in parts.values() for norm in norms],
            }
        ),
        "two_gradients_together": Table(
            columns={"step": steps, **{name: columns[name] for name in names[3:] if name != "lookup_share"}}
        ),
    }
    pictures = [_lines("share", "two_gradients"), _lines("norm", "two_gradients")]
    if any(value is not None for value in columns["cosine"]):
        pictures.append(_lines("cosine", "two_gradients_together"))
    last = {f"last_{name}": columns[name][-1] for name in ("lookup_share", "cosine")} if steps else {}
    if measured:
        newest = measured[-1]
        tables |= {"by_frequency": newest.tables["by_frequency"], "strongest_rows": _strongest(newest.tables["rows"])}
        pictures += newest.pictures
    notes = ("gradients_are_noted" if noted else "gradients_are_measured",)
    is_shared = run.model().unembed_table() is run.model().embed.table
    return Result(
        name="two_gradients",
        tables=tables,
        values={"tied": is_shared, **last},
        notes=notes if is_shared else (*notes, "parts_of_two_tables"),
        pictures=tuple(pictures),
    )


def can_be_split(run: RunView) -> bool:
    """Whether there is anything to tell: notes of the run, or data to measure on."""
    return bool(run.noted_gradients) or run.has_data


def _measured(run: RunView, *, newest_alone: bool) -> list[Result]:
    context_length = run.spec.context_length
    inputs, targets = next(run.shards.val.windows(context_length, max(1, GRADIENT_TOKENS // context_length)))
    places = [len(run.checkpoints) - 1] if newest_alone else range(len(run.checkpoints))
    ids, labels = torch.from_numpy(inputs), torch.from_numpy(targets)
    return [split_gradient(run.model(index), ids, labels) for index in places]


def _strongest(rows: Table) -> Table:
    """The rows with the longest gradient."""
    order = np.argsort(-rows["sum_norm"], kind="stable")[:N_STRONGEST]
    chosen = ("token", "count_in_ids", "count_as_target", "lookup_norm", "projection_norm", "cosine", "lookup_share")
    return Table(columns={name: rows[name][order] for name in chosen})


def _lines(name: str, table: str) -> Picture:
    is_split = table == "two_gradients"
    return Picture(
        key=f"two_gradients_{name}",
        kind="lines",
        table=table,
        x="step",
        y=name,
        color="part" if is_split else None,
        tooltip=("step", "part", "share", "norm") if is_split else ("step", name),
    )
