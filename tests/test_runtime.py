"""What a run sets for its whole process: the memory that it keeps. Measured in a process of its own."""

import platform
import subprocess
import sys

import pytest

from small import run_config
from unembed import runtime
from unembed.recipes import memory
from unembed.training.config import with_settings

FAULTS = """
import resource, sys, torch
from unembed.runtime import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    assert keep_freed_memory()
matrices = [torch.full((512, 128), 0.01, requires_grad=True) for _ in range(4)]
def step():
    x = torch.ones(768, 128)
    for matrix in matrices:
        x = x + torch.nn.functional.gelu(x @ matrix.T) @ matrix
    torch.autograd.grad(x.sum(), matrices)
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_used_again_without_page_faults():
    faults = {}
    for kind in ("kept", "given back"):
        done = subprocess.run([sys.executable, "-c", FAULTS, kind], capture_output=True, text=True, check=True)
        faults[kind] = int(done.stdout)
    assert faults["given back"] > 1000, faults  # else there is nothing to win here
    assert faults["kept"] * 4 < faults["given back"], faults


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert runtime.keep_freed_memory() is False
    assert runtime.give_memory_back() is False


@pytest.mark.parametrize(
    ("optimizer", "batch_size", "kept"), [("muon", 2, True), ("adamw", 2, True), ("muon", 100_000, False)]
)
def test_small_runs_keep_what_they_free_and_large_ones_do_not(monkeypatch, optimizer, batch_size, kept):
    called = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: called.append(True))
    monkeypatch.setattr(memory, "give_memory_back", lambda: called.append(False))
    memory.keep_to_plan(with_settings(run_config(), {"optimizer": optimizer, "batch_size": batch_size}))
    assert called == [kept]
