"""How many threads a run's products deserve, so that a tiny model does not wait for a second one.

Threads change the rounding of sums, so the number stands in run.json and a run that goes on takes the same. The next file
to read is start.py.
"""

import os
from collections.abc import Callable, Mapping
from typing import Literal

from unembed.runtime import set_threads
from unembed.training.config import RunConfig

# Operations of a step's largest product in a layer, from which a second thread is worth waking: about two milliseconds on a
# core. Below it each product ends by waiting for a thread that another program may keep from running.
LEAST_FLOPS = 100_000_000
# Where one of these is set, the user has chosen for every program already.
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

# A number as asked for; "auto" lets the run decide; None leaves torch as it is.
Threads = int | Literal["auto"] | None


def asked_threads(option: int | None, environment: Mapping[str, str]) -> Threads:
    """What an option and an environment ask for together.

    >>> asked_threads(None, {}), asked_threads(2, {}), asked_threads(None, {"OMP_NUM_THREADS": "4"})
    ('auto', 2, None)
    """
    if option is not None:
        return option
    return None if any(environment.get(name) for name in VARIABLES) else "auto"


def largest_product(config: RunConfig) -> int:
    """The operations of the largest product of matrices in a layer: 2 * tokens * d_model * the layer's widest side."""
    spec, training = config.model, config.training
    widest = max([spec.embedding.d_model, *(block.mlp.d_mlp for block in spec.blocks)])
    return 2 * training.batch_size * spec.context_length * spec.embedding.d_model * widest


def choose_threads(asked: Threads, config: RunConfig, noted: object, device: str, say: Callable[[str], None]) -> int:
    """Sets the threads of a run, and gives their number: those noted when it began, or else what its products deserve.

    Raises: UsageError if a number below 1 is asked for.
    """
    in_force = set_threads(asked if isinstance(asked, int) else None)
    if asked != "auto" or device != "cpu":
        return in_force
    if type(noted) is int and noted >= 1:
        # another machine may have fewer cores than the one that the run began on
        n_threads = min(noted, max(os.cpu_count() or 1, in_force))
        if n_threads != in_force:
            say(f"threads: {n_threads}, as when the run began, because another number rounds differently")
        return set_threads(n_threads)
    if in_force > 1 and largest_product(config) < LEAST_FLOPS:
        say(
            "threads: 1, because the products of this model are too small to gain from a second; --threads N sets others"
        )
        return set_threads(1)
    return in_force
