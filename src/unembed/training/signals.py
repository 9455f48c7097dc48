"""SIGINT and SIGTERM, noted instead of obeyed at once, so that a training step can end and be saved.

The next file to read is ../generation/decode.py, which uses what was trained.
"""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unembed.training.processes import Processes

SIGNALS = ("SIGINT", "SIGTERM")


@contextmanager
def noted_signals(on_first: Callable[[str], None] = lambda name: None) -> Iterator[list[str]]:
    """Collects SIGINT and SIGTERM so that the step in progress can end; a second SIGINT stops at once.

    `on_first` is handed the name of the first one as it comes. It runs inside a signal handler: whatever it does may come
    in the middle of anything, a write to stderr included.
    """
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may change handlers; elsewhere signals are the caller's business
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)
        if len(received) == 1:
            on_first(received[0])

    before = {number: signal.signal(number, note) for number in map(signal.Signals.__getitem__, SIGNALS)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def named_by_any(received: list[str], processes: Processes) -> str | None:
    """The signal that this process or one that trains with it has received, the same for all of them; None for none."""
    flags = processes.any_of([name in received for name in SIGNALS])
    return next((name for name, is_up in zip(SIGNALS, flags, strict=True) if is_up), None)


def farewell(signal_name: str, step: int, run: Path | None, program: str = "unembed") -> str:
    """What a run says when a signal has stopped it after a step: that it is saved, and the command that goes on.

    >>> print(farewell("SIGINT", 3, Path("runs/my run")))
    stopped by SIGINT after step 3, which is saved.
    Go on with: unembed train --out 'runs/my run' --resume
    """
    if run is None:
        return f"stopped by {signal_name} after step {step}; nothing is saved, for this trainer has no run folder"
    command = f"{program} train --out {shlex.quote(str(run))} --resume"
    return f"stopped by {signal_name} after step {step}, which is saved.\nGo on with: {command}"
