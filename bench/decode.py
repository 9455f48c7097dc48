"""How fast greedy decoding is, batch 1, 32 + 64 tokens: ours with each kind of weights, beside transformers' generate.

The claims, each the median over rounds of transformers' seconds by ours: at least 1.5 in float32 with the same ids, 2.2 in
half precision (the quicker of float16 and bfloat16 counts, for which one a processor has a quick kernel differs), 3 in int8.
transformers runs in float32 with its cache, on the same weights, from the same prompt. `as loaded` is our float32 without
changing how matrices are stored; nothing is claimed of it. The clock covers the reading of the prompt and all tokens, not
the making of the weights, which is told on a line of its own.

Two models: `gpt2`, 124M parameters of GPT-2's shape with random weights, and `smollm2`, SmolLM2-135M out of a GGUF file
that tests/downloads.py fetches (or --gguf FILE). With --lookup the guesses of prompt lookup have a turn as well.

    python bench/decode.py --json bench/results/decode.json
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common import machine_facts, make_parser, spread, summary, table, take_turns, write_json
from unembed.checkpoints.convert import convert
from unembed.checkpoints.load import load
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY
from unembed.generation.weights.copies import derived_bytes, with_weights
from unembed.generation.weights.packing import KINDS, unavailable
from unembed.generation.weights.rounding import rounding_error
from unembed.model.transformer import Transformer

N_PROMPT, N_NEW = 32, 64
THEIRS, AS_LOADED = "transformers", "as loaded"
CLAIMS = {"float32": 1.5, "half": 2.2, "int8": 3.0}
HALVES = ("float16", "bfloat16")
DOWNLOADS = Path(__file__).parents[1] / "tests" / "downloads.py"

Decode = Callable[[], list[int]]


def gpt2_folder(folder: Path) -> Path:
    """A folder as transformers writes it: GPT-2's shape, its own initialisation."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
    return folder


def smollm2_folder(folder: Path, gguf: Path | None) -> Path | None:
    """SmolLM2-135M for transformers, in float32; None, and it is said why, where the file cannot be had."""
    if gguf is None:
        found = subprocess.run([sys.executable, str(DOWNLOADS)], capture_output=True, text=True, check=False)
        places = [Path(line) for line in found.stdout.splitlines() if "smollm2" in line]
        gguf = next((path for place in places for path in sorted(place.rglob("*.gguf"))), None)
    if gguf is None:
        print("smollm2: left out, tests/downloads.py could not fetch its file; name one with --gguf FILE")
        return None
    convert(gguf, folder, to="hf", dtype="float32")
    return folder


