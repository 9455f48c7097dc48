"""One writer for each run: a second process that would train into the same folder is told so before it writes.

The lock is the operating system's (flock on `.lock`), not the file: it ends with the process that holds it, however
that ends, so nothing is left behind to be cleaned up by hand. Readers take no lock. Next to read: folder.py.
"""

import fcntl
import logging
import os
import socket
import weakref
from pathlib import Path
from typing import Self

from unembed.errors import RunError

logger = logging.getLogger(__name__)

NAME = ".lock"
_TRIES = 10


class RunLock:
    """Holds a run's lock until it is released or forgotten; `take` is the way to make one."""

    def __init__(self, handle: int) -> None:
        self._release = weakref.finalize(self, os.close, handle)
        _forget_in_children(self)

    @classmethod
    def take(cls, run: Path) -> Self:
        """Takes the lock of a run folder that exists, without waiting.

        Raises: RunError when another process, or another object of this one, holds it, saying which.
        """
        path = run / NAME
        for _ in range(_TRIES):
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise RunError(
                    f"{run}: cannot be written to: {error.strerror}. Choose another folder with --out."
                ) from error
            _lock(handle, run)
            if _is_at(handle, path):
                return cls(handle)
            os.close(handle)  # its holder has undone the run meanwhile, the file included: that lock guards nothing
        raise RunError(f"{run}: another process makes and removes this run again and again. Choose another folder.")

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""
        self._release()


def _lock(handle: int, run: Path) -> None:
    """Locks an open file, and leaves a note there about who did. Raises: RunError after closing it if it is taken."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BlockingIOError:
        holder = os.pread(handle, 200, 0).decode("utf-8", "replace") or "another process"
        os.close(handle)
        raise RunError(
            f"{run}: {holder} is training into this run. Wait until it ends, stop it, or choose another folder with "
            "--out."
        ) from None
    except OSError as error:
        # Some network disks have no locks, and a full disk no room for the note. Both can still hold a run.
        logger.warning("%s: a second training process may not be noticed: %s", run, error.strerror)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), named)


def _forget_in_children(lock: RunLock) -> None:
    """A forked child (a data worker) inherits the descriptor, and would keep the lock after a killed parent."""
    reference = weakref.ref(lock)

    def forget() -> None:
        if (inherited := reference()) is not None:
            inherited.release()

    os.register_at_fork(after_in_child=forget)
