"""One named column of a CSV, TSV or JSONL file, cell by cell: each cell is a document.

The text arrives already decoded (text.py); memory holds one row. Next: encode.py.
"""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from unembed.errors import CorpusError, did_you_mean

Kind = Literal["csv", "tsv", "jsonl"]
# A first line longer than this is no header that a person would want to be told.
_LONGEST_HEADER = 1 << 16
_KINDS: dict[str, Kind] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def kind_of(path: Path) -> Kind | None:
    """Gives what kind of table a file's name promises, None for plain text. A final `.gz` is looked through.

    >>> kind_of(Path("chat.csv.gz")), kind_of(Path("book.txt"))
    ('csv', None)
    """
    name = path.with_suffix("") if path.suffix == ".gz" else path
    return _KINDS.get(name.suffix.lower())


def peek(texts: Iterable[str], kind: Kind) -> tuple[Iterator[str], tuple[str, ...]]:
    """Gives a table's text in pieces as it came, and the columns that its first line names; none if it is not readable."""
    texts = iter(texts)
    taken: list[str] = []
    while sum(map(len, taken)) < _LONGEST_HEADER and not any("\n" in text for text in taken):
        if (text := next(texts, None)) is None:
            break
        taken.append(text)
    first = "".join(taken).split("\n")[0]
    try:
        if kind == "jsonl":
            row = json.loads(first)
            found = tuple(row) if isinstance(row, dict) else ()
        else:
            found = tuple(next(csv.reader([first], delimiter=_separator(first, kind)), ()))
    except (ValueError, RecursionError, csv.Error):
        found = ()
    return itertools.chain(taken, texts), found


def cells(path: Path, texts: Iterable[str], column: str) -> Iterator[str]:
    """Gives the column's cells in order, from a table's text in pieces.

    The fields of a .csv file are separated by commas, or by semicolons where its first line has some and no comma.
    Raises: CorpusError if the file is no table, the column is absent or named twice, or a row does not have it.
    """
    kind = kind_of(path)
    if kind is None:
        raise CorpusError(
            f"{path}: column {column!r} was asked for, but this is no .csv, .tsv or .jsonl file. Name the tables "
            "alone, or read the file without a column"
        )
    rows = _json_cells(path, texts, column) if kind == "jsonl" else _table_cells(path, texts, column, kind)
    for line, cell in rows:
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{path}, line {line}: column {column!r} holds U+{ord(cell[error.start]):04X}, half of a surrogate "
                "pair, which is no character. Mend the row or leave it out"
            ) from None
        yield cell


def lines(texts: Iterable[str]) -> Iterator[str]:
    """Gives the lines of a text in pieces, each with its line feed.

    >>> list(lines(["a\\nb", "c", "\\n\\nd"]))
    ['a\\n', 'bc\\n', '\\n', 'd']
    """
    parts: list[str] = []
    for text in texts:
        *whole, rest = text.split("\n")
        for line in whole:
            yield "".join([*parts, line, "\n"])
            parts = []
        if rest:
            parts.append(rest)
    if parts:
        yield "".join(parts)


def _table_cells(path: Path, texts: Iterable[str], column: str, kind: Kind) -> Iterator[tuple[int, str]]:
    whole = lines(texts)
    first = next(whole, "")
    reader = csv.reader(itertools.chain([first], whole), delimiter=_separator(first, kind), strict=True)
    try:
        header = next(reader, [])
        if header.count(column) > 1:
            raise CorpusError(
                f"{path}: column {column!r} is there {header.count(column)} times; the first line names "
                f"{_listed(header)}. Give the columns different names"
            )
        if column not in header:
            raise CorpusError(f"{path}: column {column!r} is not there; the first line names {_listed(header, column)}")
        at = header.index(column)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise CorpusError(
                    f"{path}, line {reader.line_num}: {len(row)} fields, but the first line names {len(header)}. "
                    "Quote the fields that hold a separator, or mend the row"
                )
            yield reader.line_num, row[at]
    except csv.Error as error:
        raise CorpusError(
            f"{path}, line {reader.line_num}: not readable as {kind.upper()} ({error}). "
            "Mend the row, or give the table as JSONL"
        ) from None


def _json_cells(path: Path, texts: Iterable[str], column: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines(texts), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(
                f"{path}, line {number}: not JSON ({error}). Each line of a .jsonl file is one object"
            ) from None
        if not isinstance(row, dict) or column not in row:
            has = _listed(list(row), column) if isinstance(row, dict) else type(row).__name__
            raise CorpusError(f"{path}, line {number}: column {column!r} is not there; the line has {has}")
        if not isinstance(row[column], str):
            raise CorpusError(
                f"{path}, line {number}: column {column!r} holds {type(row[column]).__name__}, expected text in quotes"
            )
        yield number, row[column]


def _separator(first_line: str, kind: Kind) -> str:
    """Where the comma is the decimal sign, as in Spanish, spreadsheets write semicolons into their .csv files."""
    if kind == "tsv":
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


def _listed(there: Sequence[str], wanted: str = "") -> str:
    """The columns there are and, where one is like the wanted, a question."""
    said = ", ".join(map(repr, there)) or "nothing"
    same = {name.casefold(): name for name in there}
    close = same.get(wanted.strip().casefold())
    hint = f"Did you mean {close}?" if close else did_you_mean(wanted, there, "", n=1) if wanted else ""
    return f"{said}. {hint}" if hint else said
