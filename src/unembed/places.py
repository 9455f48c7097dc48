"""What stands at a path, in words that a user can act on: said before anything is opened that could hang or mislead.

A path that is mistyped, leads in a circle, belongs to somebody else or is a pipe raises a dozen different OSErrors, or
none and then waits without end. Whoever opens what a user named asks here first. The next file to read is counting.py.
"""

import errno
import os
import stat
from pathlib import Path

from unembed.errors import UnembedError, UsageError, closest

LONGEST_SHOWN = 120
_MOST_NAMES = 2_000  # of a folder's names are compared with a mistyped one
_NOT_REGULAR = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def shown(path: str | Path, limit: int = LONGEST_SHOWN) -> str:
    """A path as messages quote it: the middle of a very long one is left out.

    >>> shown("runs/tour"), shown("x" * 500, 20)
    ('runs/tour', 'xxxxxxxxxx...xxxxxxx')
    """
    text = os.fspath(path)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[3 - (limit - limit // 2) :]}"


def check_path(path: str | Path, kind: type[UnembedError]) -> None:
    """Returns if a file or a folder stands there, or nothing at all. Raises: `kind` for whatever else there may be.

    What may stand there: a link that leads nowhere or in a circle, a pipe, a socket, a device, a file where the path
    needs a folder, and places that may not be looked at.
    """
    if (reason := why_unusable(path)) is not None:
        raise kind(f"{shown(path)}: {reason}")


def why_unusable(path: str | Path) -> str | None:
    """Why a path cannot be opened as a file or folder, with the next step; None where it can, or nothing is there."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except ValueError:
        return "holds a NUL character, which no path can hold. Check what made this name"
    except OSError as error:
        return _why_no_stat(path, error)
    for is_one, what in _NOT_REGULAR:
        if is_one(mode):
            return f"is no regular file but {what}. Write its content to a file first, and name that"
    if not _may(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        return "may not be read (permission denied). Change its permissions (chmod u+r), or name another"
    return None


def refuse_special(path: str | Path, kind: type[UnembedError]) -> None:
    """Returns if opening what stands there cannot hang, as a pipe, a socket or a device would. Raises: `kind`."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return  # opening it says why
    if any(is_one(mode) for is_one, _ in _NOT_REGULAR):
        raise kind(f"{shown(path)}: {why_unusable(path)}")


def check_output(path: str | Path, kind: type[UnembedError], *, is_folder: bool = False) -> None:
    """Returns if a file (or folder) can be made or replaced there, so that hours of work do not end at a wrong name.

    Raises: UsageError for an empty name, `kind` for a place where nothing can be written.
    """
    if not os.fspath(path):
        raise UsageError("the name of what is to be written is empty; give a path, or leave the option out")
    path = Path(path)
    if (reason := why_unusable(path)) is not None and not _is_stream(path):
        raise kind(f"{shown(path)}: {reason}")
    if path.is_dir() and not is_folder:
        raise kind(
            f"{shown(path)}: is a folder, expected a file. Name a file in it, such as {shown(path / 'report.html')}"
        )
    if path.exists() and not path.is_dir() and is_folder:
        raise kind(f"{shown(path)}: is a file, expected a folder. Choose another name")
    place = next(one for one in (path, *path.parents, Path()) if os.path.exists(one))
    if not _may(place, os.W_OK | (os.X_OK if place.is_dir() else 0)):
        closed = "the current folder" if place == Path() else shown(place)
        raise kind(f"{shown(path)}: cannot be written, for {closed} may not be changed. Choose another place")


def _is_stream(path: Path) -> bool:
    """A pipe or a device, such as /dev/stdout: nothing to read a model from, but a fine place to write to."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _may(path: Path, what: int) -> bool:
    return os.access(path, what, effective_ids=os.access in os.supports_effective_ids)


def _why_no_stat(path: Path, error: OSError) -> str | None:
    if error.errno == errno.ENOENT:
        if path.is_symlink():
            return f"is a link to {shown(os.readlink(path))}, where nothing is. Mend the link, or name the file itself"
        return None
    if error.errno == errno.ELOOP:
        return "is a link that leads back to itself. Remove it, or name the file itself"
    if error.errno == errno.ENOTDIR:
        file = next(parent for parent in path.parents if parent.exists())
        return f"{shown(file)} is a file, so nothing lies below it. Check the path"
    if error.errno == errno.EACCES:
        return (
            "may not be looked at (permission denied for a folder on the way). Change its permissions, or name another"
        )
    if error.errno == errno.ENAMETOOLONG:
        return f"is too long for a path ({len(os.fspath(path)):,} characters). Is it a text that was meant for another place?"
    return f"cannot be looked at ({error.strerror or type(error).__name__})"


def refuse_like(path: str | Path, like: str | None) -> None:
    """Refuses the name of a preset for a MODEL that says itself what shape it has. Raises: UsageError."""
    if like is not None:
        raise UsageError(
            f"{shown(path)}: says itself what shape it has; --like {like[:60]} is for a microGPT .bin, which does not. "
            "Leave it out"
        )


def near_paths(path: str | Path, *, n: int = 2) -> list[str]:
    """Paths that exist and are like one that does not: its first part that is missing, replaced by names beside it."""
    path = Path(path)
    missing = [part for part in (path, *path.parents) if not os.path.lexists(part)]
    if not missing or len(missing[-1].name) > 255:
        return []
    wrong = missing[-1]
    try:
        with os.scandir(wrong.parent) as found:
            names = [entry.name for entry, _ in zip(found, range(_MOST_NAMES), strict=False)]
    except OSError:
        return []
    close = closest(wrong.name, (name for name in sorted(names) if not name.startswith(".")), n=n, cutoff=0.6)
    rest = path.relative_to(wrong)
    return [
        str(wrong.parent / name / rest if (wrong.parent / name / rest).exists() else wrong.parent / name)
        for name in close
    ]
