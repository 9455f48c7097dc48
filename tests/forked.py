"""Commands in processes that are cheap to start: one interpreter has everything imported and forks itself for each.

A test that kills a hundred runs would otherwise spend its time on importing torch. What is killed is a process of its
own all the same, from outside, by the operating system. `Forks` is the test's side; run as a script, this file is the
interpreter that forks. Used by training/test_kills.py.
"""

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from commands import environment


class Forks:
    """Starts one command at a time. The process stays a zombie until `reap`, so its number is never another's."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "stdout", folder / "stderr"
        self.pid = 0
        tests = str(Path(__file__).parent)
        env = environment()
        env["PYTHONPATH"] = f"{env['PYTHONPATH']}{os.pathsep}{tests}"
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pid:
            self.kill()
        self._server.communicate()  # its input ends, and so does it

    def start(self, *arguments: str | Path) -> int:
        """Starts `unembed` with these arguments and gives the number of its process."""
        self._tell([str(self.out), str(self.err), *map(str, arguments)])
        self.pid = int(self._line())
        return self.pid

    def has_ended(self) -> bool:
        """Whether the process has come to its end, by itself or not."""
        return bool(select.select([self._server.stdout], [], [], 0)[0])

    def kill(self) -> int:
        """Ends the process by SIGKILL and gives its exit status: -9, or its own if it was faster."""
        os.kill(self.pid, signal.SIGKILL)
        return self.reap()

    def reap(self) -> int:
        """Waits for the end of the process and gives its exit status, negative for a signal."""
        assert self._line() == "ended"
        self._tell([])
        self.pid = 0
        return os.waitstatus_to_exitcode(int(self._line()))

    def _tell(self, words: list[str]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(words) + "\n")

    def _line(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the interpreter that forks has ended"
        return line.strip()


def serve(run: Callable[[list[str]], int]) -> None:
    """Forks for each line of standard input; tells the process's number, then its end, then (asked) its status."""
    while line := sys.stdin.readline():
        out, err, *arguments = json.loads(line)
        if (pid := os.fork()) == 0:
            _become(run, out, err, arguments)
        print(pid, flush=True)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        print("ended", flush=True)
        sys.stdin.readline()
        print(os.waitpid(pid, 0)[1], flush=True)


def _become(run: Callable[[list[str]], int], out: str, err: str, arguments: list[str]) -> None:
    code = 1
    try:
        for path, stream in ((os.devnull, 0), (out, 1), (err, 2)):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(handle, stream)
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import unembed.cli.sample
    import unembed.cli.train
    import unembed.recipes.nanogpt_cpu
    import unembed.recipes.start  # noqa: F401
    from unembed.cli.main import run

    serve(run)
