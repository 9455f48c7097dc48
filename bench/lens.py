"""What the lens costs beside the direct computation with transformers: GPT-2's shape, 256 tokens, 13 states.

The direct way is what a script does: hidden states, final norm, head, top 5, log-softmax, log-sum-exp, entropy, of all layers
at once; beside it the same layer by layer, without a claim. The claims: the same statistics in at most 0.4 of the direct way's
time, all that the lens can measure in at most 0.7, and at most a tenth of its memory beyond the model's. The products alone
are timed beside them, as the floor that nothing goes below: 257 GFLOP. Time is taken in turns within one process; memory is
the growth of the peak resident size in a process of its own.

    python bench/lens.py --json bench/results/lens.json
"""

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import make_parser, spread, summary, table, take_turns, write_json
from unembed.lenses.logit_lens import STATISTICS, logit_lens
from unembed.lenses.reading import SCORES_AT_ONCE
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.product import product
from unembed.model.transformer import Transformer

N_TOKENS, N_TOP = 256, 5
SAME = ("top", "logsumexp", "entropy")
CLAIMS = {"same statistics": 0.4, "all statistics": 0.7, "memory": 0.1}
THEIRS = ("direct", "layer by layer")
KINDS = (*THEIRS, "same statistics", "all statistics")


def our_model() -> Transformer:
    """Random weights of GPT-2's shape."""
    return build(preset("gpt2").spec, Gpt2Init(std=0.02), seed=0)


def their_model() -> Any:
    """The same shape with transformers, random weights too: no number depends on which."""
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa")).eval()


