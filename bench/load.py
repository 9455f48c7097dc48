"""From a safetensors file of 500 MB to the first logits, beside transformers: seconds, and memory beyond the file.

The claims: in a fresh process at most half of transformers' time until the logits of 8 tokens are there, the file being in
the page cache, and at most half of it for loading alone; the same logits; and a peak resident size that grows by at most
1.15 times the file. The time between the imports and the logits is told and not claimed: most of it are the same matrix
products in both. Each loading is a process of its own (peers/first_logits.py); ratios are formed within a round.

    python bench/load.py --json bench/results/load.json
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from common import make_parser, spread, summary, table, write_json
from unembed.checkpoints.families.llama import FAMILY
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.model.init import Gpt2Init, build
from unembed.model.presets.llama import Size, llama_spec

CHILD = Path(__file__).parent / "peers" / "first_logits.py"
# 128,452,608 numbers, 514 MB in float32
SHAPE = Size(32_000, 1024, 5, 16, 16, 64, 2730, 2048, False)
CLAIMS = {"whole": 1 / 2, "loading": 1 / 2, "memory": 1.15, "logits": 2e-5}
CLOCKS = ("loading", "after imports", "whole")
KINDS = ("unembed", "transformers")


def make_file(folder: Path, size: Size = SHAPE) -> int:
    """Writes a random model of Llama's shape as transformers does; gives the bytes of its weights."""
    model = build(llama_spec(size, eps=1e-5, theta=1e4), Gpt2Init(std=0.02), seed=0)
    write_huggingface(model, folder, family=FAMILY)
    return (folder / "model.safetensors").stat().st_size


def warm(folder: Path) -> None:
    """Reads the file once, so that it is in the page cache before the first round."""
    with (folder / "model.safetensors").open("rb") as file:
        while file.read(2**24):
            pass


def measure(kind: str, folder: Path, threads: int) -> dict[str, Any]:
    """One loading in a fresh process."""
    command = [sys.executable, str(CHILD), kind, str(folder), str(threads)]
    # transformers asks the network for nothing when the folder is local, and must not try
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("from a file of 500 MB to the first logits")
    parser.set_defaults(rounds=4)
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file_bytes = make_file(folder)
        warm(folder)
        for number in range(options.rounds):
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                found[kind].append(measure(kind, folder, options.threads))
    seconds = {clock: {kind: [one[clock] for one in found[kind]] for kind in KINDS} for clock in CLOCKS}
    memory = {kind: [one["bytes"] / file_bytes for one in found[kind]] for kind in KINDS}
    ours, theirs = (torch.tensor(found[kind][0]["logits"]) for kind in KINDS)
    rows = [[kind, *(spread(seconds[clock][kind], 3) for clock in CLOCKS), spread(memory[kind], 3)] for kind in KINDS]
    print(table([f"{file_bytes / 1e6:.0f} MB", *(f"s {clock}" for clock in CLOCKS), "peak growth / file"], rows))
    measured = {
        "memory": max(memory["unembed"]),
        "logits": float((ours - theirs).abs().max()) / max(1.0, float(theirs.abs().max())),
    }
    for clock in CLOCKS:
        pairs = zip(seconds[clock]["unembed"], seconds[clock]["transformers"], strict=True)
        measured[clock] = summary([a / b for a, b in pairs])["median"]
    holds = {name: measured[name] <= limit for name, limit in CLAIMS.items()}
    for name, limit in CLAIMS.items():
        print(f"{'holds' if holds[name] else 'FAILS'}: {name} {measured[name]:.3g}, claimed at most {limit:.3g}")
    values = {"claims": CLAIMS, "measured": measured, "seconds": seconds, "growth_of_the_file": memory}
    write_json(options.json, values | {"file_bytes": file_bytes})
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
