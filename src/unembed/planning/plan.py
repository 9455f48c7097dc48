"""A plan: what training a model on some devices takes in memory, time, talk and money, from its description alone.

For devices that are not here the rates are published ones (machines.py); for this machine's cores they are measured
(measured.py). docs/scale.md sets both beside what was really reached.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from unembed.errors import UsageError
from unembed.model.counts import count
from unembed.model.spec import Learned, TransformerSpec
from unembed.planning.flops import flops
from unembed.planning.machines import MACHINES, Machine
from unembed.planning.pieces import pieces
from unembed.planning.rates import Published, Rates
from unembed.planning.setup import SCORES_AT_ONCE, Setup, check_setup
from unembed.planning.sharding import DeviceMemory, device_memory, largest_batch, traffic
from unembed.planning.step_time import StepTime, step_time
from unembed.results import Result, Table

# Tokens per parameter at which a given number of operations is spent best: Hoffmann et al. 2022, arXiv:2203.15556, table 3.
TOKENS_PER_PARAMETER = 20
# What CUDA's own code, the allocator's pieces and the communication library keep of a device.
RESERVED_SHARE = 0.08
# Of the cores, so many are busy with something else before it is worth a word.
_BUSY = 0.6
_DAY = 86_400


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; bytes, seconds, US dollars. `utilisation` counts the operations of one forward and backward pass,
    nothing done again, and of attention only what each query may see, over what the devices could do at their peak."""

    device: str
    setup: Setup
    memory: DeviceMemory
    memory_bytes: int
    fits: bool
    largest_micro_batch: int
    flops_per_step: float
    communication_bytes: int
    time: StepTime
    utilisation: float
    tokens_per_second: float
    tokens: int
    seconds: float
    price: float | None
    cost: float | None


