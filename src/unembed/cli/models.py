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


def threads_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --threads to a command; it holds for the whole process, so the command itself need not know of it."""
    return click.option(
        "--threads",
        type=int,
        expose_value=False,
        callback=_use_threads,
        help="Threads of the CPU kernels; 1 is quicker for small models, and where other programs are busy.",
    )(command)


def _use_threads(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    if value is not None:
        from unembed.runtime import set_threads

        set_threads(value)


def ignored_tensors() -> tuple[str, ...]:
    """The names that --ignore-tensor gave to this call."""
    names: tuple[str, ...] = click.get_current_context().meta.get(_IGNORED, ())
    return names


def open_model(model: str, tokenizer: str | None, like: str | None, *, quiet: bool) -> "Transformer":
    """Opens a MODEL and says where its numbers come from, and what was decided about another program's file.

    Raises: as `load`.
    """
    from unembed.checkpoints.load import CONVERTED_KEY, find, open_found
    from unembed.places import shown
    from unembed.tokenizers.notes import size_note

    found = find(model, like=like, ignore_tensors=ignored_tensors())
    loaded = open_found(found, tokenizer=tokenizer)
    if found.preset is not None:
        say(
            f"preset {found.preset}: random weights (seed 0); nothing is downloaded. For trained ones name a folder or a file",
            quiet=quiet,
        )
    if found.run is not None and (source := found.run.description.get(CONVERTED_KEY)) is not None:
        say(f"{shown(model)}: written by unembed convert from {shown(str(source))}", quiet=quiet)
    if loaded.tokenizer is not None and (note := size_note(loaded.tokenizer, loaded.spec.embedding.vocab_size)):
        say(note, quiet=quiet)
    if loaded.load_report is not None:
        say(loaded.load_report.summary(), quiet=quiet)
        for warning in loaded.load_report.warnings:
            say(f"warning: {warning}")  # even when quiet: the model may not be the one that was meant
    return loaded
