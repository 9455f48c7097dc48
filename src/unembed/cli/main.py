"""`unembed`: the visible list of commands, loaded when they are used, and the one place where errors become exit codes.

`unembed --help` imports neither torch nor numpy. Data goes to stdout, everything for people to stderr. The next file to
read is render.py, then any command's own file.
"""

import errno
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from unembed.cli.render import say
from unembed.errors import DamageWarning, UnembedError, UsageError, did_you_mean
from unembed.places import shown

# command: the module that holds it, and its line in the list of commands
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("unembed.cli.tour", "Train Mini-GPT on a small grammar, look inside it, write a report."),
    "train": ("unembed.cli.train", "Train a model on your own files, or go on with a run."),
    "sample": ("unembed.cli.sample", "Let a model go on with a text."),
    "tokenize": ("unembed.cli.tokenize", "Show a text as ids and tokens, or compare tokenizers on a file."),
    "count": ("unembed.cli.count", "Count a model's parameters, part by part."),
    "tie": ("unembed.cli.tie", "Say whether a model is really tied, and repair it."),
    "lens": ("unembed.cli.lens", "Show what each layer would say, token by token."),
    "attribute": ("unembed.cli.attribute", "Say which part of a model wrote how much of a score."),
    "attention": ("unembed.cli.attention", "Show what each attention head looks at."),
    "patch": ("unembed.cli.patch", "Find where in a model the difference between two texts is known."),
    "stream": ("unembed.cli.stream", "Show what each block adds to the residual stream."),
    "flow": ("unembed.cli.flow", "Measure how much of the gradient reaches each layer."),
    "tune-lens": ("unembed.cli.tune_lens", "Train a lens that asks each layer in its own language."),
    "calibration": ("unembed.cli.calibration", "Say how far each layer's reading may be believed."),
    "truth": ("unembed.cli.truth", "Say from which layer on the lens knows a grammar's features."),
    "inspect": ("unembed.cli.inspect", "Show what a file of weights holds, broken or not."),
    "verify": ("unembed.cli.verify", "Prove on your own model that its numbers are right."),
    "convert": ("unembed.cli.convert", "Write a model in another format, bit for bit."),
    "plan": ("unembed.cli.plan", "Say what training on other devices would take, before you rent them."),
    "compare-sharing": ("unembed.cli.compare_sharing", "Share one small model's table in five ways, and compare."),
    "report": ("unembed.cli.report", "Write a run's report as one HTML file."),
    "completion": ("unembed.cli.completion", "Print what makes your shell complete unembed's commands."),
}
EXIT_CODES = {
    0: "done",
    1: "a fault of unembed's own; please report it",
    2: "the command line is wrong: a command, option, setting or name that does not exist, or contradicts another",
    3: "what was given cannot be used: a file, a run, a model, a text; or a check says that something is broken",
    4: "memory, disk or another resource ran out",
    5: "refused for safety: going on could have run code that came with the data",
    6: "training stopped because a number was not finite",
    130: "interrupted; a run has been saved first",
}
MOST_LINES, LONGEST_LINE = 6, 400
OUT_OF_MEMORY = "out of memory. Try a smaller batch_size or context_length, or a smaller model."
# What to do about a failure of the system that no reader or writer of ours has put into words.
NEXT_STEP = {
    errno.ENOENT: "Check the name.",
    errno.EACCES: "Change its permissions, or name another place.",
    errno.EPERM: "Change its permissions, or name another place.",
    errno.EROFS: "Name a place that can be written to.",
    errno.EISDIR: "It is a folder; name a file in it.",
    errno.ENOTDIR: "A file stands where a folder is needed; name another place.",
    errno.EEXIST: "Name another place, or move it away.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.ELOOP: "Links lead in a circle; name the file itself.",
    errno.ENOSPC: "Make room, or name a place on another disk.",
    errno.EDQUOT: "Make room, or name a place on another disk.",
}


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
            hint = did_you_mean(args[0], COMMANDS, f"There are: {', '.join(COMMANDS)}.", n=2, cutoff=0.6)
            raise click.UsageError(f"no command is named {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from COMMANDS, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="unembed")
@click.pass_context
def cli(context: click.Context) -> None:
    """A glass-box workbench for transformer language models: from token ids to logits and back.

    Begin with `unembed tour`. Every command has its own --help.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits with the code that contract.md gives for what happened."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; errors go to stderr, six lines at most, without a traceback."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    _open_streams()
    try:
        code = _invoke(given)
        sys.stdout.flush()
        return code
    except click.ClickException as error:
        if _is_follower():
            return 2
        where = " ".join(["unembed", *[word for word in given[:1] if word in COMMANDS]])
        return _say(f"{_in_words(error.format_message())}\nTry '{where} --help'.", 2)
    except UnembedError as error:
        # several processes fail alike, and one of them has the words for it (training/processes.py)
        is_silent = not str(error) or (isinstance(error, UsageError) and _is_follower())
        return error.exit_code if is_silent else _say(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", 130)
    except BrokenPipeError:
        # whoever read our output has gone (`| head`): nothing is wrong, and flushing at exit must not complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _say(OUT_OF_MEMORY, 4)
    except OSError as error:
        told = f"{shown(str(error.filename or 'a file'))}: {error.strerror or error}"
        return _say(f"{told}. {NEXT_STEP.get(error.errno or 0, '')}", 4 if _is_full(error) else 3)
    except Exception as error:
        if os.environ.get("UNEMBED_TRACEBACK"):
            raise
        if _is_out_of_memory(error):
            return _say(OUT_OF_MEMORY, 4)
        told = (str(error).splitlines() or [""])[0]
        return _say(
            f"this is a fault of unembed's: {type(error).__name__}: {told}\n"
            "Set UNEMBED_TRACEBACK=1 to see where, and report it.",
            1,
        )


def _is_follower() -> bool:
    """Whether torchrun has started this process beside a first one, which says what is wrong with a command line of all."""
    return os.environ.get("RANK", "0") not in ("", "0")


def _in_words(told: str) -> str:
    """click's message in the words of ours."""
    for theirs, ours in (
        ("valid integer range.", "whole number."),
        ("valid integer.", "whole number."),
        ("valid float.", "number."),
    ):
        told = told.replace(f"is not a {theirs}", f"is not a {ours}")
    return told


def _open_streams() -> None:
    """A stream that whoever started us has closed (`>&-`) is None in Python: what is written to it then goes nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows no Korean shows it escaped


def _invoke(arguments: list[str]) -> int:
    """Runs a command, or answers a shell that asks for completions; not click's own `main`, which has exits of its own."""
    asked = os.environ.get("_UNEMBED_COMPLETE")
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "unembed", "_UNEMBED_COMPLETE", asked)
    try:
        with warnings.catch_warnings(), cli.make_context("unembed", arguments.copy(), obj=arguments) as context:
            _tell_damage()
            cli.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return 0


def _tell_damage() -> None:
    """Warnings of damage are said as sentences, even when quiet: the result is not that of what was meant."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, DamageWarning):
            say(f"warning: {message}")
        else:
            others(message, category, *where, **more)

    warnings.simplefilter("always", DamageWarning)
    warnings.showwarning = show


def _say(message: str, code: int) -> int:
    lines = [line if len(line) <= LONGEST_LINE else shown(line, LONGEST_LINE) for line in message.strip().splitlines()]
    say("\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "..."]), mark="error: ")
    return code


def _is_out_of_memory(error: Exception) -> bool:
    """Torch has a type for a full accelerator and, for a full main memory, only words."""
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    )


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG)
