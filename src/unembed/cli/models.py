"""What every command that opens a MODEL has in common: options for files that do not tell all or hold more than a
model, and what is said of a load.

The next file to read is any command's own, such as sample.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.render import say

if TYPE_CHECKING:
    from unembed.model.transformer import Transformer

_IGNORED = "unembed.ignored_tensors"  # where the names stand in a context


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --tokenizer, --like and --ignore-tensor to a command."""
    like = click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
    tokenizer = click.option(
        "--tokenizer", metavar="FILE", help="A tokenizer's file, where none is found with the model."
    )
    return tokenizer(like(ignore_option(command)))


def ignore_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --ignore-tensor to a command; what was given is kept beside its arguments, for `ignored_tensors`."""
    return click.option(
        "--ignore-tensor",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_note_ignored,
        help="A tensor of another program's file that the model does without; * stands for any part of a name. May be "
        "given several times.",
    )(command)


def _note_ignored(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    context.meta[_IGNORED] = value


def ignored_tensors() -> tuple[str, ...]:
    """The names that --ignore-tensor gave to this call."""
    names: tuple[str, ...] = click.get_current_context().meta.get(_IGNORED, ())
    return names


def open_model(model: str, tokenizer: str | None, like: str | None, *, quiet: bool) -> "Transformer":
    """Opens a MODEL and says what was decided about another program's file. Raises: as `load`."""
    from unembed.checkpoints.load import load

    loaded = load(model, tokenizer=tokenizer, like=like, ignore_tensors=ignored_tensors())
    if loaded.load_report is not None:
        say(loaded.load_report.summary(), quiet=quiet)
        for warning in loaded.load_report.warnings:
            say(f"warning: {warning}")  # even when quiet: the model may not be the one that was meant
    return loaded
