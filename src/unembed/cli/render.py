"""How a result leaves a command: a table for people, or JSON, JSON lines, CSV and Parquet for other programs.

Data is UTF-8, numbers unrounded. Characters that cannot be seen never leave as they are: JSON escapes them and loses
nothing; a table, CSV and every sentence spell them out, since all of these may end in a terminal, which would obey them.
Imports stand inside the functions, so that `--help` stays quick. The next file to read is progress.py.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from unembed.errors import UsageError
from unembed.visible import visible

if TYPE_CHECKING:
    from unembed.results import Result, Table

FORMATS = ("table", "json", "jsonl", "csv", "parquet")
CLEAR_LINE = "\r\x1b[2K"


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --format to a command; what cannot be written is refused before the work, not after it."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        callback=_check_format,
        help="How the result is written.",
    )(command)


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --quiet to a command."""
    return click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")(command)


def lang_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --lang to a command."""
    return click.option(
        "--lang", type=click.Choice(["en", "es", "ko"]), help="Language of the report (else from LANG)."
    )(command)


def command_line() -> str:
    """The command as it was given, quoted for a shell: what a run notes down so that it can be made again."""
    import shlex

    arguments = click.get_current_context().find_root().obj
    return shlex.join(["unembed", *(arguments if isinstance(arguments, list) else sys.argv[1:])])


def say(message: str, *, quiet: bool = False) -> None:
    """A sentence for people, on stderr, in place of a live line if one stands there. A reader who has gone is no error."""
    if quiet:
        return
    try:
        click.echo((CLEAR_LINE if sys.stderr.isatty() else "") + visible(message, keeps_lines=True), err=True)
    except BrokenPipeError:
        return  # `unembed train ... 2>&1 | head` must not end the training


def write_result(result: "Result", output_format: str) -> None:
    """Writes a result to stdout. CSV, JSON lines and Parquet hold its first table, or its values when it has none."""
    from unembed.results import to_json_value

    if output_format == "json":
        _write(_json(to_json_value(result.to_dict())) + "\n")
        return
    first = next(iter(result.tables.values()), None)
    rows = [dict(result.values)] if first is None else first.rows()
    if output_format == "jsonl":
        _write("".join(_json(to_json_value(row)) + "\n" for row in rows))
    elif output_format == "csv":
        _write(_csv(rows))
    elif output_format == "parquet":
        _write_parquet(rows)
    else:
        lines = [line for name, value in result.values.items() for line in _named(name, value)]
        for name, table in result.tables.items():
            lines += ["", name, *_aligned(table)]
        click.echo("\n".join(lines))


def _check_format(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from importlib.util import find_spec

    if value == "parquet" and find_spec("pyarrow") is None:
        raise UsageError("--format parquet needs pyarrow; install it with: pip install 'unembed[data]'")
    if value == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet writes binary data; send it to a file with > result.parquet")
    return value


def _write(text: str) -> None:
    """Data, always in UTF-8, whatever the terminal's encoding is."""
    click.echo(text.encode(), nl=False)


def _json(value: Any) -> str:
    import json

    # json.dumps escapes what lies below a space; the rest that cannot be seen (C1 controls, bidirectional marks, halves of
    # surrogate pairs) is legal JSON but dangerous or impossible to write
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[\x7f-\U0010ffff]", lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    import json

    return character if visible(character) == character else json.dumps(character)[1:-1]


def _csv(rows: list[dict[str, Any]]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in rows[0]] if rows else [])
    writer.writerows([_csv_cell(value) for value in row.values()] for row in rows)
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    from unembed.results import to_json_value

    if isinstance(value, str):
        # line breaks and tabs are at home in a quoted cell; on a terminal even they are spelled out
        kept = "" if sys.stdout.isatty() else "\n\r\t"
        return value if value.isprintable() else "".join(c if c in kept else visible(c) for c in value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _json(to_json_value(value))


def _write_parquet(rows: list[dict[str, Any]]) -> None:
    import importlib
    import io

    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    out = io.BytesIO()  # a pipe cannot be asked where it stands, which the writer does
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    click.echo(out.getvalue(), nl=False)


def _aligned(table: "Table") -> list[str]:
    units = table.units
    heads = [visible(f"{name} [{units[name]}]" if name in units else name) for name in table.columns]
    cells = [[_cell(value) for value in row.values()] for row in table.rows()]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [heads, *cells]
    return ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def _named(name: str, value: Any) -> list[str]:
    """One value under its name: mappings and texts as lines below it, arrays by their shape alone."""
    from unembed.results import to_plain

    plain = to_plain(value)
    if isinstance(plain, Mapping) and plain:
        return [name, *(f"  {visible(key):<22} {_cell(item)}" for key, item in plain.items())]
    if isinstance(plain, list) and plain and all(isinstance(item, str) for item in plain):
        return [name, *(f"  {visible(item)}" for item in plain)]
    if isinstance(plain, list) and plain and isinstance(plain[0], list):
        return [f"{name:<24} {' x '.join(map(str, _shape(plain)))} numbers"]
    if isinstance(plain, str) and "\n" in plain:
        return [name, *(f"  {visible(line)}" for line in plain.split("\n"))]
    return [f"{name:<24} {_cell(plain)}"]


def _shape(value: Any) -> list[int]:
    return [len(value), *_shape(value[0])] if isinstance(value, list) and value else []


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(key))} {_cell(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(_cell(item) for item in value)
    return visible(str(value))
