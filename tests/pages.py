"""Runs the code blocks of a Markdown page as a reader would: from top to bottom, in one folder.

A block ```console or ```python is preceded, on the line above its fence, by one of

    <!-- run -->                the commands must succeed
    <!-- run, output -->        and what the page shows of their output must come, in this order
    <!-- not run: reason -->    the block is left alone

In a console block a command begins with `$ ` (a backslash at the end of a line continues it); the lines below it are its
output. All Python blocks of a page are one program, cut in pieces. Numbers in shown output stand for any number, and a
line `...` for any lines: machines differ. The next file to read is test_readme.py.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commands import environment

TIMEOUT_SECONDS = 1800
# A number with its separators, its sign, exponent and unit of size: 1,234 or 1.5e-3.
NUMBER = re.compile(r"[-+−]?\d[\d,._]*(e[-+]?\d+)?")


class Block(NamedTuple):
    """One fenced block: its language, its lines, and what the comment above it says ("" when there is none)."""

    line: int
    language: str
    lines: list[str]
    told: str

    @property
    def runs(self) -> bool:
        return self.told in ("run", "run, output")


class Command(NamedTuple):
    """One command of a console block, and the output that the page shows below it."""

    text: str
    output: list[str]


def blocks(page: str) -> list[Block]:
    """The console and Python blocks of a page."""
    found, lines = [], page.splitlines()
    at = 0
    while at < len(lines):
        fence = re.fullmatch(r"```(\w*)", lines[at])
        if fence is None:
            at += 1
            continue
        end = next((i for i in range(at + 1, len(lines)) if lines[i] == "```"), len(lines))
        comment = re.fullmatch(r"<!-- (.*) -->", lines[at - 1]) if at else None
        if fence[1] in ("console", "python"):
            found.append(Block(at + 1, fence[1], lines[at + 1 : end], comment[1] if comment else ""))
        at = end + 1
    return found


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block, each with the output below it."""
    found: list[Command] = []
    continues = False
    for line in block.lines:
        if continues:
            last = found.pop()
            found.append(Command(last.text + "\n" + line, last.output))
        elif line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif found:
            found[-1].output.append(line)
        else:
            raise ValueError(f"line {block.line}: a console block begins with a command, `$ `")
        continues = line.endswith("\\") and not found[-1].output
    return found


def missing(shown: Sequence[str], came: str) -> str | None:
    """The first line of the shown output that did not come after those before it; None when all came."""
    left = [_masked(line) for line in came.splitlines()]
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        if _masked(line) not in left:
            return line
        left = left[left.index(_masked(line)) + 1 :]
    return None


def faults(page: str, folder: Path) -> list[str]:
    """Runs a page in a folder and gives everything that did not go as it says."""
    found: list[str] = []
    program = ""
    variables = environment(PATH=f"{_shim(folder)}{os.pathsep}{os.environ['PATH']}")
    for block in blocks(page):
        if not block.runs:
            continue
        checks = block.told == "run, output"
        if block.language == "python":
            before, program = program, program + "\n".join(block.lines) + "\n"
            code, came = _run(
                [sys.executable, "-c", before + "print('\\0')\n" + program[len(before) :]], folder, variables
            )
            came = came.rpartition("\0")[2]
            shown: list[str] = []
            found += _told(block, "python", code, came, shown)
            continue
        for command in commands_of(block):
            code, came = _run(["sh", "-ec", command.text], folder, variables)
            found += _told(block, command.text, code, came, command.output if checks else [])
    return found


def _told(block: Block, text: str, code: int, came: str, shown: Sequence[str]) -> list[str]:
    where = f"line {block.line}: {text}"
    if code:
        return [f"{where}: exit code {code}\n{came[-2000:]}"]
    absent = missing(shown, came)
    return [] if absent is None else [f"{where}: the page shows {absent!r}, but there came\n{came[-2000:]}"]


def _run(line: list[str], folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        line,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def _shim(folder: Path) -> Path:
    """A folder with a command `unembed` that runs this checkout, whether or not it is installed."""
    place = folder / ".bin"
    place.mkdir()
    for name, module in (("unembed", "-m unembed "), ("python", "")):
        script = place / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        script.chmod(0o755)
    return place


def _masked(line: str) -> str:
    return " ".join(NUMBER.sub("#", line).split())
