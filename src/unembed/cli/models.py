"""What every command that opens a MODEL has in common: two options for files that do not tell all, and what is said of a load.

The next file to read is any command's own, such as sample.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.render import say

if TYPE_CHECKING:
    from unembed.model.transformer import Transformer


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --tokenizer and --like to a command."""
    like = click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
    tokenizer = click.option(
        "--tokenizer", metavar="FILE", help="A tokenizer's file, where none is found with the model."
    )
    return tokenizer(like(command))


def open_model(model: str, tokenizer: str | None, like: str | None, *, quiet: bool) -> "Transformer":
    """Opens a MODEL and says what was decided about another program's file. Raises: as `load`."""
    from unembed.checkpoints.load import load

    loaded = load(model, tokenizer=tokenizer, like=like)
    if loaded.load_report is not None:
        say(loaded.load_report.summary(), quiet=quiet)
        for warning in loaded.load_report.warnings:
            say(f"warning: {warning}")  # even when quiet: the model may not be the one that was meant
    return loaded
