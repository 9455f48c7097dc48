"""Reads .pt, .ckpt and pytorch_model.bin files that hold tensors and plain values, and refuses all others by name.

Such a file is a zip archive of one pickle and of the tensors' bytes. Before PyTorch's weights-only reader sees it, the
archive's list is held against the file (sizes, places, no compression), and the pickle is looked through without being run
(pickle_scan.py, the next to read): every name in it must be one of a few, every storage as large as its record. Then the
bytes are mapped, so that nothing is allocated by what the file claims. safetensors files need none of this: prefer them.
"""

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unembed.checkpoints.formats import pickle_scan
from unembed.checkpoints.formats.safetensors import short
from unembed.errors import CheckpointError, UnsafeError
from unembed.places import refuse_special

ADVICE = (
    "Ask for the same weights as .safetensors (save_file in safetensors.torch), which hold numbers and nothing else."
)
# Room for 3,000 tensors with their optimizer state; as objects a pickle takes up to a hundred times its size.
PICKLE_LIMIT_BYTES = 512 * 2**10
LIST_LIMIT_BYTES = 2**20
# Where programs put the weights in what they save: nanoGPT, Lightning and others.
_WEIGHT_KEYS = ("model", "state_dict")


@dataclass(frozen=True, slots=True)
class TorchFile:
    """The weights of a file by name, and what else stands at its top level (nanoGPT: `model_args`, `iter_num`)."""

    path: Path
    tensors: Mapping[str, Tensor]
    others: Mapping[str, Any]


def read_torch(path: Path) -> TorchFile:
    """Maps the tensors of a file: one that is a state dictionary, or has one under `model` or `state_dict`.

    Writing into a tensor does not change the file. Names are as in the file (`safetensors.clean_names`).

    Raises: UnsafeError naming what in the pickle is no tensor or plain value; CheckpointError for a broken archive, sizes
    that contradict each other, or a file that holds no weights.
    """
    refuse_special(path, CheckpointError)
    _check_archive(path)
    try:
        # weights_only: PyTorch's own list of harmless names is the second check
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # the reader raises whatever its parts do, for a file that passed every check above
        raise CheckpointError(f"{path}: PyTorch cannot read it: {str(error).splitlines()[0][:200]}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: holds a {type(found).__name__}; a checkpoint is a dictionary of tensors.")
    weights, others = found, {}
    for key in _WEIGHT_KEYS:
        if isinstance(found.get(key), dict):
            weights, others = found[key], {name: value for name, value in found.items() if name != key}
            break
    return TorchFile(path, _only_tensors(path, weights), others)


def _only_tensors(path: Path, weights: dict[Any, Any]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(
                f"{path}: {short(str(name))} is a {type(value).__name__}, expected a tensor. Weights are looked for at the top "
                f"level and under {' and '.join(_WEIGHT_KEYS)}."
            )
        tensors[name] = value.detach()
    if not tensors:
        raise CheckpointError(f"{path}: holds no tensors.")
    return tensors


def _check_archive(path: Path) -> None:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if file.read(4) != b"PK\x03\x04":
                raise UnsafeError(
                    f"{path}: refused, because it is no archive as PyTorch has written them since version 1.6, but an older "
                    f"form or another kind of pickle.\n{ADVICE}"
                )
            _check_list_size(path, file, size)
            with zipfile.ZipFile(file) as archive:
                pickle = _only_pickle(path, archive.namelist())
                records = _records(path, archive, file, size)
            begin, n_bytes = records[pickle]
            if n_bytes > PICKLE_LIMIT_BYTES:
                raise CheckpointError(
                    f"{path}: its pickle has {n_bytes:,} bytes; the limit is {PICKLE_LIMIT_BYTES:,}, so that a hostile file "
                    f"cannot fill the memory. {ADVICE}"
                )
            file.seek(begin)
            _check_pickle(path, file.read(n_bytes), pickle.removesuffix("data.pkl"), records)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, EOFError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: is a damaged archive ({str(error)[:80]}). Copy or download it again."
        ) from error


