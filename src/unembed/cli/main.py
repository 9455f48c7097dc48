"""`unembed`: the visible list of commands, loaded when they are used, and the one place where errors become exit codes.

`unembed --help` imports neither torch nor numpy. Data goes to stdout, everything for people to stderr. The next file to
read is render.py, then any command's own file.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from unembed.errors import UnembedError

# command: the module that holds it, and its line in the list of commands
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("unembed.cli.tour", "Train Mini-GPT on a small grammar, look inside it, write a report."),
    "train": ("unembed.cli.train", "Train a model on your own files, or go on with a run."),
    "sample": ("unembed.cli.sample", "Let a model go on with a text."),
    "count": ("unembed.cli.count", "Count a model's parameters, part by part."),
    "report": ("unembed.cli.report", "Write a run's report as one HTML file."),
}
MOST_LINES = 6


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module and takes its `command`."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the closest names when there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=2, cutoff=0.5)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"no command is named {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from COMMANDS, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="unembed")
def cli() -> None:
    """A glass-box workbench for transformer language models: from token ids to logits and back.

    Begin with `unembed tour`. Every command has its own --help.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits with the code that contract.md gives for what happened."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; errors go to stderr, six lines at most, without a traceback."""
    try:
        cli.main(args=None if arguments is None else list(arguments), prog_name="unembed", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "unembed"
        return _say(f"{error.format_message()}\nTry '{where} --help'.", 2)
    except UnembedError as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", 130)
    except BrokenPipeError:
        # the reader of our output has gone; nothing is wrong with us, and flushing at exit would complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _say("out of memory. Try a smaller batch_size or context_length, or a smaller model.", 4)
    except OSError as error:
        return _say(f"{error.filename or 'a file'}: {error.strerror or error}", 4 if _is_full(error) else 3)
    except Exception as error:
        if os.environ.get("UNEMBED_TRACEBACK"):
            raise
        kind = type(error).__name__
        return _say(
            f"this is a fault of unembed's: {kind}: {error}\nSet UNEMBED_TRACEBACK=1 to see where, and report it.", 1
        )
    return 0


def _say(message: str, code: int) -> int:
    lines = message.strip().splitlines() or [""]
    shown = lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "..."]
    click.echo("error: " + "\n".join(shown), err=True)
    return code


def _is_full(error: OSError) -> bool:
    import errno

    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG)
