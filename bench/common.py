"""What every benchmark shares: taking turns, paired ratios, the machine's facts, a table and a JSON file.

A ratio of two speeds measured apart says more about the machine's other work than about the programs. So contenders take
turns within one process: in each round each runs a stretch of the same number of calls, the order moves on by one place a
round, and ratios are formed within a round. The median over rounds is the result; least and greatest say how far to
trust it. Next to read: train_step.py.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds per call of each contender, one number a round, rounds in the order in which they were run."""

    seconds: Mapping[str, Sequence[float]]

    def rates(self, units_per_call: float) -> dict[str, list[float]]:
        """Units (tokens, bytes) per second of each contender and round."""
        return {name: [units_per_call / value for value in values] for name, values in self.seconds.items()}

    def speed_ratios(self, ours: str) -> dict[str, list[float]]:
        """How many times as fast as each other contender `ours` was, round by round.

        >>> Timing(seconds={"a": [1.0, 2.0], "b": [2.0, 2.0]}).speed_ratios("a")
        {'b': [2.0, 1.0]}
        """
        mine = self.seconds[ours]
        return {
            name: [other / own for own, other in zip(mine, values, strict=True)]
            for name, values in self.seconds.items()
            if name != ours
        }


def take_turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    n_rounds: int,
    calls_per_round: int,
    n_warmup: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Times each contender in each round, in an order that moves on by one place a round.

    `n_warmup` calls of each come first and are not counted: they fill caches and allocate optimizer states.
    """
    names = list(contenders)
    for name in names:
        for _ in range(n_warmup):
            contenders[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(n_rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            call = contenders[name]
            started = clock()
            for _ in range(calls_per_round):
                call()
            seconds[name].append((clock() - started) / calls_per_round)
    return Timing(seconds=seconds)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest.

    >>> summary([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def machine_facts() -> dict[str, Any]:
    """What a reader needs to judge a number, and nothing that tells whose machine it was."""
    return {
        "cpu": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right.

    >>> print(table(["name", "x"], [["ours", "1.00"], ["theirs", "10.00"]]))
    name        x
    ours     1.00
    theirs  10.00
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def spread(values: Sequence[float], digits: int) -> str:
    """`median (least - greatest)`, as a cell of a table."""
    found = summary(values)
    return f"{found['median']:,.{digits}f} ({found['min']:,.{digits}f} - {found['max']:,.{digits}f})"


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=2, help="threads for torch, the same for all (default 2)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds in which each contender has its turn")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the numbers to this file")
    return parser


def write_json(path: Path | None, values: Mapping[str, Any]) -> None:
    """Writes the numbers and the machine's facts, where a path was given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**values, "machine": machine_facts()}, indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
