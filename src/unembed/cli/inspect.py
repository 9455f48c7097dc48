"""`unembed inspect`: what a file holds, as far as it can be read."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from unembed.cli.models import ignore_option, ignored_tensors
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, html_option, quiet_option, say, write_page, write_result
from unembed.errors import InputError

if TYPE_CHECKING:
    from unembed.checkpoints.inspect import Inspected
    from unembed.results import Result


@click.command(name="inspect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", shell_complete=complete_model)
@click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
@ignore_option
@html_option
@format_option
@quiet_option
def command(model: str, like: str | None, output_format: str, quiet: bool) -> None:
    """Show what MODEL holds: format, tensors, config, tokenizer, and what is wrong with it.

    Broken files are read as far as possible; exit code 3 says that something is wrong. A tokenizer's own file is told too: its
    kind, size, specials, and how it splits a sentence.

    Examples:

    \b
        unembed inspect runs/mine
        unembed inspect model.safetensors --format json
        unembed inspect tokenizer.json
    """
    from unembed.checkpoints.inspect import inspect
    from unembed.results import Result, Table
    from unembed.training.run_parts import problems_of_run

    found = inspect(model, like, ignored_tensors())
    if found.format == "run":
        found.problems.extend(why for why in problems_of_run(model) if why not in found.problems)
    told = _for_people(found, marks_edges=output_format == "table")
    problems = {"problems": Table(columns={"problem": found.problems})} if found.problems else {}
    write_page(replace(told, tables={**problems, **told.tables}))
    if output_format == "json":
        tensors = [tensor._asdict() | {"shape": list(tensor.shape)} for tensor in found.tensors]
        values = {"format": found.format, "tensors": tensors, "config": found.config, "tokenizer": found.tokenizer}
        write_result(Result(name="inspect", values=values | {"problems": found.problems}), output_format)
    else:
        write_result(told, output_format)
        for problem in found.problems:
            say(f"problem: {problem}", quiet=quiet)
    if found.problems:
        raise InputError(
            f"{model}: {len(found.problems)} {'problem' if len(found.problems) == 1 else 'problems'} found"
        )


def _for_people(found: "Inspected", *, marks_edges: bool) -> "Result":
    """The tensors in a table or, for a tokenizer's own file, the tokens of its example; there a space can be seen."""
    from unembed.results import Result, Table
    from unembed.visible import visible

    told = dict(found.tokenizer or {})
    example = told.pop("example", None)
    values = {"format": found.format, "config": found.config, "tokenizer": told or None}
    rows = {
        "name": [tensor.name for tensor in found.tensors],
        "dtype": [tensor.dtype for tensor in found.tensors],
        "shape": [list(tensor.shape) for tensor in found.tensors],
    }
    tables = {"tensors": Table(columns=rows)}
    if found.format == "tokenizer":
        values.pop("config")
        tokens = [] if example is None else example["tokens"]
        shown = [visible(token, marks_edges=True) for token in tokens] if marks_edges else tokens
        tables = {"tokens": Table(columns={"token": shown})} if tokens else {}
    return Result(name="inspect", values=values, tables=tables)
