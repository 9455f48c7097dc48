"""How fast one training step is: ours, nanoGPT's, and that of a transformers GPT-2 of the same shape, all eager.

The claim: at least 1.05 times nanoGPT's tokens per second and at least 1.15 times those of transformers (each the median
over rounds, in which processes of their own take turns). Every contender does one whole step of the `nanogpt-cpu` run:
learning rate, a batch from the same text, forward, loss, backward, clipping, optimizer. Batch, shape, precision and threads
are the same.

`transformers` is the library's GPT-2 of that shape as its config makes it, dropout off: with biases, and with the tanh
GELU, which the library writes out in several small operations. `transformers-gelu` has the fused exact GELU that the other
two have; nothing is claimed against it, and it stands beside to show how much of the gap is that one choice. Batch, loss,
clipping and optimizer of both are nanoGPT's.

    python bench/train_step.py --json bench/results/train_step.json
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import machine_facts, make_parser, spread, summary, table, write_json
from peers import nanogpt
from processes import serve, take_turns_apart

CONFIG = nanogpt.Config()
N_CHARACTERS = 1_000_000  # about Shakespeare's size; which characters they are does not change the work
ALPHABET = "".join(chr(ord("0") + number) for number in range(CONFIG.vocab_size))
OURS = "unembed"
CLAIMS = {"nanoGPT": 1.05, "transformers": 1.15}

Step = Callable[[], float]


def ours(text: Path) -> Step:
    """One step of `unembed train TEXT --recipe nanogpt-cpu`, between its records and checkpoints."""
    from unembed.corpora.reading import Reading
    from unembed.model.init import build
    from unembed.recipes.memory import keep_to_plan
    from unembed.recipes.nanogpt_cpu import prepare
    from unembed.training.loop import Trainer

    prepared = prepare([str(text)], Reading(), {})
    config = prepared.config
    shards = prepared.write_shards(text.parent / "shards")
    model = build(config.model, config.init, seed=config.seed)
    n_parameters = sum(p.numel() for p in model.parameters())
    assert n_parameters == sum(p.numel() for p in nanogpt.GPT(CONFIG).parameters()), "the contenders differ in size"
    keep_to_plan(config)  # as train does
    trainer = Trainer(model, config, shards.train, shards.val)
    return lambda: trainer.step()[0]


def theirs_nanogpt(text: Path) -> Step:
    """One step of our restatement of nanoGPT."""
    trainer = nanogpt.Trainer(nanogpt_ids(text), CONFIG, nanogpt.GPT(CONFIG))
    return lambda: trainer.step().item()


def nanogpt_ids(text: Path) -> Path:
    """The text's training split as nanoGPT stores it."""
    return nanogpt.write_ids(text.read_text(encoding="utf-8"), text.parent)[0]


class TransformersGPT2(nn.Module):
    """A GPT-2 of the transformers library, with nanoGPT's way to the loss."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM, GPT2Config

        config = GPT2Config(
            vocab_size=CONFIG.vocab_size,
            n_positions=CONFIG.block_size,
            n_embd=CONFIG.n_embd,
            n_layer=CONFIG.n_layer,
            n_head=CONFIG.n_head,
            activation_function=activation,
            resid_pdrop=CONFIG.dropout,
            embd_pdrop=CONFIG.dropout,
            attn_pdrop=CONFIG.dropout,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean loss in nats over all positions."""
        logits = self.model(input_ids=ids).logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def theirs_transformers(text: Path, activation: str = "gelu_new") -> Step:
    """One step of a transformers GPT-2; `gelu_new` is its default, `gelu` the exact one."""
    trainer = nanogpt.Trainer(nanogpt_ids(text), CONFIG, TransformersGPT2(activation))
    return lambda: trainer.step().item()


CONTENDERS: dict[str, Callable[[Path], Step]] = {
    OURS: ours,
    "nanoGPT": theirs_nanogpt,
    "transformers": theirs_transformers,
    "transformers-gelu": lambda text: theirs_transformers(text, "gelu"),
}


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("tokens per second of one training step")
    parser.add_argument("--steps", type=int, default=40, help="steps in each turn (default 40)")
    names = list(CONTENDERS)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    parser.add_argument("--serve", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.serve:
        serve_one(options.serve)
        return 0

    timing, _ = take_turns_apart(
        __file__,
        options.only,
        ["--threads", str(options.threads)],
        n_rounds=options.rounds,
        steps_per_round=options.steps,
        n_warmup=10,
    )
    steps = timing.seconds

    rates = timing.rates(CONFIG.batch_size * CONFIG.block_size)
    ratios = timing.speed_ratios(OURS) if OURS in steps else {}
    rows = [
        [name, spread(rates[name], 0), spread(ratios[name], 3) if name in ratios else "", claim_text(name, ratios)]
        for name in steps
    ]
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['threads']} threads, torch {facts['torch']}; {options.rounds} rounds")
    print(table(["contender", "tokens per second", f"{OURS} / contender", "claim"], rows))
    write_json(
        options.json,
        {
            "tokens_per_second": {name: summary(values) for name, values in rates.items()},
            "speed_ratios": {name: {**summary(values), "rounds": values} for name, values in ratios.items()},
            "claims": {name: CLAIMS[name] for name in ratios if name in CLAIMS},
            "rounds": options.rounds,
            "steps_per_round": options.steps,
        },
    )
    return int(any(not holds(name, ratios) for name in CLAIMS if name in ratios))


def serve_one(name: str) -> None:
    """The contender's own process."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        numbers = np.random.default_rng(0).integers(0, CONFIG.vocab_size, N_CHARACTERS)
        text.write_text("".join(ALPHABET[number] for number in numbers), encoding="utf-8")
        torch.manual_seed(0)
        serve(CONTENDERS[name](text))


def holds(name: str, ratios: dict[str, list[float]]) -> bool:
    """Whether the median of the ratios reaches what is claimed against this contender."""
    return summary(ratios[name])["median"] >= CLAIMS[name]


def claim_text(name: str, ratios: dict[str, list[float]]) -> str:
    """`>= 0.97 holds`, or nothing where nothing is claimed."""
    if name not in ratios or name not in CLAIMS:
        return ""
    return f">= {CLAIMS[name]} {'holds' if holds(name, ratios) else 'MISSED'}"


if __name__ == "__main__":
    sys.exit(main())
