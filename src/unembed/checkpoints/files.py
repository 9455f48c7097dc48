"""How bytes reach the disk so that a kill, a full disk or a power cut leaves the old file or the new one, never half.

Everything that a run writes goes through a FileLayer: nine calls of the operating system, and nothing else. The product
uses DISK; the tests use a layer that fails, tears or kills at the call of their choice. An OSError leaves this file as
one of our errors that says what failed: ResourceError where space ran out, otherwise the kind that the caller names.
Next to read: formats/safetensors.py, the format in which tensors are such bytes.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from unembed.errors import CheckpointError, ResourceError, RunError, UnembedError
from unembed.places import refuse_special

# What a full disk, a quota, and a limit on a process's file size answer.
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Bytes = bytes | memoryview


@runtime_checkable
class FileLayer(Protocol):
    """The calls of the operating system by which a run is written. Each may raise OSError."""

    def create(self, path: Path) -> int:
        """Opens a new or emptied file for writing and gives its descriptor."""
        ...

    def append(self, path: Path) -> int:
        """Opens a file for writing at its end, creating it where there is none, and gives its descriptor."""
        ...

    def write(self, handle: int, data: Bytes) -> int:
        """Writes some of the bytes, at least one, and says how many."""
        ...

    def sync(self, handle: int) -> None:
        """Returns when the file's bytes are on the disk."""
        ...

    def close(self, handle: int) -> None:
        """Gives the descriptor back."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Puts a file or folder in another's place, in one instant."""
        ...

    def make_folder(self, path: Path) -> None:
        """Makes a folder and those above it; one that exists already is fine."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Returns when the names in a folder are on the disk."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file, or a folder with all it holds."""
        ...


class Disk:
    """The file layer of the product: the operating system's own calls."""

    def create(self, path: Path) -> int:
        """See FileLayer."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def append(self, path: Path) -> int:
        """See FileLayer."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: Bytes) -> int:
        """See FileLayer."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """See FileLayer."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """See FileLayer."""
        os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """See FileLayer."""
        os.replace(source, target)

    def make_folder(self, path: Path) -> None:
        """See FileLayer."""
        path.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, path: Path) -> None:
        """See FileLayer."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        """See FileLayer."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


DISK = Disk()


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a finished file holds, as a manifest records it."""

    n_bytes: int
    sha256: str


@contextmanager
def explaining(action: str, consequence: str, kind: type[UnembedError]) -> Iterator[None]:
    """Turns an OSError of the block into our own, which says what failed and what that means for the user.

    Raises: ResourceError when a disk, quota or file-size limit is full; otherwise `kind`.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        message = f"{action} failed: {reason}. {consequence}"
        if error.errno in NO_SPACE:
            raise ResourceError(f"{message} Make space there, or choose another disk, and try again.") from error
        raise kind(f"{message} Check that disk and its permissions, and try again.") from error


def write_file(
    path: Path, chunks: Iterable[Bytes], *, consequence: str, kind: type[UnembedError], files: FileLayer = DISK
) -> Written:
    """Writes a new file to the disk, flushed, and says what it holds. Not atomic: for names that nobody reads yet.

    Raises: ResourceError or `kind`, after giving the descriptor back; what was written stays for the caller to remove.
    """
    n_bytes, digest = 0, hashlib.sha256()
    with explaining(f"creating {path}", consequence, kind):
        handle = files.create(path)
    try:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            digest.update(view)
            while view:
                with explaining(f"writing {path} after {n_bytes:,} bytes", consequence, kind):
                    # a call may take fewer bytes than it was given; one that takes none would be repeated for ever
                    if not (taken := files.write(handle, view)):
                        raise OSError(errno.EIO, "the disk takes no more bytes")
                view, n_bytes = view[taken:], n_bytes + taken
        with explaining(f"flushing {path} to the disk", consequence, kind):
            files.sync(handle)
    except BaseException:
        with suppress(OSError):  # the error under way says more than a second one from closing
            files.close(handle)
        raise
    with explaining(f"closing {path}", consequence, kind):
        files.close(handle)
    return Written(n_bytes=n_bytes, sha256=digest.hexdigest())


def replace_file(
    path: Path, data: bytes | Iterable[Bytes], *, files: FileLayer = DISK, kind: type[UnembedError] = RunError
) -> None:
    """Gives a file new contents, whole or in chunks, in one instant: whoever reads it sees the old bytes or the new ones.

    The new bytes go to a sibling whose name begins with a dot and ends with this process's number, so that two
    processes do not write one sibling, and so that `leftovers` knows whose it was.

    Raises: ResourceError or `kind`; the old contents are then still there.
    """
    temporary = saving_name(path)
    consequence = f"{path.name} keeps its old contents." if path.exists() else f"{path.name} was not written."
    try:
        chunks = [data] if isinstance(data, bytes) else data
        write_file(temporary, chunks, consequence=consequence, kind=kind, files=files)
        with explaining(f"moving {temporary.name} to {path}", consequence, kind):
            files.rename(temporary, path)
    except BaseException:
        discard(temporary, files=files)
        raise
    with explaining(f"flushing {path.parent} to the disk", f"A power cut may undo the change of {path.name}.", kind):
        files.sync_folder(path.parent)


def saving_name(path: Path) -> Path:
    """Where `replace_file` of this process writes the new bytes of a file."""
    return path.with_name(f".{path.name}.saving-{os.getpid()}")


def discard(path: Path, *, files: FileLayer = DISK) -> None:
    """Removes what an interrupted write left; where that fails too, the next writer tries again (`leftovers`)."""
    with suppress(OSError):
        files.remove(path)


def leftovers(folder: Path) -> list[Path]:
    """Files that `replace_file` left unfinished in a folder, by processes that no longer exist."""
    found = []
    for path in sorted(folder.glob(".*.saving-*")):
        pid = path.name.rpartition("-")[2]
        if pid.isdecimal() and not is_alive(int(pid)):
            found.append(path)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process of that number runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it exists, and belongs to somebody else
        return True
    return True


def read_bounded(path: Path, limit_bytes: int, *, kind: type[UnembedError] = CheckpointError) -> bytes:
    """The bytes of a small file (a manifest, a state, a run.json), refused unread where it is larger than it can be.

    Raises: `kind`, naming the file and the limit.
    """
    refuse_special(path, kind)
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise kind(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    if len(data) > limit_bytes:
        raise kind(f"{path}: is larger than the {limit_bytes:,} bytes that such a file may have; it is not read")
    return data
