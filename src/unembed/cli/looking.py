"""What the commands that look inside a MODEL have in common: their arguments and options, reading a text, and what is shown.

The next file to read is any of them, such as attribute.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.models import model_options, threads_option
from unembed.cli.paths import complete_model
from unembed.cli.prompts import parses_specials, read_prompt, specials_option
from unembed.cli.render import format_option, html_option, quiet_option, say, words, write_page, write_result
from unembed.cli.unread import tell_unread

if TYPE_CHECKING:
    from unembed.model.transformer import Transformer
    from unembed.results import Result, Table


def looking_command(
    name: str, *texts: str, data: bool = False, needs_model: bool = True
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a command of a function: MODEL and its texts in front, the options above it, then those that all looks have.

    `data` takes any number of files after MODEL. The options in common are --parse-specials for texts, --tokenizer, --like,
    --ignore-tensor, --html, --format, --lang, --quiet and --threads, in this order in every help page.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        own = function.__dict__.pop("__click_params__", [])  # click collects them from the last one up
        function = model_options(html_option(format_option(quiet_option(threads_option(function)))))
        if texts:
            function = specials_option(function)
        function.__click_params__ += own  # type: ignore[attr-defined]
        if data:
            function = click.argument("data", nargs=-1)(function)
        for text in reversed(texts):
            function = click.argument(text)(function)
        function = click.argument("model", required=needs_model, shell_complete=complete_model)(function)
        return click.command(name=name, context_settings={"help_option_names": ["-h", "--help"]})(function)

    return decorate


def read_ids(what: str, model: "Transformer", text: str, *, quiet: bool) -> list[int]:
    """The ids of the text, or for "-" of standard input; what of it the model never gets to see is said."""
    from unembed.lenses.asking import token_ids

    found = read_prompt(text)
    tell_unread(model.tokenizer, [found], many="a text", one="the text", quiet=quiet)
    return token_ids(what, model, found, parse_specials=parses_specials())


def show(result: "Result", output_format: str, *, quiet: bool, tables: "dict[str, Table] | None" = None) -> None:
    """Writes a result; for people some of its tables, in a form that can be read, with how far to trust them on stderr."""
    import numpy as np

    write_page(result)
    if output_format != "table":
        write_result(result, output_format)
        return
    # arrays and lists are for programs; a table says the same
    values = {n: value for n, value in result.values.items() if not isinstance(value, list) and not np.ndim(value)}
    write_result(
        replace(result, tables=result.tables if tables is None else tables, values=values, pictures=()), "table"
    )
    for note in result.notes:
        say(words().text(f"note.{note}"), quiet=quiet)


def grid(table: "Table", down: str, across: str, value: str, heads: Sequence[str] | None = None) -> "Table":
    """A table with a row for each value of one column and a column for each of another, numbers to three decimals.

    `heads` are written over the columns, after their number; without them the number stands alone.
    """
    from unembed.results import Table

    columns: dict[Any, dict[Any, Any]] = {}
    for row in table.rows():
        number = row[value]
        columns.setdefault(row[across], {})[row[down]] = round(number, 3) + 0.0 if isinstance(number, float) else number
    rows = list(dict.fromkeys(table[down].tolist()))
    named = {n: str(n) if heads is None else f"{n} {heads[n]}" for n in columns}
    return Table(columns={down: rows, **{named[n]: [found.get(row) for row in rows] for n, found in columns.items()}})
