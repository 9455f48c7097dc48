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


GIVEN = """
import ctypes, torch
from unembed.runtime import give_memory_back, keep_freed_memory
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
assert keep_freed_memory() and give_memory_back()
before = resident()
large = [torch.ones(1 << 22) for _ in range(20)]
above = torch.ones(1000)
del large
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_process_that_kept_memory_can_give_it_back_later():
    done = subprocess.run([sys.executable, "-c", GIVEN], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 60  # MB, of 320


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert runtime.keep_freed_memory() is False
    assert runtime.give_memory_back() is False


LARGE = {"optimizer": "muon", "batch_size": 100_000}


@pytest.mark.parametrize(
    ("settings", "times_free", "kept"),
    [
        ({"optimizer": "muon", "batch_size": 2}, 0.01, True),
        ({"optimizer": "adamw", "batch_size": 2}, 0.01, True),
        (LARGE, 2.1, True),
        (LARGE, 1.9, False),
        (LARGE, None, True),
        (LARGE | {"checkpoint_activations": True}, 100, False),
        ({"checkpoint_activations": True}, 100, True),
    ],
)
def test_runs_keep_what_they_free_unless_they_are_large_and_memory_is_short(monkeypatch, settings, times_free, kept):
    called = []
    config = with_settings(run_config(), settings)
    peak = memory._counted(config).process_peak
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: called.append(True))
    monkeypatch.setattr(memory, "give_memory_back", lambda: called.append(False))
    monkeypatch.setattr(
        memory, "available_memory", lambda: None if times_free is None else round(3 * times_free * peak)
    )
    memory.keep_to_plan(config, n_processes=3)
    assert called == [kept]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_available_memory_is_what_the_system_and_the_container_leave(monkeypatch, tmp_path):
    free = runtime.available_memory()
    assert free is not None
    assert 0 < free < 1 << 50
    files = {
        "/proc/meminfo": "MemTotal: 4000 kB\nMemAvailable:    3000 kB\n",
        "/sys/fs/cgroup/memory.max": "2000000\n",
        "/sys/fs/cgroup/memory.current": "500000\n",
    }
    monkeypatch.setattr(runtime.Path, "read_text", lambda self, **_: files[str(self)])
    assert runtime.available_memory() == 1_500_000
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert runtime.available_memory() == 3000 * 1024
    files["/proc/meminfo"] = "nothing that is known\n"
    assert runtime.available_memory() is None
