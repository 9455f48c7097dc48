"""Several processes and one run: who may begin it, what they must agree on, and what is said when one of them is lost.

Before it: ../training/processes.py. The next file to read is outcome.py.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unembed.checkpoints.load import open_run
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import RunError
from unembed.training.config import RunConfig
from unembed.training.parallel import Parallel, check_batch, check_kind, check_shares
from unembed.training.processes import Processes, read_place


def refuse_early(settings: Mapping[str, Any], environment: Mapping[str, str], *, begins: bool) -> None:
    """Refuses, before processes meet or text is read, what settings and environment tell by themselves. Raises: UsageError."""
    place = read_place(environment)
    n = 1 if place is None else place.n
    asked = settings.get("parallel", settings.get("training.parallel", "none" if begins else None))
    if asked in ("none", "ddp", "fsdp"):
        check_kind(asked, n, is_launched=place is not None)
    batch_size = settings.get("batch_size", settings.get("training.batch_size"))
    if type(batch_size) is int and batch_size > 0:
        check_batch(batch_size, n)


def check_together(config: RunConfig, processes: Processes, device: str) -> None:
    """Refuses settings that these processes on this device cannot carry out. Raises: UsageError."""
    Parallel(config.training.parallel, processes, precision=config.training.precision, device=device)
    check_shares(config.training, processes.n, config.model)


def open_shared(out: Path, processes: Processes) -> RunFolder:
    """The run that the first process has begun or taken up. Raises: RunError where this process does not see it."""
    if not RunFolder.exists(out):
        raise RunError(
            f"{out}: process {processes.rank} of {processes.n} does not see the run that process 0 has there. All machines "
            "must share the disk of --out, under the same path"
        )
    return open_run(out)


def after_a_loss(run: Path, program: str) -> str:
    """What is left of a run whose processes have stopped, and the command that goes on.

    >>> print(after_a_loss(Path("runs/none"), "torchrun --nproc-per-node 2 -m unembed"))
    No checkpoint is complete yet.
    Go on with: torchrun --nproc-per-node 2 -m unembed train --out runs/none --resume
    """
    steps = [checkpoint.step for checkpoint in RunFolder(run, {}).checkpoints()]
    told = (
        f"Saved is step {steps[-1]:,}; what came after it is done again." if steps else "No checkpoint is complete yet."
    )
    return f"{told}\nGo on with: {program} train --out {shlex.quote(str(run))} --resume"
