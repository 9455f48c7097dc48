"""The machine under a run: device, number type, threads. Chosen by the caller, looked at by nobody else.

Nothing is probed when this file is imported. The next file to read is results.py.
"""

import os
import platform
from typing import Any

from unembed.errors import UsageError


def choose_device(name: str | None) -> str:
    """The device to run on: the one that was named, otherwise an accelerator if torch has one, otherwise the CPU.

    Raises: UsageError when a named device is not there.
    """
    import torch

    if name is None or name == "auto":
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if found is None else found.type
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"device {name!r} cannot be used here: {str(error).splitlines()[0]}. Try --device cpu"
        ) from error
    return name


def set_threads(n_threads: int | None) -> int:
    """Sets how many threads torch's CPU kernels use (None leaves it to torch) and returns the number in force."""
    import torch

    if n_threads is not None:
        if n_threads < 1:
            raise UsageError(f"threads is {n_threads}; it must be at least 1")
        torch.set_num_threads(n_threads)
    return torch.get_num_threads()


def machine_facts() -> dict[str, Any]:
    """What a result depends on beside its input: processor, cores, threads and versions. No name of the machine."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": platform.system(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or platform.machine()  # not Linux: what Python knows is what there is
    return platform.processor() or platform.machine()
