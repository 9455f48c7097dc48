"""Why a run cannot go on: there is none, or the folder holds weights alone. Next to read: start.py, which asks first."""

from collections.abc import Sequence
from pathlib import Path

from unembed.checkpoints.load import CONVERTED_KEY
from unembed.checkpoints.run.folder import RunFolder, refuse_occupied
from unembed.errors import RunError, UsageError
from unembed.places import shown
from unembed.recipes import recipe
from unembed.training.config import RunConfig


def refuse_absent(out: str | Path, data: Sequence[str | Path], recipe_name: str) -> None:
    """For --resume where there is no run: returns if one can begin. Raises: UsageError without data; RunError."""
    if not data and recipe(recipe_name).needs_data:
        refuse_occupied(Path(out))  # a folder with something else in it is no place to begin one
        raise UsageError(
            f"{shown(str(out))}: there is no run to go on with. To begin one there, recipe {recipe_name} needs text to "
            "train on; name files or folders"
        )


def refuse_another_run(out: Path, saved: RunConfig, changed: RunConfig) -> None:
    """Returns if the changed settings are those of a run that goes on. Raises: RunError."""
    if changed.model != saved.model or changed.seed != saved.seed or changed.init != saved.init:
        raise RunError(f"{out}: a run cannot change its model, its seed or its init when it goes on; begin another one")
    if type(changed.training.optimizer) is not type(saved.training.optimizer):
        raise RunError(
            f"{out}: a run cannot change its optimizer when it goes on: the other one knows nothing of its gradients so far. "
            "Leave the setting optimizer out, or begin another run"
        )


def refuse_converted(run: RunFolder) -> None:
    """Raises: RunError for a folder that convert wrote."""
    if CONVERTED_KEY in run.description:
        raise RunError(
            f"{run.path}: was made by convert; it has weights and no recipe or data, so there is nothing to go on with. "
            "Begin another run"
        )
