"""The choices of a reader, and what it met on the way: counted while reading, told once when the pass is over.

What a person should act on comes first: a table that was read as plain text. Next: text.py, which reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from unembed.errors import UsageError
from unembed.visible import counted

SHOWN_COLUMNS = 8


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices of a reader: what happens to CRLF, to invalid bytes, and which column holds the text."""

    newlines: Literal["keep", "lf"] = "keep"
    invalid_bytes: Literal["refuse", "skip"] = "refuse"
    column: str | None = None


def reading_of(settings: Mapping[str, Any], reading: Reading | None = None) -> tuple[Reading, dict[str, Any]]:
    """Takes the reader's choices out of a run's settings: gives the reading with them, and the other settings.

    >>> reading_of({"invalid_bytes": "skip", "steps": 3})
    (Reading(newlines='keep', invalid_bytes='skip', column=None), {'steps': 3})

    Raises: UsageError for a value that a choice does not have.
    """
    chosen = {name: value for name, value in settings.items() if name in Reading.__struct_fields__}
    try:
        merged = msgspec.convert({**msgspec.to_builtins(reading or Reading()), **chosen}, Reading)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"settings {', '.join(f'{name}={value}' for name, value in chosen.items())}: {error}. There are: newlines keep "
            "or lf, invalid_bytes refuse or skip, column with a name"
        ) from None
    return merged, {name: value for name, value in settings.items() if name not in chosen}


@dataclass
class ReadReport:
    """What one pass over the files met; filled in while reading, complete when the pass is over.

    `plain_tables` are tables that were read as text, each with its columns; `whole_files` are what is no table where a
    column was asked for.
    """

    n_files: int = 0
    n_documents: int = 0
    n_characters: int = 0
    n_bytes: int = 0
    n_empty: int = 0
    n_crlf: int = 0
    n_invalid_bytes: int = 0
    first_invalid: str = ""
    crlf_files: list[Path] = field(default_factory=list)
    bom_files: list[Path] = field(default_factory=list)
    plain_tables: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    whole_files: list[Path] = field(default_factory=list)

    def notes(self, options: Reading) -> tuple[str, ...]:
        """Says what a reader of the texts should know, one sentence a matter, however many files it concerns."""
        said = [self._about_tables()] if self.plain_tables else []
        if self.whole_files:
            said.append(
                f"{listed(self.whole_files)}: no table, so read whole; column {options.column!r} is read from tables"
            )
        if self.bom_files:
            said.append(f"{listed(self.bom_files)}: a byte order mark at the start was dropped")
        if self.crlf_files:
            one, where = self.n_crlf == 1, f"{listed(self.crlf_files)}: {counted(self.n_crlf, 'line end')}"
            if options.newlines == "keep":
                kept = "is CRLF and was kept" if one else "are CRLF and were kept"
                said.append(f"{where} {kept}; --newlines lf makes {'it' if one else 'them'} LF")
            else:
                said.append(f"{where} {'was CRLF and is now LF' if one else 'were CRLF and are now LF'}")
        if self.n_invalid_bytes:
            said.append(
                f"{counted(self.n_invalid_bytes, 'byte')} {'is' if self.n_invalid_bytes == 1 else 'are'} no UTF-8 and "
                f"{_were(self.n_invalid_bytes)} skipped, the first at {self.first_invalid}"
            )
        if self.n_empty:
            said.append(f"{counted(self.n_empty, 'empty document')} {_were(self.n_empty)} left out")
        return tuple(said)

    def _about_tables(self) -> str:
        path, columns = next(iter(self.plain_tables.items()))
        n_more = len(self.plain_tables) - 1
        more = (
            f" (and {counted(n_more, 'more file')} {'is a table' if n_more == 1 else 'are tables'})" if n_more else ""
        )
        what = path.suffixes[-2 if path.suffix == ".gz" else -1].lstrip(".").upper()
        shown = ", ".join(columns[:SHOWN_COLUMNS]) + (", ..." if len(columns) > SHOWN_COLUMNS else "")
        named = f" with columns {shown}" if columns else ""
        return (
            f"{path}: this looks like a {what}{named}, and was read as plain text, header and all{more}; "
            "use --column NAME to learn from one column alone, each cell a text of its own"
        )


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def listed(paths: Iterable[Path], most: int = 3) -> str:
    """Gives the first few paths and how many more there are.

    >>> listed([Path("a"), Path("b"), Path("c")], most=2)
    'a, b and 1 more'
    """
    every: Sequence[Path] = list(paths)
    shown = ", ".join(str(path) for path in every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"
