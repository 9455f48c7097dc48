"""Disks that fail, tear or end the process at a chosen call, and what the tests of this folder share.

A `FaultyDisk` counts the calls that a save makes and does something bad at one of them, so that a test can walk through
all of them. `in_child` runs a function in a forked process, where a kill is a real one.
"""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from unembed.checkpoints.files import DISK
from unembed.checkpoints.run.native import Checkpoint

WRITING = {"create", "append", "write", "sync", "make_folder", "sync_folder"}


class FaultyDisk:
    """A file layer that lets `at` calls pass and then does `fault`; with `stays`, so does every later call that writes.

    fault: an errno name ("ENOSPC"), "short" (half of what was given is written), "kill" (SIGKILL before the call),
    "torn" (half is written, then SIGKILL), or None, which only counts.
    """

    def __init__(self, *, at: int = -1, fault: str | None = None, stays: bool = False) -> None:
        self.at, self.fault, self.stays = at, fault, stays
        self.calls: list[str] = []

    def _call(self, name: str, *arguments):
        number = len(self.calls)
        self.calls.append(name)
        if number == self.at or (self.stays and number > self.at >= 0 and name in WRITING):
            if self.fault in {"short", "torn"} and name == "write":
                handle, data = arguments
                taken = DISK.write(handle, data[: max(1, len(data) // 2)])
                if self.fault == "short":
                    return taken
            if self.fault in {"kill", "torn"}:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault not in {None, "short"}:
                code = getattr(errno, self.fault)
                raise OSError(code, os.strerror(code))
        return getattr(DISK, name)(*arguments)

    def create(self, path):
        return self._call("create", path)

    def append(self, path):
        return self._call("append", path)

    def write(self, handle, data):
        return self._call("write", handle, data)

    def sync(self, handle):
        return self._call("sync", handle)

    def close(self, handle):
        # a descriptor is gone after close, whatever close answers (Linux); a faulty close must not leak it
        try:
            return self._call("close", handle)
        except OSError:
            DISK.close(handle)
            raise

    def rename(self, source, target):
        return self._call("rename", source, target)

    def make_folder(self, path):
        return self._call("make_folder", path)

    def sync_folder(self, path):
        return self._call("sync_folder", path)

    def remove(self, path):
        return self._call("remove", path)


def state_of(step: int, *, version: int = 0) -> dict:
    """A small training state that can be told from every other: weights, optimizer and state by step and version."""
    generator = torch.Generator().manual_seed(1000 * version + step)
    return {
        "weights": {
            "embed.table": torch.randn(13, 5, generator=generator),
            "final_norm.gain": torch.randn(5, generator=generator).to(torch.bfloat16),
        },
        "optimizer": {
            "exp_avg/embed.table": torch.randn(13, 5, generator=generator),
            "step": torch.tensor(step),
        },
        "state": {"step": step, "version": version, "best_loss_nats": float("inf")},
    }


def assert_holds(checkpoint: Checkpoint, expected: dict) -> None:
    """Every tensor bit for bit, every value of the state."""
    for found, wanted in ((checkpoint.weights(), "weights"), (checkpoint.optimizer(), "optimizer")):
        assert_same_tensors(found, expected[wanted])
    assert checkpoint.state == expected["state"]


def assert_same_tensors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Same names, types, shapes and bits; a NaN equals itself."""
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert bits(found[name]) == bits(tensor), name


def bits(tensor: Tensor) -> bytes:
    """A tensor's bytes in the order of its elements."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def in_child(function: Callable[[], object]) -> int:
    """Runs a function in a forked process and gives its wait status; an exception there becomes exit code 99."""
    if (pid := os.fork()) == 0:
        try:
            function()
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def was_killed(status: int) -> bool:
    """Whether a child ended by SIGKILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def stray_names(folder: Path) -> list[str]:
    """Names that only an unfinished write uses."""
    return sorted(path.name for path in folder.glob(".*") if path.name != ".lock")
