"""Writes beside a place and moves there when all is whole, so that a name never stands for half of a model.

What is unfinished has a hidden name that tells whose it is: the process, its machine, and a number drawn for it. It is
removed when the work fails or is stopped, by Ctrl-C, SIGTERM or SIGHUP; what SIGKILL left is removed by the next who
writes there. The next file to read is convert.py, which writes this way.
"""

import hashlib
import os
import platform
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unembed.checkpoints.files import DISK, discard, explaining, is_alive, saving_name
from unembed.errors import CheckpointError, UnembedError, UsageError

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Stopped(BaseException):
    """A signal came; the work is left, tidied up, and then the signal takes its course."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def written_beside(place: Path) -> Iterator[Path]:
    """Gives the hidden path to write at, and moves what stands there to `place` when the block is done.

    Raises: UsageError when something has come to `place` meanwhile; CheckpointError or ResourceError where the disk refuses.
    Messages of the block name `place`, which the user knows, and not the hidden path.
    """
    temporary = place.with_name(f".writing-{os.getpid()}-{_machine()}-{secrets.token_hex(4)}")
    consequence = f"{place} was not written."
    with _obeying_signals_after():
        try:
            with explaining(f"making {place}", consequence, CheckpointError):
                place.parent.mkdir(parents=True, exist_ok=True)
            for left in leftovers(place.parent):
                discard(left)
            yield temporary
            with explaining(f"moving what was written to {place}", consequence, CheckpointError):
                if place.exists():  # another process was there first
                    raise UsageError(f"{place}: was made by somebody else meanwhile; nothing is overwritten")
                DISK.rename(temporary, place)
                DISK.sync_folder(place.parent)
        except BaseException as error:
            discard(temporary)
            discard(saving_name(temporary))
            if isinstance(error, UnembedError) and (told := _by_its_name(str(error), temporary, place)) != str(error):
                raise type(error)(told) from error
            raise


def leftovers(folder: Path) -> list[Path]:
    """What `written_beside` left in a folder by processes of this machine that no longer run."""
    ours = re.compile(
        rf"\.(?:\.writing-(\d+)-{_machine()}-[0-9a-f]{{8}}\.saving-\d+|writing-(\d+)-{_machine()}-[0-9a-f]{{8}})"
    )
    found = []
    for path in sorted(folder.iterdir()):
        match = ours.fullmatch(path.name)
        if match is not None and not is_alive(int(match[1] or match[2])):
            found.append(path)
    return found


def _machine() -> str:
    """Eight characters for this machine: in a shared folder, another's process of the same number may be at work."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _by_its_name(message: str, temporary: Path, place: Path) -> str:
    for hidden in (saving_name(temporary), temporary):
        message = message.replace(str(hidden), str(place)).replace(hidden.name, place.name)
    return message


@contextmanager
def _obeying_signals_after() -> Iterator[None]:
    """Turns a signal that would end the process into an exception, and ends the process by it once the block has tidied up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change handlers
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for one in SIGNALS:  # a second signal need not wait for the tidying
            signal.signal(one, signal.SIG_DFL)
        raise _Stopped(number)

    # a handler that somebody else has set, and a signal that is ignored (nohup), stay as they are
    changed = [one for one in SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for one in changed:
        signal.signal(one, stop)
    try:
        yield
    except _Stopped as stopped:
        os.kill(os.getpid(), stopped.number)
        raise
    finally:
        for one in changed:
            signal.signal(one, signal.SIG_DFL)
