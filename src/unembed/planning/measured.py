"""How long a piece of work takes on this machine's cores: each distinct piece is tried, on as many processes as will train.

What a product of one shape reaches depends on caches, threads and library more than on any peak, so nothing here is
looked up. A piece is run forward and backward by autograd as in training, for long enough to be sure of its median; all
processes run the same pieces at the same time, since they share memory and perhaps cores. The next file to read is
trying.py, the other side of it.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from unembed.errors import SpecError
from unembed.planning.pieces import Piece
from unembed.planning.rates import Seconds
from unembed.planning.trying import Answer, Request

_NO_ANSWER_SECONDS = 300


class Measured:
    """Rates that were measured: each piece's seconds, the update's per number, a message's per byte and per call."""

    def __init__(
        self, found: dict[Piece, Seconds], update_each: float, byte_seconds: float, call_seconds: float
    ) -> None:
        self._found, self._update_each = found, update_each
        self._byte_seconds, self._call_seconds = byte_seconds, call_seconds

    def seconds(self, piece: Piece) -> Seconds:
        """What was measured for this piece."""
        return self._found[piece]

    def update(self, n_numbers: int) -> float:
        """In proportion to the parameters."""
        return n_numbers * self._update_each

    def collective(self, n_bytes: int, n_calls: int) -> float:
        """A line through a small and a large message."""
        return n_bytes * self._byte_seconds + n_calls * self._call_seconds


def measure(pieces: Iterable[Piece], *, processes: int = 1, threads: int = 1) -> Measured:
    """Tries the pieces in fresh processes, all at once, and takes the mean over the processes.

    Raises: SpecError where more processes are asked for than there are cores, or one of them fails.
    """
    wanted = sorted(set(pieces), key=repr)
    cores = os.cpu_count() or 1
    if processes > cores:
        raise SpecError(f"plan: {processes} processes were asked for and there are {cores} cores to try them on")
    port = _free_port() if processes > 1 else 0
    requests = [
        Request(pieces=wanted, threads=threads, rank=rank, processes=processes, port=port) for rank in range(processes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(requests, Path(folder), threads)
    seconds = [
        Seconds(*(statistics.fmean(answer.pieces[i][way] for answer in answers) for way in (0, 1)))
        for i in range(len(wanted))
    ]
    update, per_byte, per_call = (
        statistics.fmean(getattr(answer, key) for answer in answers) for key in ("update", "per_byte", "per_call")
    )
    return Measured(dict(zip(wanted, seconds, strict=True)), update, per_byte, per_call)


def _answers(requests: list[Request], folder: Path, threads: int) -> list[Answer]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    children = []
    for request in requests:
        asked, answered = folder / f"request-{request.rank}", folder / f"answer-{request.rank}"
        asked.write_bytes(msgspec.json.encode(request))
        command = [sys.executable, "-m", "unembed.planning.trying", str(asked), str(answered)]
        children.append(subprocess.Popen(command, stderr=subprocess.PIPE, env=environment))
    try:
        told = [child.communicate(timeout=_NO_ANSWER_SECONDS)[1] for child in children]
    except subprocess.TimeoutExpired as error:
        raise SpecError(
            f"plan: measuring this machine did not end in {_NO_ANSWER_SECONDS} seconds. Try fewer --devices"
        ) from error
    finally:
        for child in children:
            child.kill()
    for child, words in zip(children, told, strict=True):
        if child.returncode != 0:
            last = (words.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
            raise SpecError(f"plan: measuring this machine failed: {last[:200]}")
    answers = [(folder / f"answer-{request.rank}").read_bytes() for request in requests]
    return [msgspec.json.decode(answer, type=Answer) for answer in answers]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
