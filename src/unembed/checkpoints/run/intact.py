"""Is a checkpoint what was saved? Every file is held against the manifest, and nobody takes a damaged one for whole.

Before it: native.py, which writes the manifest. Next to read: folder.py, which goes back to an older checkpoint where the
newest one is damaged.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from unembed.checkpoints.run.native import (
    FORMAT,
    MANIFEST,
    MANIFEST_LIMIT_BYTES,
    OPTIMIZER,
    SHARDED_FORMAT,
    STATE,
    WEIGHTS,
    Checkpoint,
    read_json_object,
    step_of,
)
from unembed.checkpoints.run.shards import MODEL, MOMENTS, shard_files
from unembed.errors import CheckpointError

# What vouches that a verified folder has not changed since: name, inode, size and time of each of its files.
Fingerprint = tuple[tuple[str, int, int, int], ...]
_SHARD_NAME = re.compile(rf"({MODEL}|{MOMENTS})/[\w-]+\.safetensors")


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Opens a checkpoint folder after holding it against its manifest.

    Raises: CheckpointError saying what is missing or damaged.
    """
    folder = Path(path)
    if (reason := why_incomplete(folder)) is not None:
        raise CheckpointError(f"{folder}: {reason}. Use another checkpoint of that run, or copy this one again.")
    return Checkpoint(folder, read_json_object(folder / MANIFEST, MANIFEST_LIMIT_BYTES)["step"])


def why_incomplete(folder: Path) -> str | None:
    """What keeps a folder from being a complete checkpoint, or None. Reads every file once, for its SHA-256.

    No error leaves this function: whatever a damaged disk does is a reason to pass the checkpoint over.
    """
    try:
        manifest = read_json_object(folder / MANIFEST, MANIFEST_LIMIT_BYTES)
    except CheckpointError as error:
        told = str(error).removeprefix(f"{folder / MANIFEST}: ")
        return f"{MANIFEST} {told}" if (folder / MANIFEST).exists() else "it has no manifest"
    if manifest.get("format") not in (FORMAT, SHARDED_FORMAT):
        return f"its manifest is of the format {manifest.get('format')!r}, not {FORMAT!r}"
    step, entries = manifest.get("step"), manifest.get("files")
    if type(step) is not int or (step_of(folder) is not None and step != step_of(folder)):
        return f"its manifest is that of step {step!r}"
    if not isinstance(entries, dict):
        entries = {}
    if manifest["format"] == SHARDED_FORMAT:
        if (reason := _why_no_shards(folder, entries)) is not None:
            return reason
    elif set(entries) != {WEIGHTS, OPTIMIZER, STATE}:
        return f"its manifest does not list {WEIGHTS}, {OPTIMIZER} and {STATE}"
    for name in sorted(entries, key=lambda name: (name != STATE, name)):
        if (reason := _why_changed(folder / name, entries[name])) is not None:
            return f"{name} {reason}"
    return None


def _why_no_shards(folder: Path, entries: Mapping[str, object]) -> str | None:
    """What is wrong with the files that a manifest lists for a checkpoint in parts, before any is read."""
    listed = set(entries) - {STATE}
    if not listed or STATE not in entries or not all(_SHARD_NAME.fullmatch(name) for name in listed):
        return f"its manifest does not list {STATE} and the shards of {MODEL} and {MOMENTS}"
    there = {str(file.relative_to(folder)) for part in (MODEL, MOMENTS) for file in shard_files(folder / part)}
    if stray := sorted(there - listed):  # whoever reads shards reads all that are there
        return f"{stray[0]} is not in its manifest"
    return None


def fingerprint(folder: Path) -> Fingerprint:
    """What tells whether a checkpoint's files may have changed, without reading them."""
    found = []
    shards = [file for part in (MODEL, MOMENTS) for file in shard_files(folder / part)]
    for path in (*(folder / name for name in (WEIGHTS, OPTIMIZER, STATE, MANIFEST)), *shards):
        try:
            stat = path.stat()
        except OSError:
            continue
        found.append((str(path.relative_to(folder)), stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


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
