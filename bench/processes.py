"""Contenders in processes of their own that take turns: for what belongs to a whole process, as its memory does.

A training program decides how its process keeps memory, counts threads, and what it has imported; in one process the
contenders would share all that. So each is a child that does so many steps when it is told to and says how long they took;
only one works at a time. Before it: common.py. Next to read: train_step.py.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import Timing


class Worker:
    """A contender's process: `script --serve NAME ...`, which calls `serve`."""

    def __init__(self, script: str, name: str, words: Sequence[str]) -> None:
        command = [sys.executable, script, "--serve", name, *words]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str) -> Any:
        """Sends a line and waits for the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name}: its process ended without an answer")
        return json.loads(answer)

    def steps(self, n: int) -> float:
        """Seconds a step of `n` steps."""
        return float(self.ask(str(n)))

    def end(self) -> dict[str, float]:
        """Ends the process, and gives its peak resident memory in bytes and the loss of its last step."""
        found: dict[str, float] = self.ask("end")
        self.process.communicate()
        return found


def serve(step: Callable[[], float]) -> None:
    """The child's side: steps on demand, until it is told to end."""
    loss = float("nan")
    for line in sys.stdin:
        if line.strip() == "end":
            print(json.dumps({"peak_bytes": peak_bytes(), "last_loss_nats": loss}), flush=True)
            return
        started = time.perf_counter()
        for _ in range(int(line)):
            loss = step()
        print(json.dumps((time.perf_counter() - started) / max(1, int(line))), flush=True)


def peak_bytes() -> int:
    """The greatest resident size of this process so far."""
    status = Path("/proc/self/status")
    for line in status.read_text(encoding="utf-8").splitlines() if status.is_file() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def take_turns_apart(
    script: str, names: Sequence[str], words: Sequence[str], *, n_rounds: int, steps_per_round: int, n_warmup: int
) -> tuple[Timing, dict[str, dict[str, float]]]:
    """As common.take_turns, each contender in its own process; also what each said at its end."""
    workers = {name: Worker(script, name, words) for name in names}
    for worker in workers.values():
        worker.steps(n_warmup)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(n_rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            seconds[name].append(workers[name].steps(steps_per_round))
    return Timing(seconds=seconds), {name: worker.end() for name, worker in workers.items()}
