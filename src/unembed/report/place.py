"""Where a page may be written: wherever nothing is, or a page of ours. The next files to read are write.py and one.py."""

from pathlib import Path

from unembed.errors import RunError
from unembed.places import check_output, shown
from unembed.report.page import GENERATOR

_HEAD_BYTES = 4096  # of a page, in which its generator is named


def check_page(path: str | Path) -> None:
    """Refuses to replace a file that is no page of ours, and to make folders that a slip of the finger named.

    Pipes and devices may be written to, and a file that holds nothing. Raises: RunError, UsageError for an empty name.
    """
    check_output(path, RunError)
    path = Path(path)
    if not path.parent.is_dir():
        raise RunError(
            f"{shown(path)}: the folder {shown(path.parent)} is not there. Make it first, or choose another place"
        )
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
        if start and not (start.lower().startswith(b"<!doctype html>") and GENERATOR.encode() in start):
            raise RunError(
                f"{shown(path)}: is there already, and is no report of unembed. It is left as it is; choose another name"
            )
