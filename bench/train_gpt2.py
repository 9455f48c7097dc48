"""Speed and memory of a training step in GPT-2's shape (124M), batch 4 x 256: ours beside a plain loop over transformers.

The claim: at least 1.25 times the tokens per second of the plain loop, and at most 0.75 of its peak resident memory; at most
0.65 with activation checkpointing (the median over rounds, in which processes of their own take turns). Ours is the training
loop of `unembed train` with `chunked_loss`, whose loss is the same up to rounding. The plain loop is what a tutorial shows:
GPT2LMHeadModel in float32 with dropout off, cross entropy over its logits, clip_grad_norm_, torch.optim.AdamW, zero_grad.
Both begin with weights of their own and see the same random ids.

    python bench/train_gpt2.py --json bench/results/train_gpt2.json

Before it: train_step.py, for a small model; processes.py.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import torch
import torch.nn.functional as F

from common import machine_facts, make_parser, spread, summary, table, write_json
from processes import serve, take_turns_apart

BATCH, CONTEXT, VOCABULARY = 4, 256, 50_257
THEIRS = "transformers"
# name: least speed and most memory, as shares of the plain loop's; None where nothing is claimed
CLAIMS: dict[str, tuple[float | None, float | None]] = {
    "unembed": (1.25, 0.75),
    "unembed, checkpointing": (None, 0.65),
    "unembed, plain loss": (None, None),
}


def ids() -> np.ndarray:
    """Random tokens: which they are changes no work."""
    return np.random.default_rng(0).integers(0, VOCABULARY, 200_000).astype(np.uint16)


def ours(*, chunked_loss: bool, checkpoint_activations: bool) -> Callable[[], float]:
    """One step of our training loop."""
    from unembed.corpora.windows import TokenSplit
    from unembed.model.init import Gpt2Init, build
    from unembed.model.presets import preset
    from unembed.optim.adamw import AdamWConfig
    from unembed.optim.schedules import Cosine
    from unembed.recipes.memory import keep_to_plan
    from unembed.training.config import RunConfig, TrainingConfig, with_context_length
    from unembed.training.loop import Trainer

    config = RunConfig(
        recipe="gpt2",
        seed=0,
        model=with_context_length(preset("gpt2").spec, CONTEXT),
        init=Gpt2Init(std=0.02),
        training=TrainingConfig(
            steps=1000,
            batch_size=BATCH,
            accumulate=1,
            optimizer=AdamWConfig(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1),
            schedule=Cosine(peak=6e-4, floor=6e-5, warmup_steps=10),
            clip_norm=1.0,
            dropout=0.0,
            log_every=10,
            eval_every=1000,
            checkpoint_every=1000,
            keep_every=None,
            compile=False,
        ),
    )
    changes = {"chunked_loss": chunked_loss, "checkpoint_activations": checkpoint_activations}
    config = msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, **changes))
    keep_to_plan(config)  # as train does
    split = TokenSplit("train", ids())
    trainer = Trainer(build(config.model, config.init, seed=0), config, split, split)
    return lambda: trainer.step()[0]


def theirs() -> Callable[[], float]:
    """One step of a plain loop."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_positions=CONTEXT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    tokens = torch.from_numpy(ids().astype(np.int64))
    generator = torch.Generator().manual_seed(0)

    def step() -> float:
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH,), generator=generator).tolist()
        x = torch.stack([tokens[i : i + CONTEXT] for i in starts])
        y = torch.stack([tokens[i + 1 : i + CONTEXT + 1] for i in starts])
        logits = model(input_ids=x).logits
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


CONTENDERS: dict[str, Callable[[], Callable[[], float]]] = {
    "unembed": partial(ours, chunked_loss=True, checkpoint_activations=False),
    "unembed, checkpointing": partial(ours, chunked_loss=True, checkpoint_activations=True),
    "unembed, plain loss": partial(ours, chunked_loss=False, checkpoint_activations=False),
    THEIRS: theirs,
}


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("tokens per second and peak memory of a training step in GPT-2's shape")
    parser.set_defaults(rounds=4)
    parser.add_argument("--steps", type=int, default=2, help="steps in each turn (default 2)")
    names = list(CONTENDERS)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    parser.add_argument("--serve", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.serve:
        serve(CONTENDERS[options.serve]())
        return 0
    words = ["--threads", str(options.threads)]
    counts = {"n_rounds": options.rounds, "steps_per_round": options.steps, "n_warmup": 2}
    timing, ends = take_turns_apart(__file__, options.only, words, **counts)
    rates = timing.rates(BATCH * CONTEXT)
    theirs_ran = THEIRS in options.only
    rows, values, missed = [], {}, False
    for name in options.only:
        value = {"tokens_per_second": summary(rates[name]), **ends[name]}
        cells = [name, spread(rates[name], 0), f"{ends[name]['peak_bytes'] / 1e9:.2f}"]
        if theirs_ran and name != THEIRS:
            ratios = [theirs / own for own, theirs in zip(timing.seconds[name], timing.seconds[THEIRS], strict=True)]
            share = ends[name]["peak_bytes"] / ends[THEIRS]["peak_bytes"]
            said = claim(name, summary(ratios)["median"], share)
            missed = missed or "MISSED" in said
            cells += [spread(ratios, 3), f"{share:.3f}", said]
            value |= {"speed_ratio": {**summary(ratios), "rounds": ratios}, "memory_share": share, "claim": said}
        rows.append([*cells, *[""] * (6 - len(cells))])
        values[name] = value
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['threads']} threads, torch {facts['torch']}; {options.rounds} rounds")
    print(table(["contender", "tokens per second", "peak GB", "speed / theirs", "memory / theirs", "claim"], rows))
    write_json(options.json, {"contenders": values, "rounds": options.rounds, "steps_per_round": options.steps})
    return int(missed)


def claim(name: str, speed: float, memory: float) -> str:
    """What is claimed of a contender and whether it holds; nothing where nothing is."""
    least, most = CLAIMS[name]
    said = []
    if least is not None:
        said.append(f"speed >= {least} {'holds' if speed >= least else 'MISSED'}")
    if most is not None:
        said.append(f"memory <= {most} {'holds' if memory <= most else 'MISSED'}")
    return ", ".join(said)


if __name__ == "__main__":
    sys.exit(main())
