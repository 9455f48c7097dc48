"""Hand-made GGUF files for tests: every field can be made to lie. Restates the format, imports nothing of ours."""

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes, *, length: int | None = None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if length is None else length) + data


def value_of(kind: int, value) -> bytes:
    """A value of a type; an array is `(type of its elements, list)`."""
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        inner, elements = value
        return struct.pack("<IQ", inner, len(elements)) + b"".join(value_of(inner, element) for element in elements)
    return struct.pack(f"<{LETTERS[kind]}", value)


def key(name: str | bytes, kind: int, value) -> bytes:
    return text(name) + struct.pack("<I", kind) + value_of(kind, value)


def info(name: str | bytes, sizes: list[int], kind: int, offset: int, *, n_dimensions: int | None = None) -> bytes:
    """A tensor's entry; sizes with the fastest dimension first, as in the file."""
    n = len(sizes) if n_dimensions is None else n_dimensions
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", n, *sizes, kind, offset)


def whole(
    keys: list[bytes],
    infos: list[bytes],
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these entries, the data at the next multiple of the alignment."""
    n_tensors = len(infos) if n_tensors is None else n_tensors
    n_keys = len(keys) if n_keys is None else n_keys
    start = magic + struct.pack("<IQQ", version, n_tensors, n_keys) + b"".join(keys) + b"".join(infos)
    return start + bytes(-len(start) % alignment) + data if data else start
