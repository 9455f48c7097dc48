"""What every command shares: its options, the language it answers in, and sentences for people.

Characters that cannot be seen never leave as they are: JSON escapes them and loses nothing; a table, CSV and every sentence
spell them out, since all of these may end in a terminal, which would obey them. Imports stand inside the functions, so that
`--help` stays quick. The next files to read are formats.py, results as data, and tables.py, results for people.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import click

from unembed.errors import UsageError
from unembed.visible import visible

if TYPE_CHECKING:
    from unembed.catalogue import Words
    from unembed.results import Result

FORMATS = ("table", "json", "jsonl", "csv", "parquet")
LANGUAGES = ("en", "es", "ko")  # of the catalogue, which is read only when something is written
CLEAR_LINE = "\r\x1b[2K"
_LANG = "unembed.lang"  # where the choice stands in a context
_PAGE = "unembed.page"


@runtime_checkable
class Stream(Protocol):
    """Anything that knows whether it ends in a terminal."""

    def isatty(self) -> bool:
        """Whether a terminal reads what is written."""
        ...


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --format and --lang to a command; what cannot be written is refused before the work, not after it."""
    with_format = click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        callback=_check_format,
        help="How the result is written.",
    )
    return with_format(command if _has_lang(command) else _lang(command, exposes=False))


def html_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --html to a command whose result is also written as a page; a place where none may lie is refused at once."""
    return click.option(
        "--html",
        metavar="FILE",
        callback=_note_page,
        expose_value=False,
        help="Also write the result as one HTML page: pictures, tables, no network.",
    )(command)


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --quiet to a command."""
    return click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")(command)


def lang_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --lang to a command that wants to know the language itself; all others answer in it without knowing."""
    if _has_lang(command):
        parameters: list[click.Parameter] = command.__click_params__  # type: ignore[attr-defined]
        parameters[:] = [one for one in parameters if one.name != "lang"]
    return _lang(command, exposes=True)


def _lang(command: Callable[..., Any], *, exposes: bool) -> Callable[..., Any]:
    return click.option(
        "--lang",
        type=click.Choice(LANGUAGES),
        callback=_note_lang,
        expose_value=exposes,
        help="Language of the labels and numbers in result tables, and of the report (else from LANG); help, errors and "
        "data stay English.",
    )(command)


def _has_lang(command: Callable[..., Any]) -> bool:
    return any(one.name == "lang" for one in getattr(command, "__click_params__", []))


def _note_lang(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    context.meta[_LANG] = value
    return value


def words() -> "Words":
    """The language of this call: that of --lang, else of the environment, else English."""
    from unembed import catalogue

    context = click.get_current_context(silent=True)
    return catalogue.load(catalogue.choose(None if context is None else context.meta.get(_LANG), os.environ))


def command_line() -> str:
    """The command as it was given, quoted for a shell: what a run notes down so that it can be made again."""
    import shlex

    arguments = click.get_current_context().find_root().obj
    return shlex.join(["unembed", *(arguments if isinstance(arguments, list) else sys.argv[1:])])


def is_live(stream: Stream) -> bool:
    """Whether a stream is a terminal that understands more than plain lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, stream: Stream, **style: Any) -> str:
    """The text in a style of click's where colours may be shown: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return click.style(text, **style) if is_live(stream) and not os.environ.get("NO_COLOR") else text


def say(message: str, *, quiet: bool = False, mark: str = "") -> None:
    """A sentence for people, on stderr, in place of a live line if one stands there. A reader who has gone is no error.

    `mark` is what it begins with, in red where there are colours.
    """
    if quiet:
        return
    try:
        start = (CLEAR_LINE if is_live(sys.stderr) else "") + (
            paint(mark, sys.stderr, fg="red", bold=True) if mark else ""
        )
        click.echo(start + visible(message, keeps_lines=True), err=True, color=True)
    except BrokenPipeError:
        return  # `unembed train ... 2>&1 | head` must not end the training


def write_page(result: "Result") -> None:
    """Writes the page that --html asked for, once in a call: a command that shows less in a terminal gives the whole first."""
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.pop(_PAGE, None)
    if context is not None and path is not None:
        from unembed.report.one import write_one

        model = context.params.get("model") or context.params.get("run")
        write_one(result, path, lang=words().lang, command=command_line(), model=model)


def write_result(result: "Result", output_format: str) -> None:
    """Writes a result to stdout. CSV, JSON lines and Parquet hold its first table, or its values when it has none."""
    write_page(result)
    if output_format == "table":
        import shutil

        from unembed.cli.tables import lines_of

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        lines = lines_of(result, words(), width=width, bold=lambda text: paint(text, sys.stdout, bold=True))
        click.echo("\n".join(lines), color=True)
    else:
        from unembed.cli.formats import encoded

        click.echo(encoded(result, output_format, is_terminal=sys.stdout.isatty()), nl=False)


def _note_page(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from unembed.report.place import check_page

        check_page(value)
        context.meta[_PAGE] = value


def _check_format(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from importlib.util import find_spec

    if value == "parquet" and find_spec("pyarrow") is None:
        raise UsageError("--format parquet needs pyarrow; install it with: pip install 'unembed[data]'")
    if value == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet writes binary data; send it to a file with > result.parquet")
    return value
