"""Does the cost of a step grow as docs/scale.md says, when tokens, sequences, width and depth are doubled one at a time?

One shape is the middle of four rows; along each row one size is doubled again and again, and a whole training step is
measured at each. Beside it stand two predictions of the same growth: operations alone, and the plan for these cores, which
knows passes over memory, launches and the update. The claim is on the plan: each doubling within 25 %.

    python bench/scaling.py --svg docs/scale_growth.svg --json bench/results/scaling.json
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from common import make_parser, table, write_json
from tying import trainer_of
from unembed.model.presets.gpt import gpt_spec
from unembed.model.spec import TransformerSpec
from unembed.planning.flops import flops
from unembed.planning.measured import measure
from unembed.planning.pieces import pieces
from unembed.planning.setup import Setup
from unembed.planning.step_time import step_time
from unembed.training.loop import Trainer

CLAIM = 0.25
VOCAB, D_HEAD = 1024, 32


class Size(NamedTuple):
    """One shape to train: tokens of a sequence, sequences, width, layers."""

    tokens: int
    sequences: int
    width: int
    depth: int

    def spec(self) -> TransformerSpec:
        """GPT-2's shape of this size, heads of one width."""
        return gpt_spec(
            vocab_size=VOCAB,
            context_length=self.tokens,
            d_model=self.width,
            n_layers=self.depth,
            n_heads=self.width // D_HEAD,
        )


ROWS: dict[str, tuple[Size, ...]] = {
    "tokens": tuple(Size(n, 4, 128, 4) for n in (64, 128, 256, 512, 1024)),
    "sequences": tuple(Size(128, n, 128, 4) for n in (2, 4, 8, 16, 32)),
    "width": tuple(Size(128, 4, n, 4) for n in (64, 128, 256, 512)),
    "depth": tuple(Size(128, 4, 128, n) for n in (2, 4, 8, 16, 32)),
}


def measured_seconds(sizes: list[Size], rounds: int) -> dict[Size, float]:
    """Seconds of a step of each size: the middle of several rounds, in each of which every size has its turn."""
    trainers: dict[Size, Trainer] = {size: trainer_of(size.spec(), size.sequences) for size in sizes}
    took: dict[Size, list[float]] = {size: [] for size in sizes}
    for number in range(rounds + 1):
        for size, trainer in trainers.items():
            began, steps = time.perf_counter(), 0
            while steps < 2 or time.perf_counter() - began < 0.2:
                trainer.step()
                steps += 1
            if number:  # the first round warms up
                took[size].append((time.perf_counter() - began) / steps)
    return {size: statistics.median(values) for size, values in took.items()}


def planned_seconds(sizes: list[Size], threads: int) -> dict[Size, float]:
    """Seconds of a step of each size as `unembed plan --device cpu` says, every distinct piece being tried once."""
    specs = {size: size.spec() for size in sizes}
    every = {piece for size, spec in specs.items() for piece in pieces(spec, size.sequences, size.tokens)}
    rates = measure(every, threads=threads)
    setups = {size: Setup(batch_size=size.sequences, context_length=size.tokens, dtype="float32") for size in sizes}
    return {size: step_time(specs[size], setups[size], rates, hides_talk=False).seconds for size in sizes}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Measured and planned seconds of a step over the size that is doubled, one panel a row, both axes logarithmic."""
    import altair as alt

    base = alt.Chart.from_dict({"data": {"values": rows}, "mark": "line"}).encode(
        x=alt.X("size:Q", scale=alt.Scale(type="log", base=2), title=None),
        y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="seconds of a step"),
        color=alt.Color("what:N", title=None),
    )
    chart = (base.mark_line() + base.mark_point(filled=True)).properties(width=220, height=220)
    chart.facet(column=alt.Column("doubled:N", title=None)).resolve_scale(x="independent").save(path)


def main() -> int:
    """Measures, prints the growth along each row; 1 if the plan misses a doubling by more than a quarter."""
    parser = make_parser("how the cost of a step grows")
    parser.set_defaults(rounds=5, threads=1)
    parser.add_argument("--svg", type=Path, help="also draw the growth")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = list(dict.fromkeys(size for row in ROWS.values() for size in row))
    real, plan = measured_seconds(sizes, options.rounds), planned_seconds(sizes, options.threads)
    lines, points, worst = [], [], 0.0
    for name, row in ROWS.items():
        for before, size in zip((None, *row), row, strict=False):
            value = getattr(size, name)
            points += [
                {"doubled": name, "size": value, "seconds": found[size], "what": what}
                for what, found in (("measured", real), ("planned", plan))
            ]
            if before is None:
                continue
            growth = [found[size] / found[before] for found in (real, plan)]
            work = [flops(one.spec(), one.tokens).training * one.tokens * one.sequences for one in (before, size)]
            off = growth[1] / growth[0] - 1
            worst = max(worst, abs(off))
            lines.append([f"{name} {getattr(before, name)} -> {value}", f"{real[size] * 1e3:.1f}", f"{growth[0]:.2f}"])
            lines[-1] += [f"{growth[1]:.2f}", f"{off:+.0%}", f"{work[1] / work[0]:.2f}"]
    print(table(["doubled", "ms a step", "grew by", "planned", "off by", "operations"], lines))
    print(f"\nworst doubling: {worst:.0%} (claim: {CLAIM:.0%})")
    if options.svg:
        draw(points, options.svg)
    write_json(options.json, {"points": points, "worst": worst})
    return int(worst > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
