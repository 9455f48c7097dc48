"""Runs `unembed` for a test: inside this process, with what it wrote caught, or as a command of its own.

`run` is quick and sees the run-time checks of conftest.py; `spawn` sees what users have: a fresh interpreter, real pipes
and signals. Both know nothing of pytest.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SRC = Path(__file__).parents[1] / "src"


class Done(NamedTuple):
    """What a command left: its exit code and the text of its two streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON object that `--format json` promises."""
        assert self.out.endswith("\n"), self
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)


class Screen(io.TextIOWrapper):
    """A stream into memory that may claim to be a terminal."""

    def __init__(self, is_terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.bytes.decode(self.encoding)

    @property
    def bytes(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


@contextmanager
def screens(*, is_terminal: bool = False, encoding: str = "utf-8") -> Iterator[tuple[Screen, Screen]]:
    """Puts two screens in the place of stdout and stderr."""
    out, err = Screen(is_terminal, encoding), Screen(is_terminal, encoding)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before


def run(*arguments: str | Path, is_terminal: bool = False) -> Done:
    """Runs a command line in this process."""
    from unembed.cli import main

    with screens(is_terminal=is_terminal) as (out, err):
        code = main.run([str(argument) for argument in arguments])
    return Done(code, out.text, err.text)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with the package found in src/ and one thread a process."""
    found = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
    found.pop("UNEMBED_TRACEBACK", None)
    return {**found, **changes}


def command(*arguments: str | Path) -> list[str]:
    """The command line of a child process."""
    return [sys.executable, "-m", "unembed", *map(str, arguments)]


def spawn(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Runs a command line as a process of its own."""
    done = subprocess.run(
        command(*arguments), cwd=cwd, env=environment(**(env or {})), capture_output=True, timeout=600, check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
