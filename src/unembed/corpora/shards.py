"""Token ids on disk, and windows of them as a pure function of seed and index: no position to save, none to lose.

A folder of shards holds one file of ids per split (16 bits where the vocabulary allows it, else 32), memory-mapped when
read, and a manifest.json with sizes, sha256 sums and the fingerprint of the tokenizer. It appears whole or not at all.
One file per split keeps a window a plain slice. Before it: encode.py. Next: ../training, which asks for batches.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Literal

import msgspec
import numpy as np
from jaxtyping import Float64, Int64, Integer, UInt64

from unembed.errors import CorpusError

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
class TokenSplit:
    """The ids of one split, in memory or mapped from disk, and the windows that training and evaluation see."""

    name: str
    ids: Integer[np.ndarray, " pos"]
    n_characters: int = 0
    n_bytes: int = 0
    n_documents: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice) -> Int64[np.ndarray, " pos"]:
        return self.ids[index].astype(np.int64)

    def sample(
        self, seed: int, index: int | Integer[np.ndarray, "*batch"], context_length: int
    ) -> Int64[np.ndarray, "*batch"]:
        """Gives where window `index` of a seed starts: uniform over 0 .. n - context_length - 1, with replacement.

        start = floor(u(seed, index) * (n - context_length)), where u is 53 bits of a mixed counter. The same whatever
        the batch size, the accumulation, the worker or the resume: index = step * batch_size + row.
        Raises: CorpusError if the split has no window of this length.
        """
        n_starts = len(self.ids) - context_length
        if n_starts < 1:
            raise CorpusError(
                f"{self.name} split: {len(self.ids)} tokens, but a window of context_length {context_length} needs "
                f"{context_length + 1}. Give more text, or lower context_length"
            )
        return np.asarray(uniform(seed, index) * n_starts, dtype=np.int64)

    def batch(
        self, seed: int, step: int, batch_size: int, context_length: int
    ) -> tuple[Int64[np.ndarray, "batch pos"], Int64[np.ndarray, "batch pos"]]:
        """Gives inputs and targets of one step, int64 [batch, pos]; targets are the inputs one token later.

        Raises: CorpusError as `sample` does.
        """
        first = step * batch_size
        starts = self.sample(seed, np.arange(first, first + batch_size, dtype=np.uint64), context_length)
        windows = self.ids[starts[:, None] + np.arange(context_length + 1)].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]

    def windows(
        self, context_length: int, batch_size: int = 1
    ) -> Iterator[tuple[Int64[np.ndarray, "batch pos"], Int64[np.ndarray, "batch pos"]]]:
        """Gives all windows side by side, int64 [batch, pos]: each token after the first is a target exactly once.

        Window k predicts tokens k T + 1 .. (k + 1) T from tokens k T .. (k + 1) T - 1; the last one is as short as it
        must be and comes alone. Raises: CorpusError if there is nothing to predict.
        """
        n_targets = len(self.ids) - 1
        if n_targets < 1:
            raise CorpusError(f"{self.name} split: {len(self.ids)} tokens, nothing to predict. Give more text")
        n_full = n_targets // context_length
        for first in range(0, n_full, batch_size):
            here = min(batch_size, n_full - first)
            flat = self[first * context_length : (first + here) * context_length + 1]
            yield flat[:-1].reshape(here, context_length), flat[1:].reshape(here, context_length)
        if n_targets > n_full * context_length:
            rest = self[n_full * context_length :]
            yield rest[None, :-1], rest[None, 1:]


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


def uniform(seed: int, index: int | Integer[np.ndarray, "*batch"]) -> Float64[np.ndarray, "*batch"]:
    """Gives a number in [0, 1) for each index of a seed: a mixed counter, not a sequence, so no state exists.

    u = mix(mix(seed) + (index + 1) * 0x9E3779B97F4A7C15) / 2^64, to 53 bits; mix is the finaliser of SplitMix64.
    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", section 3 (variant 13 constants).

    >>> bool(uniform(1, 5) == uniform(1, np.arange(10))[5])
    True
    """
    with np.errstate(over="ignore"):
        step = np.asarray(index, dtype=np.uint64) + np.uint64(1)
        state = _mix(np.uint64(seed % (1 << 64))) + step * np.uint64(0x9E3779B97F4A7C15)
        return np.asarray((_mix(state) >> np.uint64(11)) * 2.0**-53)


def _mix(x: UInt64[np.ndarray, "*batch"] | np.uint64) -> UInt64[np.ndarray, "*batch"]:
    x = np.asarray(x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


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
