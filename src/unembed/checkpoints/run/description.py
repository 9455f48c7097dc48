"""run.json: what was asked for when a run began, read and written as strictly as everything else of it.

The next file to read is folder.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unembed.checkpoints.files import read_bounded
from unembed.checkpoints.formats import strict_json
from unembed.errors import RunError, suggest
from unembed.places import check_path, near_paths, shown

RUN_FILE = "run.json"
FORMAT_KEY, FORMAT = "run_format", 1
_RUN_LIMIT_BYTES = 64 * 2**20


def read_description(folder: Path) -> dict[str, Any]:
    """What a run folder's run.json holds. Raises: RunError where there is none, or where it cannot be read."""
    check_path(folder, RunError)
    if folder.is_file():
        raise RunError(
            f"{shown(folder)}: is a file, and a run is a folder. Give the folder that --out named when training."
        )
    check_path(folder / RUN_FILE, RunError)
    if (folder / RUN_FILE).is_dir():
        raise RunError(
            f"{shown(folder / RUN_FILE)}: is a folder, expected the file that training writes. Was it copied by hand?"
        )
    if not (folder / RUN_FILE).is_file():
        hint = suggest(near_paths(folder), "Give the folder that --out named when training.")
        raise RunError(f"{shown(folder)}: is no run (it has no {RUN_FILE}). {hint}")
    try:
        description = strict_json.decode(read_bounded(folder / RUN_FILE, _RUN_LIMIT_BYTES, kind=RunError))
    except ValueError as error:
        raise RunError(f"{folder / RUN_FILE}: is not the JSON that was written there: {error}") from error
    if not isinstance(description, dict) or description.pop(FORMAT_KEY, None) != FORMAT:
        raise RunError(
            f"{folder / RUN_FILE}: is not of format {FORMAT}. Another version of unembed may have written it."
        )
    return description


def encode_description(folder: Path, description: Mapping[str, Any]) -> bytes:
    """The bytes of a run.json. Raises: RunError if the description is no plain JSON."""
    if FORMAT_KEY in description:
        raise RunError(f"{folder}: a run's description may not hold the key {FORMAT_KEY!r}")
    try:
        return strict_json.encode({FORMAT_KEY: FORMAT, **description})
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{folder}: the run's description cannot be stored: {error}") from error
