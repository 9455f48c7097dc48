"""Table, Picture, Result: the one shape of every analysis.

An analysis is a pure function `(model, input, options) -> Result`. A Result holds named tables of plain columns, single
values, notes on how far to trust them, and a description of the pictures that show them. From that one shape come the
command's JSON, the terminal table, the notebook view and the report's section; none of them is written per analysis.

Column, value, note and picture names are keys: the words a person reads come from catalogue/ (`column.<name>`,
`value.<name>`, `note.<key>`, `picture.<key>`). pictures.py, the next file to read, draws a Picture.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from unembed.visible import visible

Value = str | bool | int | float | None | list[Any] | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Named columns of equal length, one row an observation; `units` says what the numbers are measured in.

    >>> Table(columns={"layer": [0, 1], "entropy": [2.0, 1.5]}, units={"entropy": "nats"}).n_rows
    2
    """

    columns: Mapping[str, Any]  # given as arrays or lists, kept as arrays
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # So that `result.tables["top"]["layer"]` is always NumPy.
        columns = {name: _as_column(values) for name, values in self.columns.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of one table must be of one length, got {lengths}")
        if unknown := set(self.units) - set(columns):
            raise ValueError(f"units are given for columns that do not exist: {sorted(unknown)}")
        object.__setattr__(self, "columns", columns)

    def __getitem__(self, name: str) -> np.ndarray:
        column: np.ndarray = self.columns[name]
        return column

    @property
    def n_rows(self) -> int:
        """The number of observations."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def rows(self) -> list[dict[str, Value]]:
        """The table as a list of plain dictionaries, one a row: what JSON lines and pandas take."""
        plain = {name: [to_plain(value) for value in values] for name, values in self.columns.items()}
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]

    def to_dict(self) -> dict[str, Value]:
        """The table column by column, as plain lists: `pandas.DataFrame(table.to_dict())` gives a frame."""
        return {name: [to_plain(value) for value in values] for name, values in self.columns.items()}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """How one table is to be drawn, without a word of any drawing library.

    `lines`: y over x, one line per `color`; rows of `rules_table` (columns `name`, `y`) become labelled horizontal lines.
    `grid`: one cell per (x, y), shaded by `color`, with `text` written in it.
    `points`: one point per row at (x, y), in groups by `color`, labelled by `text`.
    `bars`: horizontal bars, length x, one per y, stacked by `color`.
    x, y, color, text and `tooltip` name columns of `table`; so do `facet`, which makes one panel for each of its values,
    and `x_text`, which a grid writes under each x (the token at a position).
    """

    key: str
    kind: Literal["lines", "grid", "points", "bars"]
    table: str
    x: str
    y: str
    color: str | None = None
    text: str | None = None
    tooltip: tuple[str, ...] = ()
    rules_table: str | None = None
    facet: str | None = None
    x_text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an analysis found: tables and values by name, notes (catalogue keys), and pictures of the tables."""

    name: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()

    def __post_init__(self) -> None:
        if clash := set(self.tables) & set(self.values):
            raise ValueError(f"{self.name}: {sorted(clash)} name both a table and a value")
        for picture in self.pictures:
            optional = (picture.color, picture.text, picture.facet, picture.x_text)
            wanted = [picture.x, picture.y, *optional, *picture.tooltip]
            missing = {column for column in wanted if column} - set(self.tables[picture.table].columns)
            if missing:
                raise ValueError(f"{self.name}: picture {picture.key} needs columns {sorted(missing)}")

    def to_dict(self) -> dict[str, Value]:
        """Values, then tables (column by column), as plain Python: the keys of the command's JSON."""
        return {**{k: to_plain(v) for k, v in self.values.items()}, **{k: t.to_dict() for k, t in self.tables.items()}}

    def __repr__(self) -> str:
        """What it holds, in a few lines: single values as they are, arrays and tables by their size."""
        lines = [f"Result {self.name}"]
        lines += [f"  {name}: {_size_of(value)[:100]}" for name, value in self.values.items()]
        for name, table in self.tables.items():
            lines.append(f"  table {name}: {table.n_rows} rows of {', '.join(table.columns)}")
        return visible("\n".join(lines), keeps_lines=True)

    def _repr_html_(self) -> str:
        """Shows the result in a notebook, pictures and tables, without script or network; every text is escaped.

        The words are in the language of the environment (LANG). The one call upward: what is shown shows itself.
        """
        from unembed import catalogue
        from unembed.pictures import notebook

        return notebook.view(self, catalogue.choose(None, os.environ))


def _size_of(value: Any) -> str:
    """A value that has many numbers by how many it has."""
    if isinstance(value, np.ndarray):
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, list | tuple | Mapping) and len(value) > 8:
        return f"{len(value)} entries"
    return f"{value:.6g}" if isinstance(value, float) else str(to_plain(value))


def to_plain(value: Any) -> Value:
    """Turns NumPy values, mappings and sequences into what JSON holds; numbers are not rounded.

    A number that is not finite stays a float here: who writes JSON replaces it by null and names it (contract.md).
    """
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, np.ndarray):
        return [to_plain(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a result holds plain values and arrays, got {type(value).__name__}")


def to_json_value(value: Any) -> Value:
    """Plain values fit for strict JSON: a number that is not finite becomes `{"value": null, "not_finite": "nan"}`.

    In a mapping the mark stands beside the key, as contract.md asks. Where a mapping has several nulls, `not_finite` tells the
    first number's kind, and `not_finite_of` says of each number which it was; a null that it does not name was one before.

    >>> to_json_value({"loss": float("nan"), "step": 3})
    {'loss': None, 'not_finite': 'nan', 'step': 3}
    >>> to_json_value({"loss": float("nan"), "norm": float("inf")})
    {'loss': None, 'not_finite': 'nan', 'norm': None, 'not_finite_of': {'loss': 'nan', 'norm': 'inf'}}
    """
    plain = to_plain(value)
    if isinstance(plain, dict):
        marks = {k: _name_of(v) for k, v in plain.items() if isinstance(v, float) and not math.isfinite(v)}
        n_nulls = len(marks) + sum(item is None for item in plain.values())
        out: dict[str, Value] = {}
        for key, item in plain.items():
            out[key] = None if key in marks else to_json_value(item)
            if key in marks and "not_finite" not in out:
                out["not_finite"] = marks[key]
        return out | ({"not_finite_of": dict(marks)} if marks and n_nulls > 1 else {})
    if isinstance(plain, list):
        return [to_json_value(item) for item in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return {"value": None, "not_finite": _name_of(plain)}
    return plain


def _name_of(number: float) -> str:
    return "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf")


def _as_column(values: Any) -> np.ndarray:
    array = values if isinstance(values, np.ndarray) else None
    if array is None:
        items = list(values)
        # Texts, lists of unequal length and None have no numeric array; an object array keeps them as they are.
        simple = bool(items) and all(isinstance(item, bool | int | float | np.generic) for item in items)
        array = np.asarray(items) if simple else np.empty(len(items), dtype=object)
        if not simple:
            array[:] = items
    return array
