"""How a result leaves a command: a table for people, or JSON, JSON lines, CSV and Parquet for other programs.

JSON is one object, numbers unrounded. Text from a model or a file never reaches a terminal with its control characters.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from unembed.errors import UsageError
from unembed.results import Result, Table, to_json_value
from unembed.visible import visible

FORMATS = ("table", "json", "jsonl", "csv", "parquet")


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --format to a command."""
    return click.option(
        "--format", "output_format", type=click.Choice(FORMATS), default="table", help="How the result is written."
    )(command)


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --quiet to a command."""
    return click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")(command)


def lang_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --lang to a command."""
    return click.option(
        "--lang", type=click.Choice(["en", "es", "ko"]), help="Language of the report (else from LANG)."
    )(command)


def say(message: str, *, quiet: bool = False) -> None:
    """A sentence for people, on stderr."""
    if not quiet:
        click.echo(visible(message), err=True)


def write_result(result: Result, output_format: str) -> None:
    """Writes a result to stdout. CSV, JSON lines and Parquet hold its first table, or its values when it has none."""
    if output_format == "json":
        click.echo(json.dumps(to_json_value(result.to_dict()), ensure_ascii=False))
        return
    first = next(iter(result.tables.values()), None)
    rows = [dict(result.values)] if first is None else first.rows()
    if output_format == "jsonl":
        for row in rows:
            click.echo(json.dumps(to_json_value(row), ensure_ascii=False))
    elif output_format == "csv":
        click.echo(_csv(rows), nl=False)
    elif output_format == "parquet":
        _write_parquet(rows)
    else:
        for name, value in result.values.items():
            click.echo(f"{name:<24} {_cell(value)}")
        for name, table in result.tables.items():
            click.echo(f"\n{name}\n{_aligned(table)}")


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {k: json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for k, v in row.items()}
        )
    return out.getvalue()


def _write_parquet(rows: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UsageError("--format parquet needs pyarrow; install it with: pip install 'unembed[data]'") from error
    if sys.stdout.isatty():
        raise UsageError("--format parquet writes binary data; send it to a file with > result.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sys.stdout.buffer)


def _aligned(table: Table) -> str:
    heads = [f"{name} [{table.units[name]}]" if name in table.units else name for name in table.columns]
    cells = [[_cell(value) for value in row.values()] for row in table.rows()]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [heads, *cells]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


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
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items())
    return visible(str(value))
