"""A result as data for other programs: JSON, JSON lines, CSV and Parquet, always UTF-8, numbers unrounded.

JSON holds the whole result. The other three hold rows: those of its first table, or one row of its values when it has no
table. In CSV and Parquet a mapping becomes a column for each of its keys (`by_part.mlp`), so that no cell holds JSON but
where a value is a list. The next file to read is tables.py.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from unembed.results import Result, to_json_value
from unembed.visible import cell, visible

Row = dict[str, Any]


def encoded(result: Result, output_format: str, *, is_terminal: bool) -> bytes:
    """The bytes of a result in one of the formats; on a terminal CSV spells even line breaks inside its cells out."""
    if output_format == "json":
        return (to_json(to_json_value(result.to_dict())) + "\n").encode()
    first = next(iter(result.tables.values()), None)
    rows = [dict(result.values)] if first is None else first.rows()
    if output_format == "jsonl":
        return "".join(to_json(to_json_value(row)) + "\n" for row in rows).encode()
    flat = [flattened(row) for row in rows]
    names = list(flat[0]) if flat else flattened_names(result)
    return _csv(names, flat, is_terminal=is_terminal).encode() if output_format == "csv" else _parquet(names, flat)


def flattened_names(result: Result) -> list[str]:
    """The columns of a table without rows."""
    return list(next(iter(result.tables.values())).columns) if result.tables else []


def flattened(row: Mapping[str, Any], before: str = "") -> Row:
    """A row whose mappings are columns of their own.

    >>> flattened({"parameters": 3, "by_part": {"mlp": 2, "head": 1}})
    {'parameters': 3, 'by_part.mlp': 2, 'by_part.head': 1}
    """
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened({str(key): item for key, item in value.items()}, f"{before}{name}.")
        else:
            flat[before + name] = None if isinstance(value, Mapping) else value
    return flat


def to_json(value: Any) -> str:
    """Strict JSON on one line, in which whatever cannot be seen is escaped."""
    # json.dumps escapes what lies below a space; the rest that cannot be seen (C1 controls, bidirectional marks, halves of
    # surrogate pairs) is legal JSON but dangerous or impossible to write
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[\x7f-\U0010ffff]", lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    return character if visible(character) == character else json.dumps(character)[1:-1]


def _csv(names: list[str], rows: list[Row], *, is_terminal: bool) -> str:
    import csv
    import io

    # line breaks and tabs are at home in a quoted cell, but not a lone return, which nothing would quote; on a terminal
    # even they are spelled out
    kept = "" if is_terminal else "\n\r\t"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_cell(name, kept) for name in names])
    writer.writerows([_csv_cell(row.get(name), kept) for name in names] for row in rows)
    return out.getvalue()


def _csv_cell(value: Any, kept: str) -> Any:
    if isinstance(value, str):
        return cell(re.sub(r"(?:[^\n\r\t]|\r(?!\n))+" if kept else r"(?s).+", lambda part: visible(part[0]), value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, int | float):
        return value
    return to_json(to_json_value(value))


def _parquet(names: list[str], rows: list[Row]) -> bytes:
    import importlib
    import io

    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    columns = {name: _whole([row.get(name) for row in rows]) for name in names}
    out = io.BytesIO()  # a pipe cannot be asked where it stands, which the writer does
    parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def _whole(values: list[Any]) -> list[Any]:
    """A column as Arrow takes it: texts may hold halves of surrogate pairs, which UTF-8 does not have."""
    return [v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for v in values]
