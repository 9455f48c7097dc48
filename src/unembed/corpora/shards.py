"""Token ids on disk.

A folder of shards holds one file of ids per split (16 bits where the vocabulary allows it, else 32), memory-mapped when
read, and a manifest.json with sizes, sha256 sums and the fingerprint of the tokenizer. It appears whole or not at all.
One file per split keeps a window a plain slice. Before it: encode.py. Next: windows.py, the windows of a split.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Literal

import msgspec
import numpy as np
from jaxtyping import Integer

from unembed.corpora.windows import TokenSplit
from unembed.errors import CorpusError
from unembed.places import refuse_special

MANIFEST = "manifest.json"


class SplitEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One split in the manifest; characters, bytes and documents are those of the text, 0 where there was none."""

    file: str
    n_tokens: int
    size_bytes: int
    sha256: str
    n_characters: int
    n_bytes: int
    n_documents: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What manifest.json holds; `tokenizer` is the fingerprint of the tokenizer that made the ids."""

    version: Literal[1]
    dtype: Literal["uint16", "uint32"]
    vocab_size: int
    tokenizer: str
    splits: dict[str, SplitEntry]


@dataclass(frozen=True, eq=False)
class TokenShards:
    """An open folder of shards."""

    folder: Path
    manifest: Manifest
    splits: Mapping[str, TokenSplit]

    @classmethod
    def open(cls, folder: str | Path, *, verifies: bool = True) -> "TokenShards":
        """Maps the splits of a folder. Sizes are always checked, sha256 sums unless `verifies` is off.

        Raises: CorpusError if the folder holds no whole set of shards.
        """
        folder = Path(folder)
        source = folder / MANIFEST
        refuse_special(source, CorpusError)
        try:
            manifest = msgspec.json.decode(source.read_bytes(), type=Manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise CorpusError(f"{folder}: no {MANIFEST} there, so this is no folder of token shards") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorpusError(f"{source}: not a manifest of token shards ({error}). Encode the text again") from None
        splits = {name: _map_split(folder, name, entry, manifest, verifies) for name, entry in manifest.splits.items()}
        return cls(folder, manifest, MappingProxyType(splits))

    def __getitem__(self, name: str) -> TokenSplit:
        if name not in self.splits:
            raise CorpusError(f"{self.folder}: there is no split {name!r}; it has {', '.join(sorted(self.splits))}")
        return self.splits[name]

    @property
    def train(self) -> TokenSplit:
        """The split to learn from."""
        return self["train"]

    @property
    def val(self) -> TokenSplit:
        """The split that is held out."""
        return self["val"]


class ShardWriter:
    """Writes a folder of shards; leaving the `with` block without an error makes it appear, an error leaves nothing.

    Raises: CorpusError if the folder exists already.
    """

    def __init__(self, folder: str | Path, *, vocab_size: int, tokenizer: str) -> None:
        self._folder = Path(folder)
        if self._folder.exists():
            raise CorpusError(f"{self._folder}: exists already. Open it with TokenShards.open, or name another folder")
        self._dtype = dtype_for(vocab_size)
        self._vocab_size, self._tokenizer = vocab_size, tokenizer
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        # A sibling whose name begins with a dot: renaming inside one folder is atomic, and a leftover is recognisable.
        self._temporary = Path(tempfile.mkdtemp(prefix=f".{self._folder.name}.", dir=self._folder.parent))
        self._files: dict[str, BinaryIO] = {}
        self._hashes: dict[str, hashlib._Hash] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def append(
        self,
        split: str,
        ids: Integer[np.ndarray, " pos"],
        *,
        n_characters: int = 0,
        n_bytes: int = 0,
        n_documents: int = 0,
    ) -> None:
        """Adds ids to a split. Raises: CorpusError if one of them is outside the vocabulary."""
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self._vocab_size):
            raise CorpusError(
                f"{self._folder}: ids from {ids.min()} to {ids.max()} were to be written for a vocabulary of "
                f"{self._vocab_size}; encode with the tokenizer that the shards are for"
            )
        if split not in self._files:
            self._files[split] = (self._temporary / f"{split}.bin").open("wb")
            self._hashes[split] = hashlib.sha256()
            self._counts[split] = {"n_tokens": 0, "n_characters": 0, "n_bytes": 0, "n_documents": 0}
        data = ids.astype(self._dtype).tobytes()
        self._files[split].write(data)
        self._hashes[split].update(data)
        added = {"n_tokens": len(ids), "n_characters": n_characters, "n_bytes": n_bytes, "n_documents": n_documents}
        self._counts[split] = {key: count + added[key] for key, count in self._counts[split].items()}

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            for file in self._files.values():
                with suppress(OSError):  # closing writes the rest: on a full disk that fails again, and says no more
                    file.close()
            if self._temporary.exists():
                shutil.rmtree(self._temporary)

    def _publish(self) -> None:
        entries = {}
        for split, file in self._files.items():
            file.flush()
            os.fsync(file.fileno())
            counts = self._counts[split]
            entries[split] = SplitEntry(
                file=f"{split}.bin",
                size_bytes=counts["n_tokens"] * self._dtype.itemsize,
                sha256=self._hashes[split].hexdigest(),
                **counts,
            )
        manifest = Manifest(
            version=1,
            dtype="uint16" if self._dtype.itemsize == 2 else "uint32",
            vocab_size=self._vocab_size,
            tokenizer=self._tokenizer,
            splits=entries,
        )
        with (self._temporary / MANIFEST).open("w", encoding="utf-8") as out:
            json.dump(msgspec.to_builtins(manifest), out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        _sync_folder(self._temporary)
        os.rename(self._temporary, self._folder)
        _sync_folder(self._folder.parent)


def dtype_for(vocab_size: int) -> np.dtype:
    """Gives the narrowest unsigned type that holds every id: 16 bits up to 65,536 tokens, else 32.

    >>> dtype_for(65_536), dtype_for(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def _map_split(folder: Path, name: str, entry: SplitEntry, manifest: Manifest, verifies: bool) -> TokenSplit:
    path = folder / entry.file
    if Path(entry.file).name != entry.file:
        raise CorpusError(
            f"{folder}: split {name!r} names the file {entry.file!r}; a manifest names files of its own folder"
        )
    size = path.stat().st_size if path.is_file() else None
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    if size != entry.size_bytes or size != entry.n_tokens * dtype.itemsize:
        raise CorpusError(
            f"{path}: {'absent' if size is None else f'{size} bytes'}, expected {entry.size_bytes} bytes of "
            f"{entry.n_tokens} tokens in {manifest.dtype}. Encode the text again"
        )
    if verifies:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != entry.sha256:
            raise CorpusError(
                f"{path}: its sha256 is {found[:16]}..., expected {entry.sha256[:16]}.... Encode the text again"
            )
    # An empty file cannot be mapped. A plain view of the map, because indexing a memmap object costs microseconds more.
    ids = np.asarray(np.memmap(path, dtype=dtype, mode="r")) if size else np.zeros(0, dtype=dtype)
    return TokenSplit(name, ids, entry.n_characters, entry.n_bytes, entry.n_documents)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
