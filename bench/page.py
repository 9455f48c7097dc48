"""Runs the benchmarks one after the other and writes what they print to docs/benchmarks.md, beside the machine's facts.

A script's section is its own docstring's first paragraphs, the command, and its whole output, claims that fail included: the
page says what was measured, not what was hoped for. Sections of scripts that are not run stay as they are, so one claim can
be measured again alone; with other machines or versions in between, each section carries its own facts and date.

    python bench/page.py                               every script (`make bench`; about an hour)
    python bench/page.py decode lens -- --rounds 2     these, with options of their own

Nothing else should run on the machine meanwhile. Before it: common.py.
"""

import argparse
import ast
import datetime
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import machine_facts

BENCH = Path(__file__).parent
PAGE = BENCH.parent / "docs" / "benchmarks.md"
# Not one claim a script: what they share, and a study that takes hours.
NO_CLAIM = {"common", "processes", "ideas", "page"}
HEADER = """# Benchmarks

What each script of `bench/` printed when it was last run by `make bench`. A claim about speed is a ratio of contenders that
took turns in one run; seconds alone are those of the machine named in the section. A line that begins with FAILS, or a
number beyond its claim, is a claim that did not hold there.

<!-- Written by bench/page.py. Run a script again rather than edit its section. -->
"""


def scripts() -> dict[str, Path]:
    """Every benchmark by its name, in order."""
    return {path.stem: path for path in sorted(BENCH.glob("*.py")) if path.stem not in NO_CLAIM}


def about(path: Path) -> str:
    """The script's docstring without the command at its end."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n    python ")[0]


def sections(page: str) -> dict[str, str]:
    """The sections of a page as it was written, by script.

    >>> sections("# Benchmarks\\n\\n## decode\\n\\nold\\n\\n## lens\\n\\nnew\\n")
    {'decode': 'old', 'lens': 'new'}
    """
    parts = re.split(r"^## ([a-z0-9_]+)$", page, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def section(path: Path, words: Sequence[str], output: str, facts: Mapping[str, object]) -> str:
    """What stands under the heading of one script."""
    command = " ".join(["python", f"bench/{path.name}", *words])
    machine = f"{facts['cpu']}, {facts['cpu_cores']} cores, {facts['system']}, Python {facts['python']}, "
    day = datetime.date.today().isoformat()
    lines = [about(path), "", "```text", f"$ {command}", output.strip(), "```", ""]
    return "\n".join([*lines, f"{day}: {machine}torch {facts['torch']}."])


def written(found: Mapping[str, str]) -> str:
    """The whole page; scripts that are gone leave it, and those that were never run are named."""
    missing = [f"`{name}`" for name in scripts() if name not in found]
    parts = [HEADER]
    if missing:
        parts.append(f"Not yet run: {', '.join(missing)}.\n")
    parts += [f"## {name}\n\n{found[name]}\n" for name in scripts() if name in found]
    return "\n".join(parts)


def main() -> int:
    """Runs, and writes the page after each script; 1 if a script ended with an error or a claim that does not hold."""
    own, words = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(description="run benchmarks and write docs/benchmarks.md")
    parser.add_argument("names", nargs="*", metavar="SCRIPT", help=f"some of {', '.join(scripts())} (default all)")
    names = parser.parse_args(own).names or list(scripts())
    if unknown := sorted(set(names) - scripts().keys()):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(scripts())}")
    found = sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    failed = []
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, scripts()[name], *words], capture_output=True, text=True, check=False)
        print(done.stdout, flush=True)
        print(done.stderr, file=sys.stderr, end="", flush=True)
        if done.returncode:
            failed.append(name)
        # 1 says that a claim does not hold, and is also how Python ends on an exception
        if done.returncode in (0, 1) and "Traceback (most recent call last)" not in done.stderr:
            found[name] = section(scripts()[name], words, done.stdout, machine_facts())
            PAGE.write_text(written(found), encoding="utf-8")
    if failed:
        print(f"claims that do not hold here, or scripts that stopped: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before `--` and what behind it, which belongs to the scripts."""
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


if __name__ == "__main__":
    sys.exit(main())
