"""A run is a folder: it can be killed at any instant and goes on exactly where it was.

    run.json        the spec, the recipe, the seed, the versions: what was asked for
    metrics.jsonl   a line per record (metrics.py); samples.jsonl: texts written on the way; tying.jsonl: the two gradients
    checkpoints/    step-000000/ step-000100/ ... (native.py)
    tokenizer.json  README.md  report.html

Anyone may read a run at any time. One process at a time may train into it: the first call that writes a checkpoint or a
metric takes the run's lock (lock.py) and clears what an interrupted process left. Next to read:
../../training/loop.py, which fills such a folder.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from unembed.checkpoints.files import (
    DISK,
    FileLayer,
    Written,
    discard,
    explaining,
    leftovers,
    replace_file,
)
from unembed.checkpoints.run import intact, lock, metrics, native
from unembed.checkpoints.run.description import RUN_FILE, encode_description, read_description
from unembed.checkpoints.run.native import Checkpoint
from unembed.checkpoints.run.shards import MODEL, MOMENTS
from unembed.errors import RunError
from unembed.places import check_output


class RunFolder:
    """A run on disk. `RunFolder.create` starts one, `RunFolder.open` finds one; `with run:` gives its lock back."""

    def __init__(self, path: Path, description: dict[str, Any], *, files: FileLayer = DISK) -> None:
        self.path = path
        self.description = description
        self._files = files
        self._logs = {name: metrics.MetricsLog(path / name, files=files) for name in metrics.LOGS}
        self._lock: lock.RunLock | None = None
        self._verified: dict[str, intact.Fingerprint] = {}

    @staticmethod
    def create(path: Path | str, *, description: Mapping[str, Any], files: FileLayer = DISK) -> "RunFolder":
        """Starts a run in a new or empty folder, takes its lock and writes run.json.

        Raises: RunError if a run or anything else is already there, or if the description is no plain JSON;
        ResourceError when the disk is full.
        """
        folder = Path(path)
        refuse_occupied(folder)
        run = RunFolder(folder, dict(description), files=files)
        data = encode_description(folder, description)
        with explaining(f"making the folder {folder}", "The run was not started.", RunError):
            files.make_folder(folder)
        run.lock()
        try:
            refuse_occupied(folder)  # again: another process may have been faster
            with explaining(f"making {run._checkpoints}", "The run was not started.", RunError):
                files.make_folder(run._checkpoints)
            replace_file(folder / RUN_FILE, data, files=files)
            with explaining(f"flushing {folder.parent} to the disk", "A power cut may undo the new run.", RunError):
                files.sync_folder(folder.parent)
        except BaseException:
            run.close()
            raise
        return run

    @staticmethod
    def open(path: Path | str, *, files: FileLayer = DISK) -> "RunFolder":
        """Opens a run that exists, for reading; the first method that writes takes its lock.

        Raises: RunError where there is no run, or where its run.json cannot be read.
        """
        folder = Path(path)
        return RunFolder(folder, read_description(folder), files=files)

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether a run was started in this folder; what `--resume` asks before it opens or creates one."""
        return (Path(path) / RUN_FILE).is_file()

    def lock(self) -> None:
        """Becomes the one writer of this run, and clears what an interrupted one left. Again is fine.

        Raises: RunError naming the process that is training into it.
        """
        if self._lock is None:
            self._lock = lock.RunLock.take(self.path)
            native.recover(self._checkpoints, files=self._files)
            for path in leftovers(self.path):
                discard(path, files=self._files)

    def close(self) -> None:
        """Gives the lock back; reading goes on working, and the next write takes it again."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def save_checkpoint(
        self, step: int, *, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: Mapping[str, Any]
    ) -> Path:
        """Saves the state after `step` steps; log that step's metrics before it, since a resume will not repeat them.

        Raises: ResourceError when space ran out, CheckpointError otherwise; what was saved before is untouched.
        """
        self._before_saving()
        path = native.write_checkpoint(
            self._checkpoints, step, weights=weights, optimizer=optimizer, state=state, files=self._files
        )
        self._verified[path.name] = intact.fingerprint(path)
        return path

    def begin_parts(self, step: int) -> None:
        """Makes ready for a checkpoint whose parts other processes write into `unfinished_parts`. Raises: CheckpointError."""
        self._before_saving()
        native.begin_checkpoint(self._checkpoints, step, folders=(MODEL, MOMENTS), files=self._files)

    def unfinished_parts(self, step: int) -> tuple[Path, Path]:
        """The folders for the parts of weights and of the optimizer, between `begin_parts` and `finish_parts`."""
        unfinished = native.unfinished_folder(self._checkpoints, step)
        return unfinished / MODEL, unfinished / MOMENTS

    def finish_parts(self, step: int, written: Mapping[str, Written], state: Mapping[str, Any]) -> Path:
        """Makes a checkpoint of parts that are on the disk, by their names in it. Raises: as `save_checkpoint`."""
        path = native.finish_checkpoint(self._checkpoints, step, written, state, files=self._files)
        self._verified[path.name] = intact.fingerprint(path)
        return path

    def _before_saving(self) -> None:
        self.lock()
        for log in self._logs.values():
            log.flush()
        with explaining(f"making {self._checkpoints}", "The checkpoint was not saved.", RunError):
            self._files.make_folder(self._checkpoints)

    def checkpoints(self) -> list[Checkpoint]:
        """All complete checkpoints by step. Each is read in full the first time, to hold it against its manifest."""
        return [found for found in map(self._examine, self._folders()) if isinstance(found, Checkpoint)]

    def checkpoint_of(self, step: int) -> Checkpoint:
        """The checkpoint of a step that another process has found whole; it is not read again here."""
        return Checkpoint(self._checkpoints / native.folder_name(step), step)

    def damaged(self) -> list[str]:
        """A sentence about each folder of a checkpoint that is not what was saved, oldest first."""
        found = [(folder, self._examine(folder)) for folder in self._folders()]
        return [f"{folder.name} is passed over: {why}" for folder, why in found if isinstance(why, str)]

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest complete checkpoint, and a sentence about each newer one that had to be passed over."""
        messages: list[str] = []
        for folder in reversed(self._folders()):
            found = self._examine(folder)
            if isinstance(found, Checkpoint):
                if messages:
                    messages.append(f"going back to {folder.name}")
                return found, messages
            messages.append(f"{folder.name} is passed over: {found}")
        if messages:
            messages.append("none of the checkpoints is complete")
        return None, messages

    def prune(self, *, keep: Iterable[int]) -> None:
        """Removes complete checkpoints whose step is not in `keep`, but never the last complete one.

        Damaged ones stay where they are: only a person can tell whether something in them is worth saving.

        Raises: CheckpointError where the disk refuses.
        """
        self.lock()
        kept = set(keep)
        for checkpoint in self.checkpoints()[:-1]:
            if checkpoint.step not in kept:
                native.remove_checkpoint(checkpoint.path, files=self._files)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds one record, with its `step`, to metrics.jsonl. Raises: RunError, ResourceError."""
        self._append(metrics.NAME, record)

    def append_sample(self, record: Mapping[str, Any]) -> None:
        """Adds what the model wrote, with its `step`, to samples.jsonl. Raises: as `append_metrics`."""
        self._append(metrics.SAMPLES, record)

    def append_tying(self, record: Mapping[str, Any]) -> None:
        """Adds what a step taught the token table, with its `step`, to tying.jsonl. Raises: as `append_metrics`."""
        self._append(metrics.TYING, record)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        self.lock()
        self._logs[name].append(record)

    def truncate_logs(self, step: int) -> None:
        """Removes the records of all logs of steps after `step`, which a resumed run will write again; -1 removes all."""
        self.lock()
        for log in self._logs.values():
            log.truncate(step)

    def metrics(self) -> list[dict[str, Any]]:
        """All complete records of metrics.jsonl, oldest first. Raises: RunError if the log is damaged."""
        return self._logs[metrics.NAME].records()

    def samples(self) -> list[dict[str, Any]]:
        """What the model wrote on its way, oldest first; none where none was asked for. Raises: as `metrics`."""
        return self._logs[metrics.SAMPLES].records()

    def tying(self) -> list[dict[str, Any]]:
        """What its steps taught the token table, oldest first; none where nothing was noted. Raises: as `metrics`."""
        return self._logs[metrics.TYING].records()

    def write_text(self, name: str, text: str) -> None:
        """Writes README.md, report.html, tokenizer.json beside run.json, in one instant; takes no lock.

        Raises: RunError if `name` is a path or one of the run's own files; ResourceError when the disk is full.
        """
        if (
            not name
            or name != Path(name).name
            or name.startswith(".")
            or name in {RUN_FILE, *metrics.LOGS, "checkpoints"}
        ):
            raise RunError(f"{self.path}: {name!r} is not the plain name of a file that may be written here")
        replace_file(self.path / name, text.encode("utf-8"), files=self._files)

    def write_description(self, description: Mapping[str, Any]) -> None:
        """Replaces run.json, as when a finished run is given more steps. Raises: as `create`."""
        self.lock()
        replace_file(self.path / RUN_FILE, encode_description(self.path, description), files=self._files)
        self.description = dict(description)

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def _folders(self) -> list[Path]:
        if not self._checkpoints.is_dir():
            return []
        steps = {step: path for path in self._checkpoints.iterdir() if (step := native.step_of(path)) is not None}
        return [steps[step] for step in sorted(steps)]

    def _examine(self, folder: Path) -> Checkpoint | str:
        """The checkpoint, or why it is none. A folder that has not changed since it was verified is not read again."""
        step = native.step_of(folder)
        fingerprint = intact.fingerprint(folder)
        if step is None or self._verified.get(folder.name) != fingerprint:
            if (reason := intact.why_incomplete(folder)) is not None:
                return reason
            self._verified[folder.name] = fingerprint
        return Checkpoint(folder, step if step is not None else -1)


def refuse_occupied(folder: Path) -> None:
    """Returns if a run can be started there. Raises: RunError for a run, a file or anything else that is in the way."""
    check_output(folder, RunError, is_folder=True)
    if (folder / RUN_FILE).is_file():
        raise RunError(
            f"{folder}: holds a run already. Go on with it by --resume, or choose another folder with --out."
        )
    # A start that was killed leaves a lock, an unfinished run.json and an empty folder for checkpoints: no obstacle.
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if names - {"checkpoints"} or any((folder / "checkpoints").glob("*")):
        raise RunError(f"{folder}: is not empty, and holds no run. Choose another folder with --out.")
