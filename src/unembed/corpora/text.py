"""Text files as a stream of pieces: whole folders in every script, in bounded memory, nothing lost or changed unsaid.

A document is a file, or a cell of the column that was asked for. It arrives in pieces of about a megabyte, the last one
marked, so that memory does not depend on size. A byte order mark is dropped; CRLF stays unless `newlines="lf"`; bytes
that are not UTF-8 stop the reading, by file and offset, unless they are to be skipped. What was met is counted in a
ReadReport (reading.py) and told once. Next: columns.py for CSV and JSONL; encode.py makes ids of pieces.
"""

import codecs
import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from unembed.corpora import columns
from unembed.corpora.reading import Reading, ReadReport, listed
from unembed.errors import CorpusError, suggest
from unembed.places import check_path, near_paths, shown
from unembed.visible import counted

PIECE_BYTES = 1 << 20
_LONGEST_LINE = 1 << 22


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one document's text, and whether it is the document's last."""

    text: str
    source: Path
    ends_document: bool


class TextReader:
    """Reads files, folders and globs as one stream of pieces; every pass gives the same pieces in the same order.

    Folders are walked in sorted order without following links to folders; what begins with a dot is left out; a file
    that is named twice is read once. `.gz` is unpacked on the way. With a column, that column is read from tables, and
    what is no table is read whole. Raises: CorpusError where there is no file, or a column is asked for and no table is.
    """

    def __init__(
        self, data: str | Path | Sequence[str | Path], options: Reading | None = None, *, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.options = Reading() if options is None else options
        self.files = find_files(data)
        if self.options.column is not None and not any(map(columns.kind_of, self.files)):
            raise CorpusError(
                f"{listed(self.files)}: column {self.options.column!r} was asked for, but no .csv, .tsv or .jsonl file is "
                "there. Name a table, or read the text without a column"
            )
        self._piece_bytes = piece_bytes

    def pieces(self, report: ReadReport | None = None) -> Iterator[Piece]:
        """Reads everything once. Raises: CorpusError if a file is not as the options expect, or there is no text."""
        report = ReadReport() if report is None else report
        for path in self.files:
            report.n_files += 1
            for text, ends_document in self._texts(path, report):
                report.n_characters += len(text)
                report.n_bytes += len(text.encode())
                report.n_documents += ends_document
                yield Piece(text, path, ends_document)
        if not report.n_documents:
            raise CorpusError(
                f"{listed(self.files)}: no text was found in {counted(report.n_files, 'file')}; give a file that is not empty"
            )

    def blocks(self, n_characters: int | None = None) -> Iterator[str]:
        """Gives stretches of whole lines, none of two documents: what a vocabulary is learnt from.

        With `n_characters` only so many from the start, the last line being cut where they end: the part to learn from.
        A line of over four million characters is cut. Raises: CorpusError as `pieces` does.
        """
        held, left = "", n_characters
        for piece in self.pieces():
            new = piece.text if left is None else piece.text[:left]
            is_last = left is not None and len(new) == left
            left = None if left is None else left - len(new)
            text = held + new
            whole = piece.ends_document or is_last or len(text) > _LONGEST_LINE
            end = len(text) if whole else text.rfind("\n") + 1
            held = text[end:]
            if end:
                yield text[:end]
            if is_last:
                return

    def documents(self) -> Iterator[str]:
        """Gives whole documents, each in memory at once: for small ones."""
        parts: list[str] = []
        for piece in self.pieces():
            parts.append(piece.text)
            if piece.ends_document:
                yield "".join(parts)
                parts = []

    def _texts(self, path: Path, report: ReadReport) -> Iterator[tuple[str, bool]]:
        kind = columns.kind_of(path)
        if self.options.column is not None and kind is not None:
            yield from self._cells(path, self.options.column, report)
            return
        decoded = self._newlines(path, self._decoded(path, report), report)
        if kind is not None:
            decoded, report.plain_tables[path] = columns.peek(decoded, kind)
        elif self.options.column is not None:
            report.whole_files.append(path)
        previous: str | None = None
        for text in decoded:
            if previous is not None:
                yield previous, False
            previous = text
        if previous is None:
            report.n_empty += 1
        else:
            yield previous, True

    def _cells(self, path: Path, column: str, report: ReadReport) -> Iterator[tuple[str, bool]]:
        """Line ends are those inside the cells: how the rows of the table end is nobody's text."""
        for cell in columns.cells(path, self._decoded(path, report), column):
            if cell:
                yield "".join(self._newlines(path, [cell], report)), True
            else:
                report.n_empty += 1

    def _decoded(self, path: Path, report: ReadReport) -> Iterator[str]:
        """Gives the file's text without its mark; `offset` is that of data[0] in the (unpacked) file."""
        pending, offset = b"", 0
        for i, (chunk, is_final) in enumerate(_chunks(path, self._piece_bytes)):
            data = pending + chunk
            if i == 0 and (mark := _mark_of(path, data)):
                data, offset = data[len(mark) :], len(mark)
                report.bom_files.append(path)
            try:
                text, used = codecs.utf_8_decode(data, "strict", is_final)
            except UnicodeDecodeError as error:
                where = f"{path}, byte {offset + error.start} (0x{data[error.start]:02x})"
                if self.options.invalid_bytes == "refuse":
                    raise CorpusError(
                        f"{where}: not UTF-8 ({error.reason}). Save the file as UTF-8 (iconv -f latin1 -t utf-8), "
                        "name the text files alone, or leave such bytes out: train --set invalid_bytes=skip"
                    ) from None
                # Invalid bytes, and nothing else, come out as U+DC80 to U+DCFF: they are counted and taken out.
                text, used = codecs.utf_8_decode(data, "surrogateescape", is_final)
                text, n_invalid = re.subn("[\udc80-\udcff]", "", text)
                report.n_invalid_bytes += n_invalid
                report.first_invalid = report.first_invalid or where
            pending, offset = data[used:], offset + used
            if text:
                yield text

    def _newlines(self, path: Path, texts: Iterable[str], report: ReadReport) -> Iterator[str]:
        held = ""
        n_before = report.n_crlf
        for text in texts:
            text = held + text
            # A CR at the end may be half of a CRLF: it waits for the next piece.
            held = "\r" if text.endswith("\r") else ""
            text = text[: len(text) - len(held)]
            report.n_crlf += text.count("\r\n")
            if self.options.newlines == "lf":
                text = text.replace("\r\n", "\n")
            if text:
                yield text
        if report.n_crlf > n_before and path not in report.crlf_files[-1:]:
            report.crlf_files.append(path)
        if held:
            yield held


