"""What it costs to note the two gradients of the token table at every step, beside the same steps without.

The claim: at most 1.05 times the step, for the `nanogpt-cpu` model and for one shaped as GPT-2 (a table of 50,257 x 768, 31 %
of all its numbers) on a small batch, where the table weighs most. Switched off, the watch hands the forward the tap that it
has by itself, so there is nothing to cost; it stands beside as `off`, to show what the clock makes of nothing. All three take
turns on one and the same trainer: nothing differs but its watch.

    python bench/tying.py --json bench/results/tying.json
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import torch

from common import make_parser, spread, summary, table, take_turns, write_json
from peers import nanogpt
from unembed.corpora.windows import TokenSplit
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.spec import TransformerSpec
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.training.config import Kind, RunConfig, TrainingConfig, with_context_length
from unembed.training.loop import Trainer
from unembed.training.watching import StepWatch, no_watch
from unembed.tying.watch import TableWatch

CLAIM = 1.05
# Preset, windows a step, tokens a window, steps in a turn of one round.
SHAPES = {"nanogpt-cpu": (12, nanogpt.Config().block_size, 4), "gpt2": (4, 64, 1)}


def config_of(spec: TransformerSpec, batch_size: int, parallel: Kind = "none") -> RunConfig:
    """A run of steps alone: nothing is evaluated, logged or saved on the way."""
    training = TrainingConfig(
        steps=10**6,
        batch_size=batch_size,
        accumulate=1,
        optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1),
        schedule=Cosine(peak=1e-4, floor=1e-5, warmup_steps=100),
        clip_norm=1.0,
        dropout=0.0,
        log_every=10**6,
        eval_every=10**6,
        checkpoint_every=10**6,
        keep_every=None,
        compile=False,
        parallel=parallel,
    )
    return RunConfig(recipe="nanogpt-cpu", seed=1, model=spec, init=Gpt2Init(std=0.02), training=training)


def random_split(spec: TransformerSpec) -> TokenSplit:
    """Random ids; which they are does not change the work."""
    ids = np.random.default_rng(0).integers(0, spec.embedding.vocab_size, 100_000).astype(np.uint16)
    return TokenSplit("train", ids)


def trainer_of(spec: TransformerSpec, batch_size: int) -> Trainer:
    """A trainer of a fresh model on random ids."""
    config, split = config_of(spec, batch_size), random_split(spec)
    return Trainer(build(spec, config.init, seed=1), config, split, split)


def step_with(trainer: Trainer, watch: StepWatch) -> None:
    """One step under a watch."""
    trainer.watch = watch
    trainer.step()


def main() -> int:
    """Measures, prints the table; 1 if the claim does not hold on this machine."""
    parser = make_parser("time of a training step with the table's two gradients noted, and without")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time, for a machine that others work on as well"
    )
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="SHAPE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows, measured, seconds = [], {}, {}
    for name in options.only:
        batch_size, context_length, n_steps = SHAPES[name]
        spec = with_context_length(preset(name).spec, context_length)
        trainer = trainer_of(spec, batch_size)
        watches: dict[str, StepWatch] = {
            "without": no_watch,
            "off": TableWatch(trainer.model),
            "on": TableWatch(trainer.model, gradient_every=1),
        }
        steps: dict[str, Callable[[], object]] = {
            kind: partial(step_with, trainer, watch) for kind, watch in watches.items()
        }
        timing = take_turns(steps, n_rounds=options.rounds, calls_per_round=n_steps, n_warmup=2, clock=clock)
        seconds[name] = msgspec.to_builtins(timing.seconds)
        for kind in watches:
            ratios = [a / b for a, b in zip(timing.seconds[kind], timing.seconds["without"], strict=True)]
            measured[f"{name} {kind}"] = summary(ratios)["median"]
            rows.append([f"{name}, {kind}", spread(timing.seconds[kind], 4), spread(ratios, 3)])
    print(table(["step", "seconds", "times without"], rows))
    holds = {name: measured[f"{name} on"] <= CLAIM for name in options.only}
    for name in options.only:
        print(f"{'holds' if holds[name] else 'FAILS'}: {name} {measured[f'{name} on']:.3f}, claimed at most {CLAIM}")
    write_json(options.json, {"claim": CLAIM, "measured": measured, "seconds": seconds, "rounds": options.rounds})
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
