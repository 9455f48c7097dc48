"""Several processes that train together, cheap to start: one interpreter has everything imported and forks itself for each.

`Ranks` is the test's side. It plays torchrun: it sets its variables, watches the processes and can kill one. Run as a script,
this file is the interpreter that forks. A process runs a command of `unembed`, or a function of jobs.py. What one is told to
die of (`Death`) is put into its own code, so that a kill falls where it is meant to fall and not where chance has it.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

TESTS = Path(__file__).parents[1]
PATIENCE_SECONDS = 240


class Death(NamedTuple):
    """Which process dies, where (a name of deaths.py), and when it comes by there for the `count`-th time."""

    rank: int
    where: str
    count: int


class Ranks:
    """Starts groups of processes, one group at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids: list[int] = []
        paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
        env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self._server.communicate()

    def run(self, n: int, *arguments: str | Path, death: Death | None = None) -> list[int]:
        """Runs `unembed` in n processes and gives their exit statuses, negative for a signal."""
        return self._go(n, {"arguments": list(map(str, arguments)), "death": death})

    def call(self, n: int, job: str, options: dict[str, Any] | None = None) -> list[Any]:
        """Runs a function of jobs.py in n processes (1: alone, as without torchrun) and gives what each returns."""
        statuses = self._go(n, {"job": job, "options": options or {}})
        assert statuses == [0] * n, "\n".join(self.err(rank) for rank in range(n))
        return [json.loads(self.out(rank)) for rank in range(n)]

    def out(self, rank: int) -> str:
        """What a process wrote to stdout."""
        return (self.folder / f"stdout-{rank}").read_text()

    def err(self, rank: int) -> str:
        """What a process wrote to stderr."""
        return (self.folder / f"stderr-{rank}").read_text()

    def _go(self, n: int, task: dict[str, Any]) -> list[int]:
        assert self._server.stdin is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._server.stdin.write(json.dumps({"n": n, "port": port, "folder": str(self.folder), **task}) + "\n")
        self.pids = json.loads(self._line())
        statuses: list[int] = json.loads(self._line())
        self.pids = []
        return statuses

    def _line(self) -> str:
        assert self._server.stdout is not None
        assert select.select([self._server.stdout], [], [], PATIENCE_SECONDS)[0], "processes wait for each other"
        line = self._server.stdout.readline()
        assert line, "the interpreter that forks has ended"
        return line


def serve() -> None:
    """Forks a group for each line of standard input; tells the processes' numbers, then their statuses."""
    while line := sys.stdin.readline():
        task = json.loads(line)
        pids = []
        for rank in range(task["n"]):
            if (pid := os.fork()) == 0:
                _become(task, rank)
            pids.append(pid)
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)


def _become(task: dict[str, Any], rank: int) -> None:
    code = 1
    try:
        folder = Path(task["folder"])
        for path, stream in ((os.devnull, 0), (folder / f"stdout-{rank}", 1), (folder / f"stderr-{rank}", 2)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666), stream)
        if task["n"] > 1:
            os.environ |= _torchrun(rank, task["n"], task["port"])
        code = _work(task, rank)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _torchrun(rank: int, n: int, port: int) -> dict[str, str]:
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in ranks.items()}}


def _work(task: dict[str, Any], rank: int) -> int:
    from parallel import deaths, jobs
    from unembed.cli import main

    if "job" in task:
        found = getattr(jobs, task["job"])(**task["options"])
        print(json.dumps(found))
        return 0
    death: Sequence[Any] | None = task["death"]
    if death is not None and death[0] == rank:
        deaths.prepare(*death[1:])
    return main.run(task["arguments"])


if __name__ == "__main__":
    import torch
    import torch.distributed.checkpoint.hf_storage
    import torch.distributed.fsdp
    import torch.distributed.tensor

    from parallel import deaths, jobs  # noqa: F401

    torch.set_num_threads(1)
    serve()
