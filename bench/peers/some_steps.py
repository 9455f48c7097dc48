"""One process, or one of several under torchrun, that trains a few steps and says what they took in time and memory.

    python bench/peers/some_steps.py NAME BATCH CONTEXT PARALLEL THREADS STEPS kept|given-back

The first process prints the middle seconds of a step after the second one, and by how much the peak resident size of the
largest process rose over what it was before the model was built. The last word says what becomes of freed memory: a run
keeps it where there is room, and the plan's memory is that of a process that gives it back. planned.py, beside this folder,
starts it.
"""

import importlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

import msgspec
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from planned import SHAPES
from tying import config_of, random_split
from unembed.runtime import give_memory_back, keep_freed_memory
from unembed.training.config import Kind
from unembed.training.loop import Trainer
from unembed.training.parallel import Parallel
from unembed.training.processes import joined


def resident_bytes(field: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the most that ever was, of this process under Linux."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(name: str, batch_size: int, context_length: int, parallel: Kind, threads: int, steps: int, freed: str) -> None:
    """Builds, trains, prints. `batch_size` is that of one process."""
    torch.set_num_threads(threads)
    spec = SHAPES[name](context_length)
    with joined(os.environ, "cpu") as processes:
        config, split = config_of(spec, batch_size * processes.n, parallel), random_split(spec)
        if parallel != "none":  # what the libraries take is no part of the model's memory
            importlib.import_module("torch.distributed.fsdp")
            importlib.import_module("torch.distributed.tensor")
        if freed == "kept":
            keep_freed_memory()
        else:
            give_memory_back()
        before = resident_bytes("VmRSS")
        laid = Parallel(parallel, processes)
        trainer = Trainer(laid.build(spec, config.init, seed=1), config, split, split, parallel=laid)
        trainer.prepare()
        took = []
        for _ in range(steps):
            began = time.perf_counter()
            trainer.step()
            took.append(time.perf_counter() - began)
        grown = processes.gathered(resident_bytes("VmHWM") - before)
        if processes.is_first:
            print(json.dumps({"seconds": statistics.median(took[2:]), "bytes": max(grown)}), flush=True)


if __name__ == "__main__":
    kind: Kind = msgspec.convert(sys.argv[4], Kind)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), kind, int(sys.argv[5]), int(sys.argv[6]), sys.argv[7])