def plan(
    spec: TransformerSpec,
    setup: Setup,
    *,
    device: str,
    tokens: int | None = None,
    price: float | None = None,
    threads: int | None = None,
    fills: bool = False,
    notice: Callable[[str], None] = lambda sentence: None,
) -> Plan:
    """Plans a training run. `fills` takes the largest micro-batch that fits, and that the run's tokens fill, for the setup's.

    `tokens` are those of the whole run, 20 a parameter unless given. `price` is US dollars per device and hour; cores have
    none of their own. `threads` are those of one process on `cpu`; `notice` hears what is measured there, before it is.
    Raises: UsageError for a setup that cannot be.
    """
    check_setup(setup)
    position, context_length = spec.embedding.position, setup.context_length
    if isinstance(position, Learned) and context_length > position.room:
        raise UsageError(
            f"plan: context is {context_length:,} tokens, and the model has {position.room:,} learned positions; "
            "give at most as many"
        )
    machine = None if device == "cpu" else _machine(device)
    memory_bytes = int(machine.memory_bytes * (1 - RESERVED_SHARE)) if machine else _main_memory() // setup.devices
    largest = largest_batch(spec, setup, memory_bytes, on_cores=machine is None)
    wanted = TOKENS_PER_PARAMETER * count(spec).parameters if tokens is None else tokens
    if wanted < 1:
        raise UsageError(f"plan: tokens is {wanted:,}; it must be at least 1")
    if fills:  # at least one, so that there is a plan even of what does not fit
        one_each = msgspec.structs.replace(setup, batch_size=1).tokens_per_step
        setup = msgspec.structs.replace(setup, batch_size=max(1, min(largest, wanted // one_each)))
    rates, peak = _rates(spec, setup, machine, threads, notice)
    took = step_time(spec, setup, rates, hides_talk=machine is not None)
    memory = device_memory(spec, setup, on_cores=machine is None)
    work = flops(spec, setup.context_length).training * setup.tokens_per_step
    speed = setup.tokens_per_step / took.seconds
    hourly = price if price is not None else (machine.price if machine else None)
    return Plan(
        device=device,
        setup=setup,
        memory=memory,
        memory_bytes=memory_bytes,
        fits=memory.peak <= memory_bytes,
        largest_micro_batch=largest,
        flops_per_step=work,
        communication_bytes=traffic(spec, setup).total_bytes,
        time=took,
        utilisation=work / (took.seconds * peak * setup.devices),
        tokens_per_second=speed,
        tokens=wanted,
        seconds=wanted / speed,
        price=hourly,
        cost=None if hourly is None else wanted / speed / 3600 * hourly * setup.devices,
    )


def what_would_fit(spec: TransformerSpec, setup: Setup, memory_bytes: int, *, on_cores: bool) -> str:
    """What to change so that one sequence fits on a device, the least change first; in words for the command line."""
    chunked: dict[str, Any] = {"scores_at_once": SCORES_AT_ONCE}
    ways: list[tuple[str, dict[str, Any]]] = [
        ("--chunked", chunked),
        ("--checkpoint", {"recomputed": 1.0}),
        ("--chunked --checkpoint", {"recomputed": 1.0, **chunked}),
    ]
    if setup.parallel == "ddp":
        ways = [("--parallel fsdp", {"parallel": "fsdp"})] + [
            (f"--parallel fsdp {words}", {"parallel": "fsdp", **changes}) for words, changes in ways
        ]
    for doubled in range(1, 12):
        n = setup.devices << doubled
        ways.append(
            (f"--chunked --checkpoint --devices {n}", {"recomputed": 1.0, "devices": n, "parallel": "fsdp", **chunked})
        )
    for words, changes in ways:
        if largest_batch(spec, msgspec.structs.replace(setup, **changes), memory_bytes, on_cores=on_cores):
            return f"It would with {words}"
    return "Nothing that is planned here would make it fit; try a shorter --context"


def as_result(found: Plan) -> Result:
    """The plan as tables: memory and seconds by part, and single numbers."""
    memory = msgspec.to_builtins(found.memory)
    parts = {name: value for name, value in memory.items() if name not in ("peak", "peak_at")}
    time = msgspec.to_builtins(found.time)
    talk = time.pop("wire")
    return Result(
        name="plan",
        values={
            "device": found.device,
            "devices": found.setup.devices,
            "parallel": found.setup.parallel,
            "micro_batch": found.setup.batch_size,
            "context_length": found.setup.context_length,
            "tokens_per_step": found.setup.tokens_per_step,
            "memory_peak_bytes": found.memory.peak,
            "memory_peak_at": found.memory.peak_at,
            "memory_room_bytes": found.memory_bytes,
            "fits": found.fits,
            "largest_micro_batch": found.largest_micro_batch,
            "flops_per_step": found.flops_per_step,
            "communication_bytes_per_step": found.communication_bytes,
            "communication_seconds": talk,
            "communication_hidden_seconds": talk - found.time.communication,
            "step_seconds": found.time.seconds,
            "utilisation": found.utilisation,
            "tokens_per_second": found.tokens_per_second,
            "tokens_per_second_per_device": found.tokens_per_second / found.setup.devices,
            "tokens": found.tokens,
            "days": found.seconds / _DAY,
            "price_usd_per_device_hour": found.price,
            "cost_usd": found.cost,
        },
        tables={
            "memory": Table(
                columns={"part": list(parts), "bytes_per_device": list(parts.values())},
                units={"bytes_per_device": "bytes"},
            ),
            "time": Table(columns={"part": list(time), "seconds": list(time.values())}, units={"seconds": "s"}),
        },
    )


def _machine(device: str) -> Machine:
    if device not in MACHINES:
        raise UsageError(f"plan: device {device[:40]!r} is not known; known are cpu, {', '.join(MACHINES)}")
    return MACHINES[device]


def _rates(
    spec: TransformerSpec,
    setup: Setup,
    machine: Machine | None,
    threads: int | None,
    notice: Callable[[str], None],
) -> tuple[Rates, float]:
    """The rates, and the peak of one device in operations a second."""
    if machine is not None:
        return Published(machine, setup), machine.peak_flops[setup.dtype]
    if setup.dtype != "float32":
        raise UsageError(
            f"plan: dtype is {setup.dtype}; cores are planned in float32, the type that training uses there"
        )
    from unembed.model.product import measure_flops
    from unembed.planning.measured import measure
    from unembed.runtime import set_threads

    each = threads or max(1, (os.cpu_count() or 1) // setup.devices)
    wanted = pieces(spec, setup.batch_size, setup.context_length)
    notice(f"measuring this machine: {len(wanted)} kinds of work, from a quarter of a second to a few seconds each")
    if busy := _busy_with():
        notice(
            f"{busy}; threads then wait for each other, so this may come out many times too slow. Plan when it is quiet"
        )
    found = measure(wanted, processes=setup.devices, threads=each)
    set_threads(each)
    return found, measure_flops()


def _main_memory() -> int:
    """The machine's memory in bytes, all of it."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _busy_with() -> str:
    """How busy the cores have been in the last minute, in words; empty where that is not much, or not told."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    return f"this machine is busy: {load:.1f} programs want its {cores} cores" if load >= _BUSY * cores else ""
