"""One checkpoint of our own: a folder with weights, optimizer state, training state, and a manifest that vouches for them.

    step-000123/  model.safetensors  optimizer.safetensors  state.json  MANIFEST.json

A checkpoint is written beside its place under a name that begins with a dot, and moved there when it is complete and on
the disk; so a folder named step-... is whole unless something damaged it later, which its manifest tells. Next to read:
run_folder.py, which keeps many of these.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unembed.checkpoints import strict_json
from unembed.checkpoints.encode import encode_tensors
from unembed.checkpoints.files import DISK, Bytes, FileLayer, Written, discard, explaining, read_bounded, write_file
from unembed.checkpoints.safetensors import clean_names, read_tensors
from unembed.errors import CheckpointError

WEIGHTS, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
FORMAT = "unembed-checkpoint-1"

# What an interrupted save, replacement or removal leaves; never taken for a checkpoint.
SAVING, REPLACED, REMOVING = ".saving-", ".replaced-", ".removing-"

_STATE_LIMIT_BYTES = 64 * 2**20
_MANIFEST_LIMIT_BYTES = 64 * 2**10
# What vouches that a verified folder has not changed since: name, inode, size and time of each of its files.
Fingerprint = tuple[tuple[str, int, int, int], ...]
_FOLDER_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. What it holds is read when asked for, and mapped rather than copied."""

    path: Path
    step: int

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters by clean name; a shared table stands there once. Raises: CheckpointError."""
        return clean_names(read_tensors(self.path / WEIGHTS))

    def optimizer(self) -> dict[str, Tensor]:
        """The optimizer's tensors by the names under which they were saved. Raises: CheckpointError."""
        return read_tensors(self.path / OPTIMIZER)

    @property
    def state(self) -> dict[str, Any]:
        """The training state as it was saved, numbers that are not finite included. Raises: CheckpointError."""
        return read_json_object(self.path / STATE, _STATE_LIMIT_BYTES)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Opens a checkpoint folder after holding it against its manifest.

    Raises: CheckpointError saying what is missing or damaged.
    """
    folder = Path(path)
    if (reason := why_incomplete(folder)) is not None:
        raise CheckpointError(f"{folder}: {reason}. Use another checkpoint of that run, or copy this one again.")
    return Checkpoint(folder, read_json_object(folder / MANIFEST, _MANIFEST_LIMIT_BYTES)["step"])


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
    place, temporary = parent / name, parent / f"{SAVING}{name}"
    consequence = f"{name} was not saved; the checkpoints before it are untouched."
    pieces: dict[str, Iterable[Bytes]] = {
        WEIGHTS: encode_tensors(clean_names(weights), label=f"{name}/{WEIGHTS}"),
        OPTIMIZER: encode_tensors(optimizer, label=f"{name}/{OPTIMIZER}"),
    }
    try:
        state_bytes = strict_json.encode(dict(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{name}/{STATE}: the training state cannot be stored: {error}") from error
    try:
        with explaining(f"making the folder {temporary}", consequence, CheckpointError):
            files.remove(temporary)
            files.make_folder(temporary)
        written: dict[str, Written] = {}
        for file, chunks in (pieces | {STATE: [state_bytes]}).items():
            written[file] = write_file(
                temporary / file, chunks, consequence=consequence, kind=CheckpointError, files=files
            )
        manifest = _manifest(step, written)
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
        recover(parent, files=files, only=name)
        discard(temporary, files=files)
        raise
    with explaining(
        f"flushing {parent} to the disk", f"{name} is saved, but a power cut may undo it.", CheckpointError
    ):
        files.sync_folder(parent)
    discard(aside, files=files)
    return place


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


def why_incomplete(folder: Path) -> str | None:
    """What keeps a folder from being a complete checkpoint, or None. Reads every file once, for its SHA-256.

    No error leaves this function: whatever a damaged disk does is a reason to pass the checkpoint over.
    """
    try:
        manifest = read_json_object(folder / MANIFEST, _MANIFEST_LIMIT_BYTES)
    except CheckpointError as error:
        told = str(error).removeprefix(f"{folder / MANIFEST}: ")
        return f"{MANIFEST} {told}" if (folder / MANIFEST).exists() else "it has no manifest"
    if manifest.get("format") != FORMAT:
        return f"its manifest is of the format {manifest.get('format')!r}, not {FORMAT!r}"
    step, entries = manifest.get("step"), manifest.get("files")
    if type(step) is not int or (step_of(folder) is not None and step != step_of(folder)):
        return f"its manifest is that of step {step!r}"
    if not isinstance(entries, dict) or set(entries) != {WEIGHTS, OPTIMIZER, STATE}:
        return f"its manifest does not list {WEIGHTS}, {OPTIMIZER} and {STATE}"
    for name in (STATE, WEIGHTS, OPTIMIZER):
        if (reason := _why_changed(folder / name, entries[name])) is not None:
            return f"{name} {reason}"
    return None


def fingerprint(folder: Path) -> Fingerprint:
    """What tells whether a checkpoint's files may have changed, without reading them."""
    found = []
    for name in (WEIGHTS, OPTIMIZER, STATE, MANIFEST):
        try:
            stat = (folder / name).stat()
        except OSError:
            continue
        found.append((name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


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
    return json.dumps({"format": FORMAT, "step": step, "files": files}, indent=1).encode() + b"\n"


def _why_changed(path: Path, entry: object) -> str | None:
    if not isinstance(entry, dict) or type(entry.get("bytes")) is not int or not isinstance(entry.get("sha256"), str):
        return "has no size and sum in the manifest"
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"has {size:,} bytes; its manifest says {entry['bytes']:,}"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or type(error).__name__}"
    return None if digest == entry["sha256"] else "is not what was saved: its SHA-256 differs from the manifest's"
