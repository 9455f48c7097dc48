"""Just enough of the protobuf wire format to read and write a SentencePiece model: a bounded reader, no generated code.

The sentencepiece library does not tell how a model normalises, nor take one that is not a file of its own; this file does
both. Numbers are those of sentencepiece_model.proto. Next: pieces.py.
"""

import struct
from collections.abc import Iterator

import msgspec

from unembed.errors import TokenizerError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2


class PieceModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SentencePiece model's vocabulary (text, score, type per id) and what it does to a text before and after.

    Defaults are those of sentencepiece_model.proto: what a file leaves out, it has.
    """

    pieces: list[tuple[str, float, int]]
    model_type: int = UNIGRAM
    start_id: int = 1
    end_id: int = 2
    normalizer: str = ""
    has_charsmap: bool = False
    adds_dummy_prefix: bool = True
    removes_extra_spaces: bool = True
    escapes_spaces: bool = True
    suffixes_spaces: bool = False
    unknown_surface: str = " \u2047 "


def read_model(data: bytes, *, where: str) -> PieceModel:
    """Reads a serialized ModelProto. Raises: TokenizerError if it is cut short or is something else."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    try:
        for number, value in fields(data):
            if number == 1 and isinstance(value, bytes):
                piece = dict(fields(value))
                score = struct.unpack("<f", _bytes(piece.get(2, b"\0\0\0\0")))[0]
                pieces.append((_bytes(piece[1]).decode(), score, int(piece.get(3, NORMAL))))
            elif number in (2, 3) and isinstance(value, bytes):
                # Parts that come twice are merged, the later value winning, as protobuf asks.
                (trainer if number == 2 else normalizer).update(fields(value))
        model = PieceModel(
            pieces=pieces,
            model_type=int(trainer.get(3, UNIGRAM)),
            start_id=_signed(trainer.get(41, 1)),
            end_id=_signed(trainer.get(42, 2)),
            normalizer=_bytes(normalizer.get(1, b"")).decode(),
            has_charsmap=bool(normalizer.get(2, b"")),
            adds_dummy_prefix=bool(normalizer.get(3, 1)),
            removes_extra_spaces=bool(normalizer.get(4, 1)),
            escapes_spaces=bool(normalizer.get(5, 1)),
            suffixes_spaces=bool(trainer.get(24, 0)),
            unknown_surface=_bytes(trainer.get(44, " \u2047 ".encode())).decode(),
        )
    except (ValueError, KeyError, TypeError, struct.error, IndexError) as error:
        raise TokenizerError(f"{where}: not a whole SentencePiece model ({error}); fetch it again") from None
    if not pieces:
        raise TokenizerError(f"{where}: holds no pieces, so it is no SentencePiece model")
    return model


def write_model(model: PieceModel) -> bytes:
    """Writes a ModelProto with the identity as its map of characters, for vocabularies that came in another file."""
    parts = [
        _message(1, _message(1, text.encode()) + _key(2, 5) + struct.pack("<f", score) + _number(3, kind))
        for text, score, kind in model.pieces
    ]
    unknown = next((i for i, piece in enumerate(model.pieces) if piece[2] == UNKNOWN), 0)
    has_bytes = any(kind == BYTE for _, _, kind in model.pieces)
    trainer = [
        (3, model.model_type),
        (4, len(model.pieces)),
        (24, model.suffixes_spaces),
        (35, has_bytes),
        (40, unknown),
    ]
    trainer += [(41, model.start_id), (42, model.end_id)]
    parts.append(
        _message(2, b"".join(_number(*entry) for entry in trainer) + _message(44, model.unknown_surface.encode()))
    )
    normalizer = [(3, model.adds_dummy_prefix), (4, model.removes_extra_spaces), (5, model.escapes_spaces)]
    parts.append(_message(3, _message(1, b"identity") + b"".join(_number(*entry) for entry in normalizer)))
    return b"".join(parts)


def without_dummy_prefix(data: bytes) -> bytes:
    """Gives a ModelProto that puts no space before the text: a second normalizer part is merged into the first."""
    return data + _message(3, _number(3, 0))


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Gives number and value of each field of a message. Raises: ValueError where the bytes are no message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError(f"ends inside a number at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number of more than 10 bytes at byte {at}")


def _signed(value: int | bytes) -> int:
    number = int(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a number where text was expected: {value}")
    return value


def _key(number: int, wire: int) -> bytes:
    return _number_bytes(number << 3 | wire)


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _number_bytes(int(value) % (1 << 64))


def _message(number: int, data: bytes) -> bytes:
    return _key(number, 2) + _number_bytes(len(data)) + data


def _number_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