def ids_of(n_tokens: int = N_TOKENS) -> Tensor:
    """A text of random tokens."""
    return torch.randint(0, 50257, (n_tokens,), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def direct(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """What a script computes without further thought: all layers at once, [layers, positions, vocabulary]."""
    return measured_of(model, hidden_states(model, ids))


@torch.no_grad()
def by_layer(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """The same one layer after the other, which takes a thirteenth of the memory and as many products."""
    found = [measured_of(model, state) for state in hidden_states(model, ids)]
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}


def hidden_states(model: Any, ids: Tensor) -> Tensor:
    """The stream of each layer behind the final norm, [layer, pos, d_model]; transformers hands the last one out so."""
    states = model(input_ids=ids[None], output_hidden_states=True, use_cache=False).hidden_states
    return torch.cat([model.transformer.ln_f(torch.stack(states[:-1]))[:, 0], states[-1]])


def measured_of(model: Any, states: Tensor) -> dict[str, Tensor]:
    """Head, top 5, log-softmax, log-sum-exp and entropy of some states."""
    logits = model.lm_head(states)
    logprobs = logits.log_softmax(-1)
    best = logprobs.topk(N_TOP)
    return {
        "ids": best.indices,
        "probabilities": best.values.exp(),
        # of the largest score and its log-probability: a pass of its own would only make the direct way slower
        "logsumexp": logits.gather(-1, best.indices[..., :1])[..., 0] - best.values[..., 0],
        "entropy": -(logprobs.exp() * logprobs).sum(-1),
    }


def ours(model: Transformer, ids: Tensor, statistics: tuple[str, ...]) -> dict[str, Any]:
    """The whole call that a user makes, identity check and tables included."""
    found = logit_lens(model, ids, n_top=N_TOP, statistics=statistics)
    assert found.values["identity_error"] < 1e-3
    return dict(found.values)


@torch.no_grad()
def products(model: Transformer) -> None:
    """The floor: every state times the table, in pieces of the lens's size, and nothing else."""
    x = torch.randn(SCORES_AT_ONCE // 50257, model.spec.embedding.d_model)
    for _ in range(N_TOKENS * (model.spec.n_layers + 1) // len(x)):
        product(x, model.embed.table)


def call_of(kind: str) -> Callable[[], object]:
    """A contender that can be called again and again."""
    ids = ids_of()
    if kind in THEIRS:
        return partial(direct if kind == "direct" else by_layer, their_model(), ids)
    return partial(ours, our_model(), ids, SAME if kind == "same statistics" else STATISTICS)


def peak_bytes(kind: str, n_tokens: int = N_TOKENS) -> int:
    """How far the resident size of a fresh process grows over one call."""
    command = [sys.executable, __file__, "--child", kind, "--tokens", str(n_tokens)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(out.stdout)["bytes"])


def child(kind: str, n_tokens: int) -> None:
    """The process that is measured: makes the model, warms up on two tokens, notes the peak so far, prints the growth."""
    few, ids = ids_of(2), ids_of(n_tokens)
    if kind in THEIRS:
        call: Callable[[Tensor], object] = partial(direct if kind == "direct" else by_layer, their_model())
    else:
        call = partial(ours, our_model(), statistics=SAME if kind == "same statistics" else STATISTICS)
        # two tokens make chunks of two: the buffers of the real call are still to come
    call(few)
    before = highest_resident_bytes()
    call(ids)
    print(json.dumps({"bytes": highest_resident_bytes() - before}))


def highest_resident_bytes() -> int:
    """The peak of this process alone, under Linux: what getrusage tells may be the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def agreement() -> float:
    """The largest difference to the direct computation on the same weights, so that equal work is compared."""
    mine, model, ids = our_model(), their_model(), ids_of(32)
    load_into(model, mine)
    theirs = direct(model, ids)
    found = ours(mine, ids, SAME)
    return max(
        float(abs(theirs["entropy"].double().numpy() - found["entropy_nats"]).max()),
        float(abs(theirs["logsumexp"].double().numpy() - found["logsumexp_nats"]).max()),
    )


def load_into(model: Any, mine: Transformer) -> None:
    """Our weights under transformers' names."""
    from unembed.checkpoints.families.gpt2 import FAMILY
    from unembed.checkpoints.rules.tensors import to_theirs

    tensors = to_theirs(FAMILY.rules(mine.spec), dict(mine.named_parameters()))
    missing, unknown = model.load_state_dict(tensors, strict=False)
    assert not unknown, unknown
    assert set(missing) <= {"lm_head.weight"}, missing


def main() -> int:
    """Measures, prints the table; 1 if a claim does not hold on this machine."""
    parser = make_parser("time and memory of the lens beside the direct computation")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=N_TOKENS, help=argparse.SUPPRESS)
    parser.set_defaults(rounds=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        child(options.child, options.tokens)
        return 0
    difference = agreement()
    beyond = {kind: peak_bytes(kind) for kind in KINDS}
    longer = peak_bytes("all statistics", 2 * N_TOKENS)
    calls = {kind: call_of(kind) for kind in KINDS} | {"products alone": partial(products, our_model())}
    timing = take_turns(calls, n_rounds=options.rounds, calls_per_round=1, n_warmup=1)
    share = {
        kind: [a / b for a, b in zip(timing.seconds[kind], timing.seconds["direct"], strict=True)] for kind in calls
    }
    rows = [
        [
            kind,
            spread(timing.seconds[kind], 2),
            spread(share[kind], 2),
            f"{beyond[kind] / 2**20:,.0f}" if kind in beyond else "",
        ]
        for kind in calls
    ]
    print(table(["lens", "seconds", "of the direct", "MiB beyond the model"], rows))
    print(f"twice the tokens, all statistics: {longer / 2**20:,.0f} MiB; largest difference {difference:.1e}")
    measured = {
        **{kind: summary(share[kind])["median"] for kind in KINDS if kind not in THEIRS},
        "memory": beyond["all statistics"] / beyond["direct"],
    }
    for name, limit in CLAIMS.items():
        print(
            f"{'holds' if measured[name] <= limit else 'FAILS'}: {name} {measured[name]:.3g}, claimed at most {limit}"
        )
    write_json(
        options.json,
        {
            "claims": CLAIMS,
            "measured": measured,
            "seconds": timing.seconds,
            "beyond_bytes": {**beyond, "twice the tokens": longer},
            "difference": difference,
        },
    )
    return 0 if all(measured[name] <= limit for name, limit in CLAIMS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