def theirs(folder: Path, prompt: list[int], n_new: int) -> Decode:
    """transformers' greedy generate with its cache; nothing ends the text early."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    options = GenerationConfig(
        max_new_tokens=n_new, min_new_tokens=n_new, do_sample=False, use_cache=True, pad_token_id=0, eos_token_id=None
    )
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)

    def run() -> list[int]:
        with torch.no_grad():
            out = model.generate(ids, attention_mask=mask, generation_config=options)
        found: list[int] = out[0, N_PROMPT:].tolist()
        return found

    return run


def ours(model: Transformer, prompt: list[int], n_new: int, lookup: int = 0) -> Decode:
    """Our greedy decoding; nothing ends the text early."""

    def run() -> list[int]:
        options: dict[str, Any] = {"n_tokens": n_new, "sampling": GREEDY, "seeds": [0], "lookup": lookup}
        return generate_ids(model, [prompt], **options)[0].ids

    return run


def measure(name: str, folder: Path, rounds: int, lookup: int, n_new: int = N_NEW) -> dict[str, Any]:
    """All contenders on one model, their ratios, and what the rounding does."""
    model = load(folder, dtype="float32")
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(model.spec.embedding.vocab_size, (N_PROMPT,), generator=generator).tolist()
    contenders = {THEIRS: theirs(folder, prompt, n_new), AS_LOADED: ours(model, prompt, n_new)}
    made: dict[str, Any] = {}
    for kind in KINDS:
        if (reason := unavailable(kind, model.embed.table.device)) is not None:
            print(f"{name}: {kind} left out: {reason}")
            continue
        began = time.perf_counter()
        copied = with_weights(model, kind)
        seconds = time.perf_counter() - began
        errors = rounding_error(model, copied, prompt).values
        made[kind] = {"seconds_to_make": seconds, "derived_bytes": derived_bytes(copied), **errors}
        contenders[kind] = ours(copied, prompt, n_new)
        if kind == "float32" and lookup:
            contenders[f"float32, {lookup} guesses"] = ours(copied, prompt, n_new, lookup)
    ids = {contender: run() for contender, run in contenders.items()}
    timing = take_turns(contenders, n_rounds=rounds, calls_per_round=1, n_warmup=0)
    ratios = {kind: [t / o for t, o in zip(timing.seconds[THEIRS], timing.seconds[kind], strict=True)] for kind in ids}
    rates = timing.rates(n_new)
    rows = []
    for contender in contenders:
        agrees = sum(a == b for a, b in zip(ids[contender], ids[THEIRS], strict=True))
        kl = f"{made[contender]['kl_nats']:.1e}" if contender in made else ""
        rows.append([contender, spread(rates[contender], 1), spread(ratios[contender], 2), f"{agrees}/{n_new}", kl])
    print(f"\n{name}, {N_PROMPT} + {n_new} tokens")
    print(table(["contender", "new tokens per second", "times as fast", "ids as theirs", "KL, nats"], rows))
    for key, facts in made.items():
        print(
            f"{key}: made in {facts['seconds_to_make']:.2f} s, {facts['derived_bytes'] / 1e6:,.0f} MB beside the weights"
        )
    return {
        "new_tokens_per_second": {key: summary(values) for key, values in rates.items()},
        "speed_ratios": {key: {**summary(values), "rounds": values} for key, values in ratios.items()},
        "ids_equal": {key: values == ids[THEIRS] for key, values in ids.items()},
        "weights": made,
    }


def verdicts(found: dict[str, Any]) -> dict[str, bool]:
    """Each claim, whether it holds on this machine; same ids belong to the first."""
    medians = {key: values["median"] for key, values in found["speed_ratios"].items()}
    halves = max((medians[kind] for kind in HALVES if kind in medians), default=0.0)
    same_ids = all(found["ids_equal"][kind] for kind in (AS_LOADED, "float32"))
    return {
        "float32": medians["float32"] >= CLAIMS["float32"] and same_ids,
        "half": halves >= CLAIMS["half"],
        "int8": medians.get("int8", 0.0) >= CLAIMS["int8"],
    }


def main() -> int:
    """Measures, prints the tables; 1 if a claim does not hold on this machine."""
    parser = make_parser("new tokens per second of greedy decoding")
    parser.add_argument("--only", choices=("gpt2", "smollm2"), help="one of the two models")
    parser.add_argument(
        "--new", type=int, default=N_NEW, metavar="N", help=f"tokens to write (default {N_NEW}; claims are of that)"
    )
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="SmolLM2-135M's file, if it is here already")
    parser.add_argument("--lookup", type=int, default=0, metavar="N", help="let prompt lookup guess N tokens, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['threads']} threads, torch {facts['torch']}; {options.rounds} rounds")
    results: dict[str, Any] = {}
    for name in ("gpt2", "smollm2"):
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as place:
            target = Path(place) / "model"
            folder = gpt2_folder(target) if name == "gpt2" else smollm2_folder(target, options.gguf)
            if folder is not None:
                results[name] = measure(name, folder, options.rounds, options.lookup, options.new)
    claims = {name: verdicts(found) for name, found in results.items()}
    for name, held in claims.items():
        said = [f"{key} >= {CLAIMS[key]} {'holds' if is_held else 'MISSED'}" for key, is_held in held.items()]
        print(f"{name}: {', '.join(said)}")
    write_json(options.json, {"models": results, "claims": CLAIMS, "holds": claims, "rounds": options.rounds})
    return int(not all(all(held.values()) for held in claims.values()))


if __name__ == "__main__":
    sys.exit(main())
