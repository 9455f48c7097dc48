"""How long a piece of work takes on this machine's cores: each distinct piece is tried, on as many processes as will train.

What a product of one shape reaches depends on caches, threads and library more than on any peak, so nothing here is
looked up. A piece is run forward and backward by autograd as in training, for long enough to be sure of its median; all
processes run the same pieces at the same time, since they share memory and perhaps cores. A piece that would take many
seconds is tried with fewer rows, and counts in proportion. The next file to read is trying.py, the other side of it.
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
from unembed.model.spec import Attention
from unembed.planning.pieces import Piece
from unembed.planning.rates import Seconds
from unembed.planning.trying import Answer, Request

_NO_ANSWER_SECONDS = 300
# What a child runs.
TRYING = "unembed.planning.trying"
# Of one try, forward: about half a second of one core. Both are far beyond every cache, where time grows with the rows.
MOST_FLOPS, MOST_NUMBERS = 2e10, 1 << 24
# With fewer rows a product would reach less than in training; a sequence that is cut keeps so many tokens.
LEAST_ROWS, LEAST_TOKENS = 128, 512


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


def trimmed(piece: Piece) -> tuple[Piece, float]:
    """The piece as it is tried, and how many times as much work the whole one is.

    Rows are independent, and attention over a sequence grows with its square. A lookup keeps four rows for each of its
    table's at least: the table's gradient takes the same time whatever the rows, and must not count many times.

    >>> trimmed(Piece("head", "loss", (1 << 20, 1 << 16)))
    (Piece(part='head', kind='loss', shape=(256, 65536), what=None), 4096.0)
    """
    if isinstance(piece.what, Attention):
        batch_size, n = piece.shape
        width = piece.what.n_heads * piece.what.d_head
        each = 4 * width * n * n
        fewer = min(batch_size, max(1, int(min(MOST_FLOPS / each, MOST_NUMBERS / (width * n)))))
        shorter = min(n, max(LEAST_TOKENS, int(n * min(1.0, MOST_FLOPS / each) ** 0.5)))
        return piece._replace(shape=(fewer, shorter)), batch_size / fewer * (n / shorter) ** 2
    rows, width = piece.shape[:2]
    most = MOST_NUMBERS / max(piece.shape[1:])
    if piece.kind == "product":
        most = min(most, MOST_FLOPS / (2 * width * piece.shape[2]))
    elif piece.kind == "lookup":
        most = max(most, 4 * int(str(piece.what)))
    fewer = min(rows, max(LEAST_ROWS, int(most)))
    return piece._replace(shape=(fewer, *piece.shape[1:])), rows / fewer


def measure(pieces: Iterable[Piece], *, processes: int = 1, threads: int = 1) -> Measured:
    """Tries the pieces in fresh processes, all at once, and takes the mean over the processes.

    Raises: SpecError where more processes are asked for than there are cores, or one of them fails.
    """
    smaller = {piece: trimmed(piece) for piece in pieces}
    wanted = sorted({piece for piece, _ in smaller.values()}, key=repr)
    cores = os.cpu_count() or 1
    if processes > cores:
        raise SpecError(f"plan: {processes} processes were asked for and there are {cores} cores to try them on")
    port = _free_port() if processes > 1 else 0
    requests = [
        Request(pieces=wanted, threads=threads, rank=rank, processes=processes, port=port) for rank in range(processes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(requests, Path(folder), threads)
    took = {
        piece: [statistics.fmean(answer.pieces[i][way] for answer in answers) for way in (0, 1)]
        for i, piece in enumerate(wanted)
    }
    found = {piece: Seconds(*(times * one for one in took[tried])) for piece, (tried, times) in smaller.items()}
    update, per_byte, per_call = (
        statistics.fmean(getattr(answer, key) for answer in answers) for key in ("update", "per_byte", "per_call")
    )
    return Measured(found, update, per_byte, per_call)


def _answers(requests: list[Request], folder: Path, threads: int) -> list[Answer]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    children = []
    for request in requests:
        asked, answered = folder / f"request-{request.rank}", folder / f"answer-{request.rank}"
        asked.write_bytes(msgspec.json.encode(request))
        command = [sys.executable, "-m", TRYING, str(asked), str(answered)]
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
    for request, child, words in zip(requests, children, told, strict=True):
        # one that has answered may be aborted as it leaves, when gloo's threads outlive what they work on
        if child.returncode != 0 and not (folder / f"answer-{request.rank}").exists():
            last = (words.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
            raise SpecError(f"plan: measuring this machine failed: {last[:200]}")
    answers = [(folder / f"answer-{request.rank}").read_bytes() for request in requests]
    return [msgspec.json.decode(answer, type=Answer) for answer in answers]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
