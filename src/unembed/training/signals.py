"""SIGINT and SIGTERM, noted instead of obeyed at once, so that a training step can end and be saved.

The next file to read is ../generation/decode.py, which uses what was trained.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_signals() -> Iterator[list[str]]:
    """Collects SIGINT and SIGTERM so that the step in progress can end; a second SIGINT stops at once."""
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may change handlers; elsewhere signals are the caller's business
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
