"""Time to a loss: whole processes of `unembed train`, recipe speedrun against recipe nanogpt-cpu, on the same text.

The claim: over three seeds the mean validation loss of speedrun is at most 1.90 nats on tinyshakespeare, in at most a quarter
of the wall time of nanogpt-cpu (median over rounds; nothing is compiled). Loss is `val_loss_nats`: every predicted token of the
last tenth of the text, context 64, for both. Wall time is that of the process, from its start to its end: importing, reading,
steps, evaluations, checkpoints. Each round is one seed, in which every contender runs once, in an order that moves on by one
place a round; a ratio is formed within a round. Tied and untied heads of speedrun are two contenders.

    python bench/speedrun.py ../shared/data/text/tinyshakespeare.txt --json bench/results/speedrun.json

The text defaults to tinyshakespeare.txt in $UNEMBED_TEST_DATA/text. Before it: common.py.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import machine_facts, spread, summary, table, write_json

BASELINE = "nanogpt-cpu"
CONTENDERS: dict[str, tuple[str, ...]] = {
    BASELINE: ("--recipe", "nanogpt-cpu"),
    "speedrun tied": ("--recipe", "speedrun", "--set", "tied=true"),
    "speedrun untied": ("--recipe", "speedrun", "--set", "tied=false"),
}
LOSS_NATS, SHARE, AIM = 1.90, 1 / 4, 1 / 6
MOST_PARAMETERS = 810_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process came to; `step_seconds` are those of its steps alone."""

    wall_seconds: float
    step_seconds: float
    val_loss_nats: float
    steps: int
    parameters: int


def run(text: Path, words: tuple[str, ...], *, seed: int, threads: int | None, folder: Path) -> Run:
    """One `unembed train` in a process and a compile cache of its own."""
    command = [sys.executable, "-m", "unembed", "train", str(text), *words, "--set", f"seed={seed}"]
    command += ["--out", str(folder / "run"), "--device", "cpu", "--quiet", "--format", "json"]
    if threads is not None:
        command += ["--threads", str(threads)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    wall_seconds = time.perf_counter() - started
    found = json.loads(done.stdout)
    return Run(
        wall_seconds=wall_seconds,
        step_seconds=found["seconds"],
        val_loss_nats=found["val_loss_nats"],
        steps=found["step"],
        parameters=found["parameters"],
    )


def measure(options: argparse.Namespace) -> dict[str, list[Run]]:
    """Every contender's runs, one a seed."""
    runs: dict[str, list[Run]] = {name: [] for name in options.only}
    for number in range(options.rounds):
        first = number % len(options.only)
        for name in options.only[first:] + options.only[:first]:
            with tempfile.TemporaryDirectory() as folder:
                words = (*CONTENDERS[name], *options.more)
                one = run(options.text, words, seed=number + 1, threads=options.threads, folder=Path(folder))
            runs[name].append(one)
            print(
                f"seed {number + 1}, {name}: {one.wall_seconds:.1f} s, {one.val_loss_nats:.4f} nats",
                file=sys.stderr,
                flush=True,
            )
    return runs


def shares(runs: dict[str, list[Run]]) -> dict[str, list[float]]:
    """Each contender's wall time as a share of the baseline's, round by round."""
    if BASELINE not in runs:
        return {}
    return {
        name: [one.wall_seconds / base.wall_seconds for one, base in zip(found, runs[BASELINE], strict=True)]
        for name, found in runs.items()
        if name != BASELINE
    }


def mean_loss(found: list[Run]) -> float:
    """The mean over seeds."""
    return sum(one.val_loss_nats for one in found) / len(found)


def verdict(name: str, found: list[Run], share: list[float] | None) -> str:
    """Whether the claim holds for this contender; nothing where nothing is claimed."""
    if name == BASELINE:
        return ""
    missed = [] if mean_loss(found) <= LOSS_NATS else [f"loss above {LOSS_NATS:.2f}"]
    missed += [] if found[0].parameters <= MOST_PARAMETERS else ["too many parameters"]
    if share is not None:
        median = summary(share)["median"]
        missed += [] if median <= SHARE else ["time above 1/4"]
        if not missed:
            return "holds, and 1/6" if median <= AIM else "holds"
    return f"MISSED: {', '.join(missed)}" if missed else "holds"


def parse() -> argparse.Namespace:
    """The command line."""
    data = os.environ.get("UNEMBED_TEST_DATA", "../shared/data")
    parser = argparse.ArgumentParser(description="wall time of whole processes to a validation loss")
    parser.add_argument("text", type=Path, nargs="?", default=Path(data) / "text" / "tinyshakespeare.txt")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each with a seed of its own (default 3)")
    parser.add_argument("--threads", type=int, help="threads of every contender (default: what each run chooses)")
    names = list(CONTENDERS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"some of: {names}")
    parser.add_argument("--more", type=shlex.split, default=[], metavar="TEXT", help="more words for every command")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the numbers to this file")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table; 1 if the claim does not hold on this machine."""
    options = parse()
    if not options.text.is_file():
        print(f"{options.text}: no such file. Name the text, or set UNEMBED_TEST_DATA", file=sys.stderr)
        return 2
    runs = measure(options)
    by_share = shares(runs)
    verdicts = {name: verdict(name, found, by_share.get(name)) for name, found in runs.items()}
    rows = [
        [
            name,
            str(found[0].steps),
            f"{found[0].parameters:,}",
            f"{mean_loss(found):.4f} ({min(r.val_loss_nats for r in found):.4f} - {max(r.val_loss_nats for r in found):.4f})",
            spread([one.wall_seconds for one in found], 1),
            spread([one.step_seconds for one in found], 1),
            spread(by_share[name], 3) if name in by_share else "",
            verdicts[name],
        ]
        for name, found in runs.items()
    ]
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['cpu_cores']} cores, torch {facts['torch']}; {options.rounds} seeds")
    header = [
        "contender",
        "steps",
        "parameters",
        "mean loss, nats",
        "wall s",
        "steps alone s",
        "share of wall",
        "claim",
    ]
    print(table(header, rows))
    values: dict[str, Any] = {
        name: {
            "steps": found[0].steps,
            "parameters": found[0].parameters,
            "mean_val_loss_nats": mean_loss(found),
            "val_loss_nats": [one.val_loss_nats for one in found],
            "wall_seconds": [one.wall_seconds for one in found],
            "step_seconds": [one.step_seconds for one in found],
            "share_of_wall": {**summary(by_share[name]), "rounds": by_share[name]} if name in by_share else None,
            "claim": verdicts[name],
        }
        for name, found in runs.items()
    }
    write_json(options.json, {"contenders": values, "loss_nats": LOSS_NATS, "share": SHARE, "rounds": options.rounds})
    return int(any(one.startswith("MISSED") for one in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