def _check_list_size(path: Path, file: io.BufferedReader, size: int) -> None:
    """The archive's list becomes Python objects, ten times as large, so its size is looked at first."""
    file.seek(max(size - 22, 0))
    end = file.read(22)
    if end[:4] != b"PK\x05\x06":
        raise CheckpointError(f"{path}: its archive has no end. It was cut short; copy or download it again.")
    n_bytes, offset = struct.unpack("<II", end[12:20])
    if n_bytes == 0xFFFFFFFF or offset == 0xFFFFFFFF:  # the 64-bit form stands 76 bytes before
        file.seek(max(size - 98, 0))
        n_bytes = struct.unpack("<Q", file.read(48)[40:48])[0]
    if n_bytes > LIST_LIMIT_BYTES:
        raise CheckpointError(
            f"{path}: the list of its archive has {n_bytes:,} bytes; the limit is {LIST_LIMIT_BYTES:,}, so that a hostile "
            "file cannot fill the memory."
        )


def _records(path: Path, archive: zipfile.ZipFile, file: io.BufferedReader, size: int) -> dict[str, tuple[int, int]]:
    """Where each record's bytes begin and how many there are, after checking that they lie in the file and are its own."""
    records: dict[str, tuple[int, int]] = {}
    for entry in archive.infolist():
        name = entry.filename
        if name in records:
            raise CheckpointError(f"{path}: record {short(name)} is there twice. The file is made to deceive.")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise CheckpointError(f"{path}: record {short(name)} is compressed; PyTorch stores records as they are.")
        file.seek(entry.header_offset)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CheckpointError(f"{path}: record {short(name)} does not begin where the archive says. It is broken.")
        begin = entry.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        if begin + entry.file_size > size:
            raise CheckpointError(
                f"{path}: record {short(name)}: its bytes [{begin:,}, {begin + entry.file_size:,}) lie beyond the file, which "
                f"has {size:,}. It was cut short or made by hand; copy or download it again."
            )
        records[name] = begin, entry.file_size
    previous, last_end = "", 0
    for name, (begin, n_bytes) in sorted(records.items(), key=lambda item: item[1]):
        if begin < last_end:
            raise CheckpointError(
                f"{path}: records {short(previous)} and {short(name)} overlap. It is made to deceive."
            )
        previous, last_end = name, begin + n_bytes
    return records


def _only_pickle(path: Path, names: list[str]) -> str:
    pickles = list(dict.fromkeys(name for name in names if name.endswith(".pkl")))
    if len(pickles) != 1 or pickles[0].count("/") != 1 or not pickles[0].endswith("/data.pkl"):
        raise UnsafeError(
            f"{path}: refused, because an archive of tensors has one pickle, data.pkl, and this one has "
            f"{', '.join(map(short, pickles[:4])) or 'none'} (a TorchScript program?).\n{ADVICE}"
        )
    return pickles[0]


def _check_pickle(path: Path, data: bytes, folder: str, records: Mapping[str, tuple[int, int]]) -> None:
    try:
        storages = pickle_scan.storages_in(data)
    except pickle_scan.NotPlain as error:
        raise UnsafeError(
            f"{path}: refused, because its pickle asks for {error}; reading it could run code that came with it.\n{ADVICE}"
        ) from error
    except pickle_scan.Broken as error:
        raise CheckpointError(f"{path}: {error}. Copy or download it again.") from error
    for storage in storages:
        record = f"{folder}data/{storage.key}"
        if record not in records:
            raise CheckpointError(
                f"{path}: the record {short(record)} of a tensor is missing. It was cut short or changed."
            )
        if records[record][1] != (claimed := storage.count * storage.width):
            raise CheckpointError(
                f"{path}: record {short(record)} has {records[record][1]:,} bytes, but its tensor claims {claimed:,}. "
                "The file is broken or made to deceive."
            )
