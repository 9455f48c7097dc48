"""What every analysis that can follow a training has in common: one option, with one meaning and one refusal.

The analysis is made for each kept checkpoint, and comes out as one table with a column `step` in front
(../views/over_training.py). The next file to read is truth.py, or any other command with the option.
"""

from collections.abc import Callable
from typing import Any

import click

from unembed.errors import UsageError


def over_training_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --over-training to a command."""
    option = click.option("--over-training", is_flag=True, help="For each kept checkpoint of a run, as one table.")
    return option(command)


def refuse_tuned(tuned: str | None) -> None:
    """Refuses a lens that was tuned for one checkpoint where all are gone through. Raises: UsageError."""
    if tuned is not None:
        raise UsageError("--tuned belongs to one checkpoint; leave it out with --over-training, which goes through all")
