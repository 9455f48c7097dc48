"""metrics.jsonl, samples.jsonl, tying.jsonl: one JSON object a line, appended while training, cut back on resume.

A line counts once its line break is written. What a kill or a full disk leaves after the last complete line belongs to no
record: readers pass over it and the next writer cuts it off. Next to read: folder.py.
"""

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unembed.checkpoints.files import DISK, FileLayer, explaining, replace_file
from unembed.errors import RunError
from unembed.places import refuse_special
from unembed.results import to_json_value

NAME = "metrics.jsonl"
SAMPLES = "samples.jsonl"
TYING = "tying.jsonl"
LOGS = (NAME, SAMPLES, TYING)


class MetricsLog:
    """One log of a run. Writing methods are for the one process that trains (lock.py)."""

    def __init__(self, path: Path, *, files: FileLayer = DISK) -> None:
        self.path = path
        self._files = files
        self._has_clean_end = False

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds a record of plain values as one line; what is not finite becomes null with "not_finite" beside it.

        Raises: RunError if the record has no integer `step`; ResourceError or RunError if it cannot be written, and the
        log then ends where it ended before.
        """
        step = record.get("step")
        if isinstance(step, bool) or not isinstance(step, int):
            raise RunError(f"{self.path}: a record needs an integer `step`, which resume cuts by; got {step!r}")
        text = json.dumps(to_json_value(record), ensure_ascii=False, allow_nan=False)
        data = memoryview(text.encode("utf-8", "backslashreplace") + b"\n")
        if not self._has_clean_end:
            self._cut_torn_end()
        consequence = f"The record of step {step} is not in the log."
        with explaining(f"appending to {self.path}", consequence, RunError):
            handle = self._files.append(self.path)
            self._has_clean_end = False
            try:
                while data:
                    data = data[self._files.write(handle, data) :]
            finally:
                self._files.close(handle)
        self._has_clean_end = True

    def flush(self) -> None:
        """Returns when all lines are on the disk, so that no checkpoint survives a power cut that they do not."""
        if not self.path.exists():
            return
        consequence = "Its last lines may be lost in a power cut."
        with explaining(f"flushing {self.path} to the disk", consequence, RunError):
            handle = self._files.append(self.path)
            try:
                self._files.sync(handle)
            finally:
                self._files.close(handle)

    def truncate(self, step: int) -> None:
        """Removes the records of later steps, in one instant; -1 removes all.

        Records of `step` itself stay: the loop logs a step before it saves that step's checkpoint.

        Raises: RunError if the log is damaged elsewhere than at its end, or cannot be written.
        """
        if not self.path.exists():
            return
        data = self._read()
        kept = b"".join(line for line, record in _records(self.path, data) if record["step"] <= step)
        if kept != data:
            replace_file(self.path, kept, files=self._files)
        self._has_clean_end = True

    def records(self) -> list[dict[str, Any]]:
        """All complete records, oldest first; none where there is no log yet.

        Raises: RunError naming the line if one before the end cannot be read.
        """
        return [record for _, record in _records(self.path, self._read())] if self.path.exists() else []

    def _cut_torn_end(self) -> None:
        data = self._read() if self.path.exists() else b""
        kept = b"".join(line for line, _ in _records(self.path, data))
        if kept != data:
            replace_file(self.path, kept, files=self._files)
        self._has_clean_end = True

    def _read(self) -> bytes:
        refuse_special(self.path, RunError)
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read: {error.strerror}") from error


def _records(path: Path, data: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Each complete line with its record. Unreadable lines are passed over at the end and refused before it."""
    found: list[tuple[bytes, dict[str, Any]]] = []
    broken_line = 0
    for number, line in enumerate(io.BytesIO(data), start=1):  # split at line feeds alone
        record = _record(line)
        if record is None:
            broken_line = broken_line or number
        elif broken_line:
            raise RunError(
                f"{path}: line {broken_line} is no record (a JSON object with an integer `step`), yet records follow it. "
                "Remove that line, or move the file away, to go on."
            )
        else:
            found.append((line, record))
    return found


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    record = None
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        return None
    return record
