"""What a run is made of: the accounts of its model, what sharing the token table saves, and the data behind it.

Everything here is counted from the descriptions alone; no model is run. Before it: progress.py. The next file to read is
tying.py.
"""

from typing import Any

from unembed.model.counts import BYTES_PER_NUMBER, count
from unembed.objectives.chunked import SCORES_AT_ONCE
from unembed.planning.flops import flops
from unembed.planning.memory import STATES_PER_PARAMETER, TrainingShape, training_memory
from unembed.results import Picture, Result, Table
from unembed.tokenizers import files as tokenizer_files
from unembed.views.run import RunView

FLOAT32 = BYTES_PER_NUMBER["float32"]
# A weight, its gradient, and the two moments that AdamW keeps of it.
NUMBERS_IN_TRAINING = 2 + STATES_PER_PARAMETER["adamw"]


def parameters(run: RunView) -> Result:
    """The accounts of the model: numbers and bytes by part, operations by part, and the memory of a training step."""
    spec = run.spec
    counted = count(spec)
    parts = {part: n for part, n in counted.by_part.items() if n}
    cost = flops(spec)
    work = {part: n for part, n in cost.by_part.items() if n}
    batch_size, accumulate = run.training.get("batch_size"), run.training.get("accumulate")
    shape = TrainingShape(
        batch_size=batch_size if isinstance(batch_size, int) else 1,
        context_length=spec.context_length,
        scores_at_once=SCORES_AT_ONCE if run.training.get("chunked_loss") is True else None,
        checkpoints_blocks=run.training.get("checkpoint_activations") is True,
        accumulates=isinstance(accumulate, int) and accumulate > 1,
    )
    memory = training_memory(spec, shape)
    held = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer_states": memory.optimizer_states,
        "activations": sum(memory.activations.values()),
        "loss": memory.loss,
    }
    tables = {
        "by_part": Table(
            columns={
                "part": list(parts),
                "parameters": list(parts.values()),
                "weight_bytes": [n * FLOAT32 for n in parts.values()],
                "share": [n / counted.parameters for n in parts.values()],
            }
        ),
        "flops": Table(
            columns={
                "part": list(work),
                "flops": list(work.values()),
                "share": [n / cost.forward for n in work.values()],
            }
        ),
        "memory": Table(columns={"held": list(held), "bytes": list(held.values())}, units={"bytes": "bytes"}),
    }
    values = {
        "parameters": counted.parameters,
        "weight_bytes": counted.parameters * FLOAT32,
        "flops_per_token": cost.forward,
        "training_flops_per_token": cost.training,
        "peak_bytes": memory.peak,
    }
    pictures = (
        Picture(key="parameters", kind="bars", table="by_part", x="parameters", y="part"),
        Picture(key="flops", kind="bars", table="flops", x="flops", y="part"),
        Picture(key="memory", kind="bars", table="memory", x="bytes", y="held"),
    )
    return Result(name="parameters", tables=tables, values=values, notes=("memory_is_planned",), pictures=pictures)


def tying(run: RunView) -> Result:
    """The model with one table and with two: what sharing saves, or would save, in numbers and in bytes.

    `training_bytes` counts four numbers for each parameter, the weight, its gradient and AdamW's two moments, in float32.
    """
    counted = count(run.spec)
    table, with_two = counted.table_parameters, counted.parameters + (counted.table_parameters if counted.tied else 0)
    rest = with_two - 2 * table
    rows = [
        ("shared", "token_table", table),
        ("shared", "rest", rest),
        ("own", "token_table", table),
        ("own", "head", table),
        ("own", "rest", rest),
    ]
    columns: dict[str, list[Any]] = {
        "head_table": [head for head, _, _ in rows],
        "part": [part for _, part, _ in rows],
        "parameters": [n for _, _, n in rows],
        "weight_bytes": [n * FLOAT32 for _, _, n in rows],
        "training_bytes": [n * FLOAT32 * NUMBERS_IN_TRAINING for _, _, n in rows],
    }
    saves = {
        "parameters": table,
        "share": table / with_two,
        "weight_bytes": table * FLOAT32,
        "training_bytes": table * FLOAT32 * NUMBERS_IN_TRAINING,
    }
    prefix = "saved" if counted.tied else "would_save"
    return Result(
        name="tying",
        tables={"tying": Table(columns=columns)},
        values={"tied": counted.tied, **{f"{prefix}_{name}": n for name, n in saves.items()}},
        pictures=(Picture(key="tying", kind="bars", table="tying", x="parameters", y="head_table", color="part"),),
    )


def data(run: RunView) -> Result:
    """Where the numbers come from: the files that were read, the ids made of them, and the tokenizer that made them."""
    manifest = run.shards.manifest
    splits = manifest.splits
    tables = {}
    files = [file for file in run.folder.description.get("data", {}).get("files", []) if isinstance(file, dict)]
    if files:
        tables["files"] = Table(
            columns={name: [file.get(name) for file in files] for name in ("file", "bytes", "sha256")}
        )
    tables["splits"] = Table(
        columns={
            "split": list(splits),
            "tokens": [entry.n_tokens for entry in splits.values()],
            "characters": [entry.n_characters for entry in splits.values()],
            "text_bytes": [entry.n_bytes for entry in splits.values()],
            "sha256": [entry.sha256 for entry in splits.values()],
        }
    )
    tokens, text_bytes = (sum(getattr(e, name) for e in splits.values()) for name in ("n_tokens", "n_bytes"))
    values: dict[str, Any] = {
        "tokenizer": run.tokenizer.kind,
        "vocab_size": run.tokenizer.vocab_size,
        "tokens_in_all": tokens,
    }
    if tokens and text_bytes:
        values["bytes_per_token"] = text_bytes / tokens
    seen = run.metrics[-1]["tokens"] if run.metrics else 0
    if splits.get("train") and splits["train"].n_tokens:
        values["epochs"] = seen / splits["train"].n_tokens
    tables["tokenizers"] = Table(
        columns={
            "tokenizer": [run.tokenizer.kind],
            "vocab_size": [run.tokenizer.vocab_size],
            "sha256": [tokenizer_files.fingerprint(run.tokenizer)],
        }
    )
    return Result(name="data", tables=tables, values=values)
