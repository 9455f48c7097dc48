"""Where a command puts what nobody named a place for."""

from pathlib import Path


def next_free(path: str) -> Path:
    """The path itself if nothing is there, otherwise with -2, -3, ... after it: an old run is never touched."""
    candidate, number = Path(path), 2
    while candidate.exists():
        candidate, number = Path(f"{path}-{number}"), number + 1
    return candidate
