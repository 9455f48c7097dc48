"""How fast one training step is: ours, nanoGPT's, and that of a transformers GPT-2 of the same shape, all eager.

The claim: at least 0.97 of nanoGPT's tokens per second and at least 1.15 times those of transformers (each the median over
rounds). Every contender does one whole step of the `nanogpt-cpu` run: learning rate, a batch from the same file of ids,
forward, loss, backward, clipping, optimizer. Batch, shape, precision and threads are the same; the transformers model
computes the same function but for biases, which its GPT-2 always has, and its batch, loss and optimizer are nanoGPT's.

    python bench/train_step.py --json bench/results/train_step.json
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import machine_facts, make_parser, spread, summary, table, take_turns, write_json
from peers import nanogpt

CONFIG = nanogpt.Config()
N_IDS = 1_000_000  # about Shakespeare's size; the values of the ids do not change the work
OURS = "unembed"
CLAIMS = {"nanoGPT": 0.97, "transformers": 1.15}

Step = Callable[[], object]


def ours(train_ids: Path) -> Step:
    """One step of our training loop on the same ids: what `unembed train` repeats, logging and saving aside."""
    from unembed.corpora.shards import TokenSplit
    from unembed.model.init import Gpt2Init, build
    from unembed.model.presets import preset
    from unembed.optim.adamw import AdamWConfig
    from unembed.optim.schedules import Cosine
    from unembed.training.config import RunConfig, TrainingConfig
    from unembed.training.loop import Trainer

    init = Gpt2Init(std=0.02)
    config = RunConfig(
        recipe="nanogpt-cpu",
        seed=0,
        model=preset("nanogpt-cpu").spec,
        init=init,
        training=TrainingConfig(
            steps=CONFIG.max_steps,
            batch_size=CONFIG.batch_size,
            accumulate=1,
            optimizer=AdamWConfig(
                beta1=CONFIG.betas[0], beta2=CONFIG.betas[1], eps=1e-8, weight_decay=CONFIG.weight_decay
            ),
            schedule=Cosine(
                peak=CONFIG.max_learning_rate, floor=CONFIG.min_learning_rate, warmup_steps=CONFIG.warmup_steps
            ),
            clip_norm=CONFIG.grad_clip,
            dropout=CONFIG.dropout,
            log_every=CONFIG.max_steps,
            eval_every=CONFIG.max_steps,
            checkpoint_every=CONFIG.max_steps,
            keep_every=None,
            compile=False,
        ),
    )
    split = TokenSplit(name="train", ids=np.memmap(train_ids, dtype=np.uint16, mode="r"))
    return Trainer(build(config.model, init, seed=0), config, split, split).step


def theirs_nanogpt(train_ids: Path) -> Step:
    """One step of our restatement of nanoGPT."""
    return nanogpt.Trainer(train_ids, CONFIG, nanogpt.GPT(CONFIG)).step


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


def theirs_transformers(train_ids: Path, activation: str = "gelu") -> Step:
    """One step of a transformers GPT-2; `gelu` is the exact one, `gelu_new` (its default) a slower formula in Python."""
    return nanogpt.Trainer(train_ids, CONFIG, TransformersGPT2(activation)).step


CONTENDERS: dict[str, Callable[[Path], Step]] = {
    OURS: ours,
    "nanoGPT": theirs_nanogpt,
    "transformers": theirs_transformers,
    "transformers-gelu_new": lambda train_ids: theirs_transformers(train_ids, "gelu_new"),
}


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("tokens per second of one training step")
    parser.add_argument("--steps", type=int, default=40, help="steps in each turn (default 40)")
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS)[:3], metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    with tempfile.TemporaryDirectory() as folder:
        train_ids = Path(folder) / "train.bin"
        np.random.default_rng(0).integers(0, CONFIG.vocab_size, N_IDS, dtype=np.uint16).tofile(train_ids)
        steps: dict[str, Step] = {}
        for name in options.only:
            torch.manual_seed(0)
            steps[name] = CONTENDERS[name](train_ids)
        timing = take_turns(steps, n_rounds=options.rounds, calls_per_round=options.steps, n_warmup=20)

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
