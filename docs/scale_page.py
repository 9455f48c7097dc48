"""The page that sets plans beside published runs: docs/scale_runs.md. Called by generate.py."""

import statistics
from typing import NamedTuple

from msgspec.structs import replace

from markup import markdown_table
from unembed.model.presets import preset
from unembed.model.presets.gpt import gpt_spec
from unembed.model.spec import TransformerSpec
from unembed.planning.machines import MACHINES, Machine
from unembed.planning.rates import Published
from unembed.planning.setup import Setup
from unembed.planning.sharding import device_memory
from unembed.planning.step_time import step_time

TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
TITAN_A100 = "torchtitan, docs/performance.md of 2024"
MPT = "MosaicML llm-foundry, scripts/train/benchmarking/README.md"
IBM = "PyTorch blog, Maximizing training throughput using PyTorch FSDP, 2024-03-13"
NANOGPT = "nanoGPT, issue 110, 2023-02-02: 562 ms an iteration"
# Its own page says: HBM2e at 2.4 TB/s, a power limit of 500 W, 96 GB.
TITAN_H100 = replace(MACHINES["h100"], memory_speed=2.4e12, memory_bytes=96 * 10**9)
A100, H100 = MACHINES["a100"], MACHINES["h100"]
# d_model, layers, heads of the MPT models; without biases, head and table shared, 50,368 tokens.
_MPT = {"125m": (768, 12, 12), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20)}
_MPT |= {"7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 48, 56)}


class Run(NamedTuple):
    """One published run: tokens a second and device, GiB of a device where told, and whether a constant was fitted to it."""

    name: str
    spec: TransformerSpec
    machine: Machine
    setup: Setup
    told: float
    told_gib: float | None
    source: str
    is_fitted: bool = False


def fsdp(devices: int, batch_size: int, context_length: int, **more: object) -> Setup:
    """A setup with everything sharded."""
    plain = Setup(devices=devices, parallel="fsdp", batch_size=batch_size, context_length=context_length)
    return replace(plain, **more)


def _mpt(size: str, context_length: int) -> TransformerSpec:
    d_model, n_layers, n_heads = _MPT[size]
    return gpt_spec(
        vocab_size=50_368,
        context_length=context_length,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        has_bias=False,
        activation="gelu",
    )


def _titan(devices: int, told: float, told_gib: float, *, compiles: bool, is_fitted: bool = False) -> Run:
    name = f"Llama 3.1 8B, {devices} H100{', compiled' if compiles else ''}"
    setup = fsdp(devices, 2, 8192, recomputed=0.5, compiles=compiles)
    return Run(name, preset("llama-3-8b").spec, TITAN_H100, setup, told, told_gib, TITAN, is_fitted)


def _foundry(
    size: str,
    n: int,
    machine: Machine,
    devices: int,
    batch: int,
    accumulate: int,
    again: float,
    told: float,
    fitted: int = 0,
) -> Run:
    name = f"MPT {size}, {n:,} tokens, {devices} {machine.name.upper()}{', checkpointed' if again else ''}"
    setup = fsdp(devices, batch, n, accumulate=accumulate, recomputed=again)
    return Run(name, _mpt(size, n), machine, setup, told, None, MPT, bool(fitted))


RUNS: tuple[Run, ...] = (
    _titan(8, 6_667, 77.0, compiles=True, is_fitted=True),
    _titan(8, 5_762, 82.4, compiles=False),
    _titan(128, 6_514, 62.0, compiles=True),
    _titan(128, 5_605, 67.0, compiles=False),
    _foundry("760m", 2048, H100, 8, 24, 2, 0, 63_147),
    _foundry("1b", 2048, H100, 8, 14, 1, 0, 45_455),
    _foundry("3b", 2048, H100, 16, 10, 3, 0, 24_142),
    _foundry("7b", 2048, H100, 8, 6, 1, 0, 10_643),
    _foundry("7b", 8192, H100, 8, 8, 2, 1, 6_935),
    _foundry("13b", 2048, H100, 64, 2, 1, 0, 4_800),
    _foundry("13b", 4096, H100, 8, 10, 3, 1, 4_717),
    _foundry("30b", 2048, H100, 32, 14, 3, 1, 2_308),
    _foundry("7b", 2048, A100, 8, 6, 2, 0, 4_641, 1),
    _foundry("125m", 2048, A100, 8, 40, 2, 0, 142_830),
    _foundry("760m", 2048, A100, 8, 24, 2, 0, 32_434),
    _foundry("1b", 2048, A100, 8, 14, 4, 0, 20_513),
    _foundry("3b", 2048, A100, 8, 10, 2, 0, 10_811),
    _foundry("7b", 8192, A100, 8, 8, 2, 1, 3_206),
    _foundry("7b", 65_536, A100, 8, 1, 2, 1, 1_013),
    _foundry("13b", 2048, A100, 8, 2, 3, 0, 2_262),
    _foundry("13b", 8192, A100, 8, 5, 3, 1, 1_795),
    _foundry("30b", 2048, A100, 8, 3, 21, 1, 916),
    Run(
        "Llama 3 8B, 64 A100",
        preset("llama-3-8b").spec,
        A100,
        fsdp(64, 1, 8192, recomputed=0.5, compiles=True),
        2_973,
        None,
        TITAN_A100,
    ),
    Run("Llama 2 7B, 128 A100", preset("llama-2-7b").spec, A100, fsdp(128, 2, 4096), 3_700, None, IBM),
    Run(
        "GPT-2 124M, 8 A100 of 40 GB, ddp, compiled",
        preset("gpt2").spec,
        replace(A100, memory_speed=1.555e12, memory_bytes=40 * 10**9),
        Setup(devices=8, parallel="ddp", batch_size=12, context_length=1024, accumulate=5, compiles=True),
        491_520 / 0.562 / 8,
        None,
        NANOGPT,
    ),
)


def planned(run: Run) -> float:
    """Tokens a second and device."""
    took = step_time(run.spec, run.setup, Published(run.machine, run.setup))
    return run.setup.tokens_per_step / took.seconds / run.setup.devices


def error(run: Run) -> float:
    """How far the plan is off, as a share of what was published."""
    return planned(run) / run.told - 1


def scale_page() -> str:
    """Every published run beside its plan, and how far off the plans are altogether."""
    errors = [abs(error(run)) for run in RUNS if not run.is_fitted]
    header = "run, published tokens/s a device, planned, error, published GiB, planned GiB, source"
    sources = list(dict.fromkeys(run.source for run in RUNS))
    return "\n".join(
        [
            "# Plans beside published runs",
            "",
            "`unembed plan` knows a device by its data sheet and a few shares of it (docs/scale.md). Here is what it says of",
            "runs that others have published, with their own code, on their own machines. The two runs marked *fitted* gave",
            f"one constant each; of the other {len(errors)} the plan is off by {statistics.median(errors):.0%} in the",
            f"middle and by {max(errors):.0%} at worst; within 25 % it was for {sum(one <= 0.25 for one in errors)} of them.",
            "",
            *markdown_table(header.split(", "), (_row(run, sources.index(run.source) + 1) for run in RUNS)),
            "",
            "Sources:",
            "",
            *(f"{number}. {source}" for number, source in enumerate(sources, 1)),
        ]
    )


def _row(run: Run, source: int) -> tuple[str, ...]:
    gib = device_memory(run.spec, run.setup).peak / 2**30
    return (
        f"{run.name}{' (*fitted*)' if run.is_fitted else ''}",
        f"{run.told:,.0f}",
        f"{planned(run):,.0f}",
        f"{error(run):+.0%}",
        "" if run.told_gib is None else f"{run.told_gib:.1f}",
        f"{gib:.1f}",
        str(source),
    )
