"""What the chunked loss costs beside the plain one: 2,048 tokens of a GPT-2-shaped head (V = 50,257, d = 768).

The claims: its peak memory beyond the two gradients (of the stream and of the table) is at most 1/8 of the plain loss's, it
takes at most 1.1 times as long, and loss and gradients are those of the plain loss in float64, to 1e-6 relative when computed
in float32 and to 1e-12 in float64. Memory is the growth of the peak resident size in a process of its own; time is taken in
turns within one process.

    python bench/loss.py --json bench/results/loss.json
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from common import make_parser, spread, summary, table, take_turns, write_json
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.transformer import Transformer
from unembed.objectives import LossSum, chunked_next_token_loss, next_token_loss

N_TOKENS = 2048
CLAIMS = {"memory": 1 / 8, "time": 1.1, "float32": 1e-6, "float64": 1e-12}
KINDS: dict[str, Callable[[Transformer, Tensor, Tensor], LossSum]] = {
    "plain": lambda model, resid, targets: next_token_loss(model.unembed(resid), targets),
    "chunked": chunked_next_token_loss,
    "chunked over vocabulary": lambda model, resid, targets: chunked_next_token_loss(
        model, resid, targets, over="vocabulary"
    ),
}


def case(dtype: torch.dtype) -> tuple[Transformer, Tensor, Tensor]:
    """A head without blocks, a stream and targets. The table is the only large parameter."""
    spec = preset("gpt2").spec
    spec = msgspec.structs.replace(spec, blocks=spec.blocks[:0])
    model = build(spec, Gpt2Init(std=0.02), seed=0, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    resid = torch.randn(2, N_TOKENS // 2, spec.embedding.d_model, generator=generator).to(dtype)
    targets = torch.randint(0, spec.embedding.vocab_size, (2, N_TOKENS // 2), generator=generator)
    return model, resid.requires_grad_(), targets


def once(kind: str, model: Transformer, resid: Tensor, targets: Tensor) -> tuple[float, Tensor, Tensor]:
    """Loss and the two gradients."""
    loss = KINDS[kind](model, resid, targets).mean()
    of_stream, of_table = torch.autograd.grad(loss, (resid, model.embed.table))
    return loss.item(), of_stream, of_table


def peak_bytes(kind: str) -> int:
    """How far the resident size of a fresh process grows over one loss and its gradients."""
    out = subprocess.run([sys.executable, __file__, "--child", kind], capture_output=True, text=True, check=True)
    return int(json.loads(out.stdout)["bytes"])


def child(kind: str) -> None:
    """The process that is measured: makes the case, notes the peak so far, does the work, prints the growth."""
    model, resid, targets = case(torch.float32)
    small = build(preset("mini-gpt").spec, Gpt2Init(std=0.02), seed=0)  # loads every kernel before the count begins
    few = targets[:, :8] % 64
    torch.autograd.backward(next_token_loss(small(few), few).total)
    before = highest_resident_bytes()
    once(kind, model, resid, targets)
    print(json.dumps({"bytes": highest_resident_bytes() - before}))


def highest_resident_bytes() -> int:
    """The peak of this process alone, under Linux: what getrusage tells may be the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def difference(dtype: torch.dtype) -> dict[str, float]:
    """How far loss and gradients are from the plain loss of the very same numbers in float64, each relative to its norm.

    In float32 the plain loss is itself 6e-6 away (its table gradient is one long sum over all tokens), so equality to 1e-6
    can only mean equality to what is true.
    """
    model, resid, targets = case(dtype)
    exact, _, _ = case(torch.float64)
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    exact_resid = resid.detach().double().requires_grad_()
    value, *gradients = once("plain", exact, exact_resid, targets)
    found: dict[str, float] = {}
    for kind in KINDS:
        other, *others = once(kind, model, resid, targets)
        errors = [float((a - b).norm() / a.norm()) for a, b in zip(gradients, others, strict=True)]
        found[kind] = max(abs(other - value) / value, *errors)
    return found


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("memory and time of the chunked loss beside the plain one")
    parser.add_argument("--child", choices=list(KINDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        child(options.child)
        return 0
    model, resid, targets = case(torch.float32)
    gradients = 4 * (model.embed.table.numel() + resid.numel())
    steps: dict[str, Callable[[], object]] = {kind: partial(once, kind, model, resid, targets) for kind in KINDS}
    beyond = {kind: max(1, peak_bytes(kind) - gradients) for kind in KINDS}
    timing = take_turns(steps, n_rounds=options.rounds, calls_per_round=1, n_warmup=1)
    slower = {
        kind: [a / b for a, b in zip(timing.seconds[kind], timing.seconds["plain"], strict=True)] for kind in KINDS
    }
    errors = {str(dtype).removeprefix("torch."): difference(dtype) for dtype in (torch.float32, torch.float64)}
    rows = [
        [
            kind,
            spread(timing.seconds[kind], 3),
            spread(slower[kind], 2),
            f"{beyond[kind] / 2**20:,.0f}",
            f"{beyond[kind] / beyond['plain']:.3f}",
            *(f"{errors[name][kind]:.1e}" for name in errors),
        ]
        for kind in KINDS
    ]
    header = ["loss", "seconds", "times the plain", "MiB beyond gradients", "of the plain", *errors]
    print(table(header, rows))
    measured = {
        "memory": beyond["chunked"] / beyond["plain"],
        "time": summary(slower["chunked"])["median"],
        **{name: max(found[kind] for kind in KINDS if kind != "plain") for name, found in errors.items()},
    }
    holds = {name: measured[name] <= limit for name, limit in CLAIMS.items()}
    for name, limit in CLAIMS.items():
        print(f"{'holds' if holds[name] else 'FAILS'}: {name} {measured[name]:.3g}, claimed at most {limit:.3g}")
    write_json(
        options.json, {"claims": CLAIMS, "measured": measured, "seconds": timing.seconds, "beyond_bytes": beyond}
    )
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
