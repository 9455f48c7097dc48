"""Is what `unembed plan --device cpu` says true here? Three shapes, one process and two, memory and seconds of a step.

Each case is planned, then trained for some steps in fresh processes (peers/some_steps.py), then planned again: the machine is
shared, and two plans that differ say how far the number can be trusted. Seconds are those of processes that keep freed memory,
as a run does where there is room; memory is that of processes that give it back, which is what a run needs. The claims: memory
within 15 %, seconds within 25 %.

    python bench/planned.py --json bench/results/planned.json
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from common import make_parser, table, write_json
from unembed.model.presets import preset
from unembed.model.presets.gpt import gpt_spec
from unembed.model.presets.llama import Size, llama_spec
from unembed.model.spec import TransformerSpec
from unembed.planning.plan import plan
from unembed.planning.setup import Setup
from unembed.training.config import with_context_length

CHILD = Path(__file__).parent / "peers" / "some_steps.py"
CLAIMS = {"memory": 0.15, "seconds": 0.25}
SHAPES: dict[str, Callable[[int], TransformerSpec]] = {
    "gpt2": lambda n: with_context_length(preset("gpt2").spec, n),
    "gpt, 8 wide layers": lambda n: gpt_spec(
        vocab_size=8192, context_length=n, d_model=512, n_layers=8, n_heads=8, has_bias=False
    ),
    "llama, 12 layers": lambda n: llama_spec(Size(16_000, 384, 12, 6, 2, 64, 1024, n, True), eps=1e-5, theta=1e4),
}
# Shape, sequences of one process, tokens of a sequence.
CASES: tuple[tuple[str, int, int], ...] = (
    ("gpt2", 2, 128),
    ("gpt, 8 wide layers", 8, 256),
    ("llama, 12 layers", 8, 256),
)
KINDS: tuple[Literal["none", "ddp", "fsdp"], ...] = ("none", "ddp", "fsdp")


def trained(name: str, batch_size: int, context_length: int, kind: str, threads: int, steps: int) -> dict[str, float]:
    """What a few steps took, in seconds and in bytes."""
    case = (name, batch_size, context_length, kind, threads)
    return {"seconds": _ran(*case, steps, "kept")["seconds"], "bytes": _ran(*case, 3, "given-back")["bytes"]}


def _ran(
    name: str, batch_size: int, context_length: int, kind: str, threads: int, steps: int, freed: str
) -> dict[str, float]:
    words = [str(CHILD), name, *map(str, (batch_size, context_length, kind, threads, steps)), freed]
    start = [] if kind == "none" else ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    out = subprocess.run([sys.executable, *start, *words], capture_output=True, text=True, env=environment, check=False)
    if out.returncode != 0:
        raise RuntimeError(out.stderr[-1500:])
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def planned(name: str, batch_size: int, context_length: int, kind: Any, threads: int) -> dict[str, float]:
    """What the plan says of the same."""
    n = 1 if kind == "none" else 2
    setup = Setup(devices=n, parallel=kind, batch_size=batch_size, context_length=context_length, dtype="float32")
    found = plan(SHAPES[name](context_length), setup, device="cpu", threads=threads)
    return {"seconds": found.time.seconds, "bytes": found.memory.peak}


def main() -> int:
    """Plans, trains, prints; 1 if a claim does not hold."""
    parser = make_parser("plans for these cores beside what training takes")
    parser.set_defaults(rounds=1, threads=1)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    rows, points, worst = [], [], dict.fromkeys(CLAIMS, 0.0)
    for name, batch_size, context_length in CASES:
        for kind in KINDS:
            case = (name, batch_size, context_length, kind, options.threads)
            plans, real = [planned(*case)], trained(*case, options.steps)
            plans.append(planned(*case))
            seconds = statistics.fmean(one["seconds"] for one in plans)
            apart = abs(plans[0]["seconds"] - plans[1]["seconds"]) / seconds
            off = {"memory": plans[0]["bytes"] / real["bytes"] - 1, "seconds": seconds / real["seconds"] - 1}
            worst = {claim: max(worst[claim], abs(off[claim])) for claim in worst}
            row = [f"{name}, {batch_size} x {context_length}, {kind}", f"{real['bytes'] / 1e6:.0f}"]
            row += [f"{plans[0]['bytes'] / 1e6:.0f}", f"{off['memory']:+.0%}", f"{real['seconds']:.3f}"]
            rows.append([*row, f"{seconds:.3f}", f"{off['seconds']:+.0%}", f"{apart:.0%}"])
            points.append({"case": row[0], "trained": real, "planned": plans})
            print(rows[-1], file=sys.stderr)
    header = ["case", "MB", "planned", "off", "s a step", "planned", "off", "plans apart"]
    print(table(header, rows))
    for claim, bound in CLAIMS.items():
        print(f"{claim}: {worst[claim]:.0%} off at worst (claim: {bound:.0%})")
    write_json(options.json, {"cases": points, "worst": worst})
    return int(any(worst[claim] > bound for claim, bound in CLAIMS.items()))


if __name__ == "__main__":
    sys.exit(main())
