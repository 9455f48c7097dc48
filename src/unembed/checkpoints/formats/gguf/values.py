"""The keys and values of a .gguf file, step by step: every length is held against the file before it is followed.

A file of tiny texts takes many times its size as Python objects, so their memory is counted, too, and bounded. Before it:
read.py, which reads a whole file by such steps. Next to read: quants.py.

Source: docs/gguf.md in github.com/ggml-org/ggml.
"""

import struct
import sys
from pathlib import Path
from typing import Any, Never

import numpy as np

from unembed.errors import CheckpointError

BOOL, STRING, ARRAY = 7, 8, 9
# A value's type as struct and NumPy both spell it. A bool is a byte that is 0 or 1.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d"}

# Bytes that keys, values and names may take as Python objects, beyond their bytes in the file: room for a vocabulary of
# 450,000 entries with its merges (the largest in use has 262,000), and no more for a file made of nothing but tiny strings.
OBJECT_LIMIT_BYTES = 64 * 2**20
# One text; in memory it may take four times as many bytes. The longest ones in use are chat templates, below 100 kB.
TEXT_LIMIT_BYTES = 8 * 2**20
_VALUE_COST = 512  # what a dictionary's entry or a small array takes, and its share of the second that reading may last
# A text's place in its list, and what an allocator rounds up.
_PLACE = 24
_MAX_DEPTH = 4
_LENGTH = struct.Struct("<Q").unpack_from


class Walk:
    """Walks over the mapped bytes; every step says where it stands when the file is too short for it."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.at = path, data, 0
        self.where = "the start"
        self._allowance = OBJECT_LIMIT_BYTES

    def fail(self, reason: str) -> Never:
        """Raises what is wrong, with the file and the place."""
        raise CheckpointError(f"{self.path}: {self.where}: {reason}")

    def need(self, n_bytes: int, what: str) -> None:
        """Raises if fewer bytes are left than something takes."""
        if n_bytes > len(self.data) - self.at:
            self.fail(
                f"{what} takes {n_bytes:,} bytes at byte {self.at:,}, but the file ends after {len(self.data):,}. It was "
                "cut short or made by hand; copy or download it again."
            )

    def charge(self, n_bytes: int) -> None:
        """Counts what an object takes in memory. Raises at the limit."""
        self._allowance -= n_bytes
        if self._allowance < 0:
            self.fail(
                f"here keys, values and names reach {OBJECT_LIMIT_BYTES:,} bytes of memory beyond their size in the file. "
                "That is the limit, so that a hostile file cannot fill the memory."
            )

    def number(self, letter: str) -> Any:
        """The next number, little-endian, of the type that a letter of `struct` names."""
        return self.numbers(letter)[0]

    def numbers(self, letters: str) -> tuple[Any, ...]:
        """The next numbers, without padding between them."""
        form = f"<{letters}"
        n_bytes = struct.calcsize(form)
        self.need(n_bytes, "a number")
        values = struct.unpack_from(form, self.data, self.at)
        self.at += n_bytes
        return values

    def string(self) -> str:
        """The next text: its length in bytes, then UTF-8."""
        return self.strings(1)[0]

    def strings(self, n_strings: int) -> list[str]:
        """The next texts. One loop without calls of our own, because vocabularies have hundreds of thousands."""
        self.need(n_strings * 8, f"a list of {n_strings:,} texts")
        data, at, size, allowance = self.data, self.at, len(self.data), self._allowance
        found: list[str] = []
        for _ in range(n_strings):
            if at + 8 > size:
                self.at = at
                self.need(8, "the length of a text")
            (length,) = _LENGTH(data, at)
            at += 8
            if length > size - at:
                self.at = at
                self.need(length, "a text")
            if length > TEXT_LIMIT_BYTES:
                self.fail(
                    f"a text has {length:,} bytes; the limit is {TEXT_LIMIT_BYTES:,}. Shorten it, or leave it out."
                )
            try:
                text = str(data[at : at + length], "utf-8")
            except UnicodeDecodeError as error:
                self.fail(
                    f"the text of {length:,} bytes at byte {at:,} is not UTF-8 (from its byte {error.start:,} on)."
                )
            at += length
            if (allowance := allowance - sys.getsizeof(text) - _PLACE + length) < 0:
                self.charge(OBJECT_LIMIT_BYTES + 1)
            found.append(text)
        self.at, self._allowance = at, allowance
        return found

    def value(self, kind: int, *, depth: int = 0) -> Any:
        """The next value, of a type that the file has named."""
        self.charge(_VALUE_COST)
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self._array(depth)
        return self._checked(kind, self.number(self._letter(kind)))

    def _array(self, depth: int) -> Any:
        kind, length = self.numbers("IQ")
        if kind == STRING:
            return self.strings(length)
        if kind == ARRAY:
            if depth == _MAX_DEPTH:
                self.fail(f"holds arrays in arrays, more than {_MAX_DEPTH} deep. The file is broken.")
            self.need(length * 12, f"an array of {length:,} arrays")
            return [self.value(ARRAY, depth=depth + 1) for _ in range(length)]
        form = np.dtype(f"<{self._letter(kind)}")
        self.need(length * form.itemsize, f"an array of {length:,} numbers")
        values = np.frombuffer(self.data, dtype=form, count=length, offset=self.at)
        self.at += values.nbytes
        values.flags.writeable = False
        return self._checked(kind, values)

    def _letter(self, kind: int) -> str:
        if kind not in NUMBERS:
            self.fail(f"its value is of type {kind}; the format has types 0 to 12. The file is broken.")
        return NUMBERS[kind]

    def _checked(self, kind: int, value: Any) -> Any:
        if kind != BOOL:
            return value
        if (largest := np.max(value, initial=0)) > 1:
            self.fail(f"its value is the truth value {largest}; it must be 0 or 1. The file is broken.")
        return value.view(np.bool_) if isinstance(value, np.ndarray) else bool(value)
