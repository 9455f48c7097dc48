"""One checkpoint of our own: a folder with weights, optimizer state, training state, and a manifest that vouches for them.

    step-000123/  model.safetensors  optimizer.safetensors  state.json  MANIFEST.json

Where many processes hold a part each, `model/` and `optimizer/` are folders of shards instead (shards.py); whoever reads a
checkpoint gets whole tensors from both.

A checkpoint is written beside its place under a name that begins with a dot, and moved there when it is complete and on
the disk; so a folder named step-... is whole unless something damaged it later, which its manifest tells. Next to read:
folder.py, which keeps many of these.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unembed.checkpoints.files import DISK, Bytes, FileLayer, Written, discard, explaining, read_bounded, write_file
from unembed.checkpoints.formats import strict_json
from unembed.checkpoints.formats.safetensors import clean_names, read_header, read_tensors
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.run.shards import MODEL, MOMENTS, read_shards, wholes
from unembed.errors import CheckpointError

WEIGHTS, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
FORMAT, SHARDED_FORMAT = "unembed-checkpoint-1", "unembed-sharded-1"

# What an interrupted save, replacement or removal leaves; never taken for a checkpoint.
SAVING, REPLACED, REMOVING = ".saving-", ".replaced-", ".removing-"

_STATE_LIMIT_BYTES = 64 * 2**20
MANIFEST_LIMIT_BYTES = 64 * 2**10
_FOLDER_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. What it holds is read when asked for, and mapped rather than copied."""

    path: Path
    step: int

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters by clean name; a shared table stands there once. Raises: CheckpointError."""
        if self.is_sharded:
            return read_shards(self.path / MODEL)
        return clean_names(read_tensors(self.path / WEIGHTS))

    def optimizer(self) -> dict[str, Tensor]:
        """The optimizer's tensors by the names under which they were saved. Raises: CheckpointError."""
        if self.is_sharded:
            return read_shards(self.path / MOMENTS)
        return read_tensors(self.path / OPTIMIZER)

    @property
    def is_sharded(self) -> bool:
        """Whether its tensors stand in parts, a file for each process that trained."""
        return (self.path / MODEL).is_dir()

    def shard_folders(self) -> tuple[Path, Path]:
        """Where the parts of weights and optimizer are."""
        return self.path / MODEL, self.path / MOMENTS

    def weight_names(self) -> set[str]:
        """The names under which the weights stand in the file. Raises: CheckpointError."""
        return set(wholes(self.path / MODEL) if self.is_sharded else read_header(self.path / WEIGHTS).tensors)

    @property
    def state(self) -> dict[str, Any]:
        """The training state as it was saved, numbers that are not finite included. Raises: CheckpointError."""
        return read_json_object(self.path / STATE, _STATE_LIMIT_BYTES)


def step_of(folder: Path) -> int | None:
    """The step in a checkpoint folder's name, or None for any other name.

    >>> step_of(Path("checkpoints/step-000123")), step_of(Path("checkpoints/.saving-step-000123"))
    (123, None)
    """
    match = _FOLDER_NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def folder_name(step: int) -> str:
    """`step-000123`: six digits, more where they are needed."""
    return f"step-{step:06d}"


def retained(steps: Iterable[int], *, best: int | None = None, keep_every: int | None = None) -> set[int]:
    """Which checkpoints to keep: step 0, the last two, the best, and every `keep_every`-th step.

    Analyses over training read the old ones; the last two are kept so that a damaged one is no loss.

    >>> sorted(retained(range(0, 1100, 100), best=300, keep_every=500))
    [0, 300, 500, 900, 1000]
    """
    present = sorted(set(steps))
    kept = {*present[-2:], *(step for step in present if step in (0, best))}
    if keep_every is not None and keep_every > 0:
        kept |= {step for step in present if step % keep_every == 0}
    return kept


def write_checkpoint(
    parent: Path,
    step: int,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    files: FileLayer = DISK,
) -> Path:
    """Writes a checkpoint so that at every instant the folder `step-...` is absent, the old one whole, or the new one whole.

    The one exception: where another complete checkpoint of the same step is replaced, its place is empty between two
    renames; `recover` puts the old one back if the process ends just there.

    Raises: ResourceError when space ran out, CheckpointError for other failures and for tensors or states that cannot be
    stored. All checkpoints that were there before are there still.
    """
    name = folder_name(step)
    pieces: dict[str, Iterable[Bytes]] = {
        WEIGHTS: encode_tensors(clean_names(weights), label=f"{name}/{WEIGHTS}"),
        OPTIMIZER: encode_tensors(optimizer, label=f"{name}/{OPTIMIZER}"),
    }
    state_bytes = _encode_state(name, state)
    try:
        temporary = begin_checkpoint(parent, step, files=files)
        written: dict[str, Written] = {}
        for file, chunks in pieces.items():
            written[file] = write_file(
                temporary / file, chunks, consequence=_consequence(name), kind=CheckpointError, files=files
            )
    except BaseException:
        abandon_checkpoint(parent, step, files=files)
        raise
    return finish_checkpoint(parent, step, written, state_bytes, files=files)


