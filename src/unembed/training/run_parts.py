"""What is wrong with a run beside its checkpoints: its settings, its data, its logs, each looked at on its own.

`unembed inspect` tells all of it, for a run that somebody sent or a disk has damaged. The next file to read is
../checkpoints/inspect.py, which looks at the checkpoints.
"""

from collections.abc import Callable
from pathlib import Path

from unembed.checkpoints.load import CONFIG_KEY, open_run, spec_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.metrics import NAME
from unembed.corpora.shards import TokenShards
from unembed.errors import UnembedError
from unembed.training.config import config_of

DATA = "data"


def problems_of_run(path: str | Path) -> list[str]:
    """A sentence about each part of a run that is damaged; no error of a file leaves this function."""
    try:
        run = open_run(path)
    except UnembedError as error:
        return [str(error)]
    is_trained = "training" in run.description.get(
        CONFIG_KEY, {}
    )  # else it was converted, and has neither data nor log
    looks: list[Callable[[], object]] = [lambda: config_of(run.description, run.path) if is_trained else spec_of(run)]
    if (run.path / DATA).exists():
        looks.append(lambda: TokenShards.open(run.path / DATA))
    looks += [run.metrics, run.samples, run.tying]
    problems = [why for look in looks if (why := _why_not(look))]
    newest, _ = run.latest()
    if is_trained and newest is not None and (why := lost_history(run, newest.step)):
        problems.append(why)
    return problems


def lost_history(run: RunFolder, step: int) -> str | None:
    """Says so where a run that has done steps has no log of them, which nothing can bring back."""
    if step == 0 or (run.path / NAME).exists():
        return None
    return f"{run.path / NAME}: is gone, and with it what was measured up to step {step}; curves begin after it"


def _why_not(look: Callable[[], object]) -> str | None:
    try:
        look()
    except UnembedError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return None
