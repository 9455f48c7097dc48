"""The run's records as TensorBoard events, for those who look at runs there; needs the extra `track`.

metrics.jsonl stays the one source: when a run begins or goes on, the events are written again from it, so that no step
stands there twice however often the run was killed. Before this file: loop.py, which calls observers. Next: signals.py.
"""

import importlib
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unembed.errors import UsageError

if TYPE_CHECKING:
    from unembed.training.loop import Trainer

FOLDER = "tensorboard"
FLUSH_SECONDS = 10
_EVENTS = "events.out.tfevents.*"
# What of a record becomes a curve; `<split>/<name>` is its tag.
_CURVES = ("loss_nats", "grad_norm", "learning_rate", "tokens")


def require_tensorboard() -> None:
    """Raises: UsageError when the package that writes events is not installed."""
    if find_spec("tensorboard") is None:
        raise UsageError(
            "setting tensorboard is true, but tensorboard is not installed. Install it with: pip install 'unembed[track]', or "
            "leave the setting out; metrics.jsonl holds the same numbers"
        )


class EventWriter:
    """An observer that writes each record to RUN/tensorboard, after those that the run has already.

    An event's time is when the writing began plus the record's `seconds`, so that curves over time show steps alone.
    """

    def __init__(self, run: Path, records: Iterable[Mapping[str, Any]]) -> None:
        require_tensorboard()
        folder = run / FOLDER
        for old in folder.glob(_EVENTS):
            old.unlink()
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._writer = writer.EventFileWriter(str(folder), flush_secs=FLUSH_SECONDS)
        before = list(records)
        self._began = time.time() - (before[-1]["seconds"] if before else 0.0)
        for record in before:
            self._write(record)

    def __call__(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Takes a record of the trainer."""
        if record["split"] in ("train", "val"):
            self._write(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        values = [
            self._summary.Value(tag=f"{record['split']}/{name}", simple_value=_number(record, name))
            for name in _CURVES
            if record[name] is not None or "not_finite" in record
            if not (name == "grad_norm" and record["split"] == "val")  # which has no gradient
        ]
        self._writer.add_event(
            self._event(
                step=record["step"],
                wall_time=self._began + record["seconds"],
                summary=self._summary(value=values),
            )
        )


def _number(record: Mapping[str, Any], name: str) -> float:
    """A number as it was: metrics.jsonl holds null for one that is not finite, and its name beside it."""
    return float(record["not_finite"] if record[name] is None else record[name])