def begin_checkpoint(parent: Path, step: int, *, folders: Iterable[str] = (), files: FileLayer = DISK) -> Path:
    """Makes the unfinished folder of a checkpoint, with folders in it, for others to write into. Raises: CheckpointError."""
    name = folder_name(step)
    temporary = unfinished_folder(parent, step)
    with explaining(f"making the folder {temporary}", _consequence(name), CheckpointError):
        files.remove(temporary)
        files.make_folder(temporary)
        for folder in folders:
            files.make_folder(temporary / folder)
    return temporary


def finish_checkpoint(
    parent: Path,
    step: int,
    written: Mapping[str, Written],
    state: Mapping[str, Any] | bytes,
    *,
    files: FileLayer = DISK,
) -> Path:
    """Writes state and manifest beside files that are on the disk already, and moves all to its place in one instant.

    Raises: as `write_checkpoint`; what was unfinished is removed then.
    """
    name = folder_name(step)
    place, temporary, consequence = parent / name, unfinished_folder(parent, step), _consequence(name)
    try:
        state_bytes = state if isinstance(state, bytes) else _encode_state(name, state)
        here = dict(written)
        here[STATE] = write_file(
            temporary / STATE, [state_bytes], consequence=consequence, kind=CheckpointError, files=files
        )
        manifest = _manifest(step, here)
        write_file(temporary / MANIFEST, [manifest], consequence=consequence, kind=CheckpointError, files=files)
        with explaining(f"flushing {temporary} to the disk", consequence, CheckpointError):
            files.sync_folder(temporary)
        aside = parent / f"{REPLACED}{name}"
        with explaining(f"moving {temporary.name} to {place}", consequence, CheckpointError):
            if place.exists():
                files.remove(aside)
                files.rename(place, aside)
            files.rename(temporary, place)
    except BaseException:
        abandon_checkpoint(parent, step, files=files)
        raise
    with explaining(
        f"flushing {parent} to the disk", f"{name} is saved, but a power cut may undo it.", CheckpointError
    ):
        files.sync_folder(parent)
    discard(aside, files=files)
    return place


def unfinished_folder(parent: Path, step: int) -> Path:
    """Where a checkpoint is while it is written."""
    return parent / f"{SAVING}{folder_name(step)}"


def abandon_checkpoint(parent: Path, step: int, *, files: FileLayer = DISK) -> None:
    """Removes what is unfinished of a checkpoint; what its replacement put aside comes back."""
    recover(parent, files=files, only=folder_name(step))
    discard(unfinished_folder(parent, step), files=files)


def _consequence(name: str) -> str:
    return f"{name} was not saved; the checkpoints before it are untouched."


def _encode_state(name: str, state: Mapping[str, Any]) -> bytes:
    try:
        return strict_json.encode(dict(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{name}/{STATE}: the training state cannot be stored: {error}") from error


def remove_checkpoint(folder: Path, *, files: FileLayer = DISK) -> None:
    """Removes a checkpoint; a kill half way leaves a name that is no checkpoint's, not half a checkpoint.

    Raises: CheckpointError where the disk refuses.
    """
    doomed = folder.with_name(f"{REMOVING}{folder.name}")
    with explaining(f"removing {folder}", "It may be removed by hand.", CheckpointError):
        files.remove(doomed)
        files.rename(folder, doomed)
        files.remove(doomed)


def recover(parent: Path, *, files: FileLayer = DISK, only: str = "") -> None:
    """Clears what interrupted saves and removals left, and puts back a checkpoint whose replacement never came.

    Errors of the disk are left for the next try: nothing here is needed to go on.
    """
    for path in sorted(parent.glob(f".*-{only or 'step-*'}")):
        if path.name.startswith(REPLACED) and not (place := parent / path.name.removeprefix(REPLACED)).exists():
            try:
                files.rename(path, place)
            except OSError:
                continue
        elif path.name.startswith((SAVING, REPLACED, REMOVING)):
            discard(path, files=files)


def read_json_object(path: Path, limit_bytes: int) -> dict[str, Any]:
    """Reads a small JSON file that holds one object. Raises: CheckpointError naming the file and what is wrong."""
    try:
        value = strict_json.decode(read_bounded(path, limit_bytes))
    except ValueError as error:
        raise CheckpointError(f"{path}: is not the JSON that was written there: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, not an object")
    return value


def _manifest(step: int, written: Mapping[str, Written]) -> bytes:
    files = {name: {"bytes": file.n_bytes, "sha256": file.sha256} for name, file in written.items()}
    kind = FORMAT if WEIGHTS in written else SHARDED_FORMAT
    return json.dumps({"format": kind, "step": step, "files": files}, indent=1).encode() + b"\n"
