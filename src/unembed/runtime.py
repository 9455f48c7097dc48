"""The machine under a run: device, number type, threads, processor. Chosen by the caller, looked at by nobody else.

Nothing is probed when this file is imported, and what is measured is not kept here: whoever asks keeps the answer. The next
file to read is results.py.
"""

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Literal

from unembed.errors import UsageError

_PER_CORE = 4
# Source: mallopt(3), malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
GIVEN_BACK_BYTES, _KEPT_AT_THE_END = 1 << 20, 1 << 26
# So much may lie freed at the end of the heap: the most that mallopt's int can say.
KEPT_BYTES = (1 << 31) - 1
# How many pieces may each have pages of their own: glibc's default.
_MANY_PIECES = 65_536

DEVICES = ("cpu", "cuda", "mps")


def choose_device(name: str | None) -> str:
    """The device to run on: the one that was named, otherwise an accelerator if torch has one, otherwise the CPU.

    Raises: UsageError when a named device is not there.
    """
    import torch

    if name is None or name == "auto":
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if found is None else found.type
    if name.partition(":")[0] not in DEVICES:
        raise UsageError(f"device {name[:60]!r} is none of {', '.join(DEVICES)}. Try --device cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"device {name!r} cannot be used here: {str(error).splitlines()[0]}. Try --device cpu"
        ) from error
    return name


def has_bfloat16(device: str) -> Literal[True] | str:
    """True where the hardware multiplies bfloat16 matrices itself, else why not: without that they are far slower."""
    import torch

    kind = device.partition(":")[0]
    if kind == "cuda":
        is_there = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
        return True if is_there else f"{device} has no instructions for it"
    if kind != "cpu":
        return f"{device} is not known to have instructions for it"
    # one of AMX and AVX-512 on x86, bf16 on Arm
    is_there = any(
        set(line.split()) & {"amx_bf16", "avx512_bf16", "bf16"} for line in told_of_the_processor().splitlines()
    )
    return True if is_there else "this processor has no instructions for it"


def told_of_the_processor() -> str:
    """What the system says of its processors, in its own words: their maker, their instructions on Linux."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # Windows names the maker, too
        return platform.processor()


def most_threads() -> int:
    """How many threads may be asked for; far more, and the system's refusal of the next one ends the process."""
    return _PER_CORE * max(16, os.cpu_count() or 1)


def set_threads(n_threads: int | None) -> int:
    """Sets how many threads torch's CPU kernels use (None leaves it to torch) and returns the number in force.

    Raises: UsageError for a number below 1 or above `most_threads()`.
    """
    import torch

    if n_threads is not None:
        if n_threads < 1:
            raise UsageError(f"threads is {n_threads}; it must be at least 1")
        if n_threads > (most := most_threads()):
            raise UsageError(f"threads is {n_threads}; it must be at most {most} here on this machine")
        torch.set_num_threads(n_threads)
    return torch.get_num_threads()


def give_memory_back() -> bool:
    """Lets the C library give freed tensors of 1 MB and more back to the system at once; False where it is not glibc.

    By itself glibc learns to keep freed pieces of up to 32 MB, and a training step's pieces then lie scattered over a heap
    that is up to half as large again as what is in use. It holds for the whole process.
    """
    # the second also keeps what is freed at the heap's end, so that small pieces stay cheap
    settings = {_M_MMAP_THRESHOLD: GIVEN_BACK_BYTES, _M_TRIM_THRESHOLD: _KEPT_AT_THE_END}
    return _mallopt({_M_MMAP_MAX: _MANY_PIECES, **settings})  # the first undoes what keep_freed_memory set


def keep_freed_memory() -> bool:
    """Lets the C library keep what a training step frees, for the next one; False where it is not glibc.

    By itself glibc gives the end of its heap back as soon as it is twice as large as the largest piece that was freed, and
    pieces of 32 MB and more at once, and gets them again page by page, filled with zeros: 1,500 page faults a step of a small
    model, 4 % of its time; 200,000 for one of GPT-2's shape, 5 %. It holds for the whole process.
    """
    return _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: KEPT_BYTES})


def available_memory() -> int | None:
    """The bytes that a process may still take here before the machine swaps or kills it; None where that is not told."""
    told = _number_after("MemAvailable:", Path("/proc/meminfo"))
    if told is None:
        return None
    free = told * 1024
    # a container's limit, if there is one: its files are there under the second version of control groups
    most, taken = (_number_after("", Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    return free if most is None or taken is None else min(free, max(0, most - taken))


def _number_after(key: str, path: Path) -> int | None:
    """The whole number that follows `key` at the beginning of a line, if a file like /proc's has one there."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    words = next((line.removeprefix(key).split() for line in lines if line.startswith(key)), [])
    return int(words[0]) if words and words[0].isdecimal() else None


def _mallopt(settings: dict[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    answers = [] if mallopt is None else [mallopt(key, value) for key, value in settings.items()]  # each of them is set
    return mallopt is not None and all(answer == 1 for answer in answers)
