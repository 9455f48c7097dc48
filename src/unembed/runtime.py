"""The machine under a run: device, number type, threads. Chosen by the caller, looked at by nobody else.

Nothing is probed when this file is imported. The next file to read is results.py.
"""

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
