"""What a recipe is: a function from data and settings to everything that a run needs; and what all that read files share.

The next file to read is tour.py, the smallest one.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unembed.corpora.encode import encode_corpus
from unembed.corpora.reading import Reading, ReadReport
from unembed.corpora.shards import TokenShards
from unembed.corpora.text import TextReader
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that is decided but not begun.

    `write_shards` writes the token ids into a folder and opens it; `data` describes their source for run.json; `floors`
    are losses in nats that no model can go below, where they are known; `notes` are sentences for the user, and `why_steps`
    ends the one that tells how many steps there are.
    """

    config: RunConfig
    tokenizer: Tokenizer
    write_shards: Callable[[Path], TokenShards]
    data: Mapping[str, Any]
    floors: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    why_steps: str = ""


@dataclass(frozen=True)
class Survey:
    """What one pass over the data found: enough to choose a tokenizer, and what run.json says of the source."""

    reader: TextReader
    report: ReadReport
    alphabet: frozenset[str]

    @staticmethod
    def of(reader: TextReader) -> "Survey":
        """Reads everything once. Raises: CorpusError as the reader does."""
        report, alphabet = ReadReport(), set[str]()
        for piece in reader.pieces(report):
            alphabet.update(piece.text)
        return Survey(reader, report, frozenset(alphabet))

    def characters(self) -> CharacterTokenizer:
        """Every character a token; documents are kept apart by an end token, a single text has nothing to be kept from."""
        return CharacterTokenizer.from_text("".join(sorted(self.alphabet)), has_end=self.report.n_documents > 1)

    def prepared(self, config: RunConfig, tokenizer: Tokenizer, notes: Sequence[str], why_steps: str = "") -> Prepared:
        """The run on this data, its notes after the reader's own: what was read comes before what was made of it."""
        report, options = self.report, self.reader.options

        def write_shards(folder: Path) -> TokenShards:
            return encode_corpus(self.reader, tokenizer, folder, n_characters=report.n_characters)

        return Prepared(
            config=config,
            tokenizer=tokenizer,
            write_shards=write_shards,
            data={
                "sources": [path.name for path in self.reader.files],
                "files": [identity(path) for path in self.reader.files],
                "documents": report.n_documents,
                "characters": report.n_characters,
                "bytes": report.n_bytes,
                "reading": msgspec.to_builtins(options),
            },
            notes=(*report.notes(options), *notes),
            why_steps=why_steps,
        )


def identity(path: Path) -> dict[str, Any]:
    """What tells one file from every other of its name: its size and its sum."""
    with path.open("rb") as file:
        return {
            "file": path.name,
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named way to make a run; `needs_data` is False where the recipe brings its own."""

    name: str
    summary: str
    needs_data: bool
    prepare: Callable[[Sequence[str], Reading, Mapping[str, Any]], Prepared]
