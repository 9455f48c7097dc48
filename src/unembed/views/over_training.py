"""Any analysis of a model, for each kept checkpoint of a run: one table and one picture.

An analysis gives a table with a row a layer (or feature); here it is made for every checkpoint and the tables are laid one
under the other, with the step in front. So the same call serves the lens, its calibration, the gradient by depth, or what
comes next. Before it: texts.py. The next file to read is inside.py, what is inside a run's newest model.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unembed.errors import UsageError
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table, to_plain
from unembed.views.run import RunView
from unembed.views.texts import run_of

Analyse = Callable[[Transformer], Result]


def over_training(
    run: RunView, analyse: Analyse, *, table: str, color: str, y: str = "layer", facet: str | None = None
) -> Result:
    """Applies an analysis to every kept checkpoint, in the order of the steps.

    The result has the analysis's own name and notes, its table `table` with a column `step` in front, and a grid over steps
    and `y`, shaded by the column `color` and with its numbers written in. With a `facet` there are lines instead, `y` over
    the steps, one for each `color`, in a panel for each `facet`: for a table that has several rows a layer, one a head.
    """
    columns: dict[str, list[Any]] = {"step": []}
    units: dict[str, str] = {}
    found: Result | None = None
    for index, checkpoint in enumerate(run.checkpoints):
        found = analyse(run.model(index))
        one = found.tables[table]
        units = dict(one.units)
        columns["step"] += [checkpoint.step] * one.n_rows
        for name, values in one.columns.items():
            columns.setdefault(name, []).extend(to_plain(value) for value in values)
    assert found is not None, "a run that can be opened has a checkpoint"
    return Result(
        name=found.name,
        tables={table: Table(columns=columns, units=units)},
        values={"checkpoints": len(run.checkpoints)},
        notes=found.notes,
        pictures=(
            Picture(
                key="over_training",
                kind="grid" if facet is None else "lines",
                table=table,
                x="step",
                y=y,
                color=color,
                text=color if facet is None else None,
                facet=facet,
                tooltip=tuple(columns),
            ),
        ),
    )


def every_checkpoint(place: str | Path) -> RunView:
    """The run whose checkpoints are to be gone through. Raises: UsageError where MODEL is no run folder."""
    path = Path(place)
    if run_of(path) != path:
        raise UsageError(f"--over-training: {place} is no run folder, so it has no checkpoints to go through")
    return RunView.open(path)


def by_layer(found: Result) -> Result:
    """A lens's reading of a text as means over its positions, a row a layer: what can be followed over training.

    Positions without a number, such as the last one, which has no next token, are left out of its mean.
    """
    lens = found.tables["lens"]
    layers = list(dict.fromkeys(to_plain(value) for value in lens["layer"]))
    columns: dict[str, Any] = {"layer": layers}
    for name in ("kl_to_final_nats", "entropy_nats", "cross_entropy_nats", "probability"):
        if name in lens.columns:
            columns[name] = [_mean(lens[name][lens["layer"] == layer]) for layer in layers]
    if "agrees" in lens.columns:
        columns["agreement_share"] = [_mean(lens["agrees"][lens["layer"] == layer]) for layer in layers]
    units = {name: "nats" for name in columns if name.endswith("_nats")}
    return Result(name=found.name, tables={"by_layer": Table(columns=columns, units=units)}, notes=found.notes)


def _mean(values: np.ndarray) -> float | None:
    there = [float(value) for value in values.tolist() if value is not None]
    return sum(there) / len(there) if there else None
