"""Refuses files whose reading could run code that came with them; only torch_files.py reads pickles, of tensors alone.

A pickle is a program. PyTorch's .pt, .pth and .ckpt files, many .bin files, joblib dumps and NumPy's object arrays are
pickles, whatever their names say, so both the name and the first bytes are looked at. Nothing is executed to find out:
a zip archive's list of members and a NumPy array's header are read as data. Next to read: safetensors.py, the format that
holds numbers and nothing else.
"""

import io
import re
import zipfile
from pathlib import Path

import numpy as np

from unembed.errors import UnsafeError

PICKLE_NAMES = {".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill"}

# PROTO n, then any opcode (pickle protocols 2 to 5). A safetensors file may begin with the same two bytes, as the low
# end of its header's length, but its ninth byte opens the header.
_PROTOCOL = re.compile(rb"\x80[\x02-\x05](?!.{6}\{)", re.DOTALL)
_ZIP, _NUMPY = b"PK\x03\x04", b"\x93NUMPY"
_NUMPY_HEADER_BYTES = 10_100


def refuse_pickle(path: Path) -> None:
    """Returns if the file is no pickle that we can recognise, otherwise raises without running any of it.

    Raises: UnsafeError, saying why it is taken for a pickle and what to ask for instead.
    """
    if (reason := why_unsafe(path)) is not None:
        raise UnsafeError(
            f"{path}: refused, because it is {reason}, and reading it could run code that came with it.\n"
            "Ask for the same weights as .safetensors (save_file in safetensors.torch), which hold numbers and nothing else."
        )


def why_unsafe(path: Path) -> str | None:
    """What makes a file unsafe to read, or None. A missing or unreadable file is left to its reader's own message."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
            if start.startswith(_NUMPY):
                return _why_numpy(start + file.read(_NUMPY_HEADER_BYTES))
    except OSError:
        return None
    if start.startswith(_ZIP):
        return _why_archive(path)
    if _PROTOCOL.match(start):
        return "a Python pickle"
    if path.suffix.lower() in PICKLE_NAMES:
        return f"named {path.suffix}, the ending of a Python pickle"
    return None


def _why_archive(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".pkl"):
                    return f"a PyTorch archive with the pickle {member[-60:]!r}"
                if member.endswith(".npy"):
                    with archive.open(member) as file:
                        reason = _why_numpy(file.read(_NUMPY_HEADER_BYTES))
                    if reason:
                        return f"an archive with {reason}"
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, ValueError):
        return "a damaged archive of the kind that PyTorch pickles into"
    return f"named {path.suffix}, the ending of a Python pickle" if path.suffix.lower() in PICKLE_NAMES else None


def _why_numpy(start: bytes) -> str | None:
    """Reads an array's header alone: a Python literal of at most 10,000 characters, which NumPy reads without running."""
    try:
        file = io.BytesIO(start)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read(file)
    except (ValueError, EOFError, OSError, SyntaxError, RecursionError, MemoryError):
        return "a NumPy array whose header cannot be read"
    return "a NumPy array of Python objects, which is a pickle" if dtype.hasobject else None
