"""What came of the training: the loss, the rates, the gradients by layer, and what the model wrote on its way.

Before it: run.py. The next file to read is accounts.py, what the run is made of.
"""

from typing import Any

import numpy as np
import torch

from unembed.generation.sampling import Sampling
from unembed.generation.texts import continue_text
from unembed.lenses.gradient_norms import gradient_norms
from unembed.results import Picture, Result, Table
from unembed.views.run import RunView

SAMPLE_TOKENS = 40
# Held-out tokens behind the gradients of a report: enough for the norms to differ by layer rather than by luck.
GRADIENT_TOKENS = 2048


def loss(run: RunView) -> Result:
    """The loss over the steps, training and validation, beside the floor where it is known, and when it was measured."""
    floors = dict(run.folder.description.get("floors", {}))
    records = [record for record in run.metrics if record["loss_nats"] is not None]
    last = next((r for r in reversed(records) if r["split"] == "val"), None)
    values: dict[str, Any] = {"val_loss_nats": None if last is None else last["loss_nats"]}
    if last is not None and "entropy_floor" in floors:
        values |= {
            "entropy_floor_nats": floors["entropy_floor"],
            "ratio": last["loss_nats"] / floors["entropy_floor"],
        }
    done, planned = run.checkpoints[-1].step, run.training.get("steps")
    values["steps"] = done
    # as Trainer.stops_early; a run.json or state of another hand may hold anything
    patience, n_worse = run.training.get("early_stop"), run.checkpoints[-1].state.get("n_worse")
    stopped_early = isinstance(patience, int) and isinstance(n_worse, int) and 0 < patience <= n_worse
    is_finished = not isinstance(planned, int) or done >= planned or stopped_early
    if last is not None and (not is_finished or last["step"] != done):
        values["val_step"] = last["step"]
    if not is_finished:
        values["steps_planned"] = planned
    if run.metrics:
        values |= {"tokens": run.metrics[-1]["tokens"], "seconds": run.metrics[-1]["seconds"]}
    table = Table(
        columns={name: [record[name] for record in records] for name in ("step", "split", "loss_nats")},
        units={"loss_nats": "nats"},
    )
    tables = {"loss": table}
    if floors:
        tables["floors"] = Table(columns={"name": list(floors), "y": list(floors.values())}, units={"y": "nats"})
    picture = Picture(
        key="loss",
        kind="lines",
        table="loss",
        x="step",
        y="loss_nats",
        color="split",
        tooltip=("step", "split", "loss_nats"),
        rules_table="floors" if floors else None,
    )
    return Result(
        name="loss",
        tables=tables,
        values=values,
        notes=() if is_finished else ("run_is_not_finished",),
        pictures=(picture,),
    )


def rates(run: RunView) -> Result:
    """The learning rate, the gradient's norm before clipping, and the tokens read in a second, at each noted step.

    Tokens per second are those between two records, in the time of the steps alone. Values: `tokens_per_second` of the
    whole run, `clip_norm`, and `clipped_share`, the share of the noted steps whose gradient was longer than that.
    """
    noted = [record for record in run.metrics if record["split"] == "train"]
    speeds: list[float | None] = []
    tokens, seconds = 0, 0.0
    for record in noted:
        passed = record["seconds"] - seconds
        speeds.append((record["tokens"] - tokens) / passed if passed > 0 else None)
        tokens, seconds = record["tokens"], record["seconds"]
    norms = [record.get("grad_norm") for record in noted]
    values: dict[str, Any] = {"tokens_per_second": tokens / seconds if seconds > 0 else None}
    limit, known = run.training.get("clip_norm"), [norm for norm in norms if norm is not None]
    if limit is not None and known:
        values |= {"clip_norm": limit, "clipped_share": sum(norm > limit for norm in known) / len(known)}
    table = Table(
        columns={
            "step": [record["step"] for record in noted],
            "learning_rate": [record.get("learning_rate") for record in noted],
            "grad_norm": norms,
            "tokens_per_second": speeds,
        }
    )
    pictures = tuple(
        Picture(key=name, kind="lines", table="rates", x="step", y=name, tooltip=("step", name))
        for name in ("learning_rate", "grad_norm", "tokens_per_second")
    )
    return Result(name="rates", tables={"rates": table}, values=values, pictures=pictures)


def gradients(run: RunView) -> Result:
    """The length of the gradient by layer, at each kept checkpoint, on the same held-out tokens."""
    context_length = run.spec.context_length
    inputs, targets = next(run.shards.val.windows(context_length, max(1, GRADIENT_TOKENS // context_length)))
    columns: dict[str, list[Any]] = {"step": [], "where": [], "grad_norm": [], "share": [], "weight_norm": []}
    for index, checkpoint in enumerate(run.checkpoints):
        found = gradient_norms(run.model(index), torch.from_numpy(inputs), torch.from_numpy(targets))
        by_layer = found.tables["gradient_norms"]
        columns["step"] += [checkpoint.step] * by_layer.n_rows
        for name in ("where", "grad_norm", "share", "weight_norm"):
            columns[name] += by_layer[name].tolist()
    picture = Picture(
        key="gradient_norms",
        kind="grid",
        table="gradient_norms",
        x="step",
        y="where",
        color="share",
        text="grad_norm",
        tooltip=("step", "where", "grad_norm", "share", "weight_norm"),
    )
    return Result(
        name="gradients",
        tables={"gradient_norms": Table(columns=columns)},
        values={"held_out_tokens": int(np.prod(inputs.shape))},
        pictures=(picture,),
    )


def samples(run: RunView) -> Result:
    """What the model wrote on its way, as it was noted or else from each kept checkpoint, and texts of the newest."""
    sampling, opening = Sampling(temperature=0.8), run.opening()
    tokens = min(SAMPLE_TOKENS, run.spec.context_length)
    noted = [(record["step"], record["text"]) for record in run.noted_samples]
    newest = len(run.checkpoints) - 1
    wanted = [] if noted else [(index, 0) for index in range(newest)]
    written = [
        (
            run.checkpoints[index].step,
            continue_text(run.model(index), opening, n_tokens=tokens, sampling=sampling, seed=seed).values["text"],
        )
        for index, seed in [*wanted, *((newest, seed) for seed in range(3))]
    ]
    before = [(step, text) for step, text in noted if step < run.checkpoints[newest].step]
    steps, texts = zip(*[*before, *written], strict=True)
    return Result(name="samples", tables={"samples": Table(columns={"step": list(steps), "text": list(texts)})})
