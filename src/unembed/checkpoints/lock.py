"""One writer for each run: a second process that would train into the same folder is told so before it writes.

The lock is the operating system's (flock on `.lock`), not the file: it ends with the process that holds it, however
that ends, so nothing is left behind to be cleaned up by hand. Readers take no lock. Next to read: run_folder.py.
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
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise RunError(
                f"{run}: cannot be written to: {error.strerror}. Choose another folder with --out."
            ) from error
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
        return cls(handle)

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""
        self._release()


def _forget_in_children(lock: RunLock) -> None:
    """A forked child (a data worker) inherits the descriptor, and would keep the lock after a killed parent."""
    reference = weakref.ref(lock)

    def forget() -> None:
        if (inherited := reference()) is not None:
            inherited.release()

    os.register_at_fork(after_in_child=forget)