def find_files(data: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """Gives the files that names, folders and globs stand for, in the order given, sorted inside a folder or glob.

    Raises: CorpusError for a name that is no file, folder or matching glob, and for a folder without files.
    """
    found: dict[Path, Path] = {}
    for item in [data] if isinstance(data, str | Path) else data:
        path = Path(item)
        check_path(path, CorpusError)
        if path.is_dir():
            files = _walk(path)
            if not files:
                raise CorpusError(f"{path}: the folder holds no file to read; hidden files are left out")
        elif path.exists():
            if not path.is_file():
                raise CorpusError(f"{path}: is no regular file (a pipe or a device?). Write the text to a file first")
            files = [path]
        else:
            files = [match for name in sorted(glob.glob(str(item), recursive=True)) for match in _files_at(Path(name))]
            if not files:
                what = "no file matches" if glob.has_magic(str(item)) else "there is no such file or folder"
                near = [] if glob.has_magic(str(item)) else near_paths(path)
                hint = "Give a text file, a folder of them, or a pattern such as 'texts/*.txt'"
                raise CorpusError(f"{shown(item)}: {what}. {suggest(near, hint)}")
        for file in files:
            found.setdefault(file.resolve(), file)
    if not found:
        raise CorpusError("no data was named. Give a text file, a folder of them, or a pattern such as 'texts/*.txt'")
    return tuple(found.values())


def _files_at(path: Path) -> list[Path]:
    return _walk(path) if path.is_dir() else [path]


def _walk(folder: Path) -> list[Path]:
    files: list[Path] = []
    for at, folders, names in os.walk(folder, onerror=_refuse_closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        # pipes and devices would be waited for without end; a link that leads nowhere is kept, and said to do so
        found = [Path(at) / name for name in names if not name.startswith(".")]
        files += [path for path in found if path.is_file() or not path.exists()]
    return sorted(files)


def _refuse_closed(error: OSError) -> None:
    raise CorpusError(f"{error.filename}: the folder cannot be read ({error.strerror}). Check its permissions")


def _chunks(path: Path, size: int) -> Iterator[tuple[bytes, bool]]:
    """Gives the file's bytes, unpacked; the last chunk, possibly empty, says so."""
    try:
        with path.open("rb") as packed:
            file = cast(BinaryIO, gzip.GzipFile(fileobj=packed)) if path.suffix == ".gz" else packed
            while chunk := file.read(size):
                yield chunk, False
        yield b"", True
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise CorpusError(f"{path}: not a whole gzip file ({error}). Fetch or pack it again") from None
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}). Check the name and the permissions") from None


def _mark_of(path: Path, data: bytes) -> bytes:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CorpusError(f"{path}: begins with the mark of UTF-16. Save it as UTF-8 (iconv -f utf-16 -t utf-8)")
    return codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
