"""The number types of GGUF: how many bytes a block takes, and how it becomes float32.

A quantised row is cut into blocks of 32 or 256 numbers; a block holds small integers and the scale (and offset) that make
numbers of them. Each function below fills `out` [block, number] from `blocks` [block, byte], in float32 and in the order
of operations of the reference, so that results are equal to the last bit. Before it: read.py, which reads the file.

Source: block layouts in ggml-common.h, arithmetic in ggml-quants.c (dequantize_row_*), github.com/ggml-org/ggml.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

_Array = np.ndarray[Any, np.dtype[Any]]
# A chunk's float32 numbers and their integers stay in the second-level cache, and beside the result nothing else is large.
_CHUNK_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class QuantType:
    """A type of numbers: its name, how many numbers a block has, in how many bytes, and how they are unpacked.

    `unpack` is None where PyTorch knows the type itself.
    """

    name: str
    numbers: int
    n_bytes: int
    dtype: torch.dtype | None = None
    unpack: Callable[[_Array, Tensor], None] | None = None


def dequantise(data: memoryview, kind: QuantType, n_numbers: int) -> Float32[Tensor, " number"]:
    """Gives the numbers of a tensor's bytes as float32, flat; float32 itself is a view of the bytes, not a copy.

    Beside the result only a chunk is in memory. The caller has checked that `data` has the right length.
    """
    if not n_numbers:
        return torch.zeros(0)
    octets = np.frombuffer(data, dtype=np.uint8)
    if kind.dtype is not None:
        # a file may place tensors at any multiple of its own alignment, which may be 1
        aligned = octets if octets.ctypes.data % kind.dtype.itemsize == 0 else octets.copy()
        return torch.from_numpy(aligned).view(kind.dtype).to(torch.float32)
    assert kind.unpack is not None
    result = torch.empty(n_numbers)
    out = result.view(-1, kind.numbers)
    blocks = octets.reshape(-1, kind.n_bytes)
    step = _CHUNK_NUMBERS // kind.numbers
    for begin in range(0, len(blocks), step):
        kind.unpack(blocks[begin : begin + step], out[begin : begin + step])
    return result


def _part(blocks: _Array, begin: int, end: int) -> _Array:
    """Bytes [begin, end) of each block, next to each other; copied as whole items, ten times as fast as byte by byte."""
    part: _Array = np.ascontiguousarray(blocks[:, begin:end].view(f"V{end - begin}")).view(np.uint8)
    return part


def _half(blocks: _Array, at: int) -> Tensor:
    """The float16 at byte `at` of each block, as float32 [block, 1]."""
    return torch.from_numpy(_part(blocks, at, at + 2).view(np.float16)).to(torch.float32)


def _nibbles(packed: _Array) -> _Array:
    """Low halves of the bytes first, high halves after them: [..., n] -> [..., 2 n]."""
    width = packed.shape[-1]
    integers = np.empty((*packed.shape[:-1], 2), dtype=f"V{width}")
    integers[..., 0] = (packed & 15).view(f"V{width}")[..., 0]
    integers[..., 1] = (packed >> 4).view(f"V{width}")[..., 0]
    return integers.view(np.uint8)


def _fives(blocks: _Array, at: int) -> _Array:
    """Four bits from the 16 bytes at `at + 4`, the fifth from the 32 bits at `at`."""
    fifth = np.unpackbits(_part(blocks, at, at + 4), axis=1, bitorder="little")
    whole: _Array = _nibbles(_part(blocks, at + 4, at + 20)) | (fifth << 4)
    return whole


def _centred(integers: _Array, centre: int) -> _Array:
    return integers.view(np.int8) - np.int8(centre)


def _scale(integers: _Array, scale: Tensor, out: Tensor) -> Tensor:
    return out.copy_(torch.from_numpy(integers)).mul_(scale)


def _q8_0(blocks: _Array, out: Tensor) -> None:
    _scale(_part(blocks, 2, 34).view(np.int8), _half(blocks, 0), out)


def _q4_0(blocks: _Array, out: Tensor) -> None:
    _scale(_centred(_nibbles(_part(blocks, 2, 18)), 8), _half(blocks, 0), out)


def _q5_0(blocks: _Array, out: Tensor) -> None:
    _scale(_centred(_fives(blocks, 2), 16), _half(blocks, 0), out)


def _q4_1(blocks: _Array, out: Tensor) -> None:
    _scale(_nibbles(_part(blocks, 4, 20)), _half(blocks, 0), out).add_(_half(blocks, 2))


def _q5_1(blocks: _Array, out: Tensor) -> None:
    _scale(_fives(blocks, 4), _half(blocks, 0), out).add_(_half(blocks, 2))


def _groups_of_32(integers: _Array, blocks: _Array, out: Tensor) -> None:
    """d * scale * integer - dmin * minimum, for eight groups of a block, whose scales and minima have 6 bits each.

    Of the 12 bytes that hold these, 0 to 3 have the first four scales and 4 to 7 the first four minima in their low six
    bits; the last four of each have their low halves in bytes 8 to 11, and their upper two bits on top of the first eight.
    """
    packed = _part(blocks, 4, 16)
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=1)
    scale, minimum = _half(blocks, 0) * torch.from_numpy(scales), _half(blocks, 2) * torch.from_numpy(minima)
    _scale(integers, scale[:, :, None], out.view(-1, 8, 32)).sub_(minimum[:, :, None])


def _q4_k(blocks: _Array, out: Tensor) -> None:
    integers = _nibbles(_part(blocks, 16, 144).reshape(-1, 4, 32))
    _groups_of_32(integers.reshape(-1, 8, 32), blocks, out)


def _q5_k(blocks: _Array, out: Tensor) -> None:
    integers = _nibbles(_part(blocks, 48, 176).reshape(-1, 4, 32)).reshape(-1, 8, 32)
    fifth = (
        _part(blocks, 16, 48)[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]
    )  # group i has bit i of all 32 bytes
    _groups_of_32(integers | ((fifth & 1) << 4), blocks, out)


def _q6_k(blocks: _Array, out: Tensor) -> None:
    integers = _nibbles(_part(blocks, 0, 128).reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    upper = _part(blocks, 128, 192).reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    centred = _centred(integers | ((upper & 3) << 4), 32).reshape(-1, 16, 16)
    scale = _half(blocks, 208) * torch.from_numpy(_part(blocks, 192, 208).view(np.int8))
    _scale(centred, scale[:, :, None], out.view(-1, 16, 16))


# By the number that stands in a file.
TYPES = {
    0: QuantType("F32", 1, 4, torch.float32),
    1: QuantType("F16", 1, 2, torch.float16),
    2: QuantType("Q4_0", 32, 18, unpack=_q4_0),
    3: QuantType("Q4_1", 32, 20, unpack=_q4_1),
    6: QuantType("Q5_0", 32, 22, unpack=_q5_0),
    7: QuantType("Q5_1", 32, 24, unpack=_q5_1),
    8: QuantType("Q8_0", 32, 34, unpack=_q8_0),
    12: QuantType("Q4_K", 256, 144, unpack=_q4_k),
    13: QuantType("Q5_K", 256, 176, unpack=_q5_k),
    14: QuantType("Q6_K", 256, 210, unpack=_q6_k),
    30: QuantType("BF16", 1, 2, torch.bfloat16),
}
NUMBER_OF = {kind.name: number for number, kind in TYPES.items()}
BY_NAME = {kind.name: kind for kind in TYPES.values()}

# Types that exist and are not read, so that a refusal can say which one it met.
_OTHERS = """
    4 Q4_2, 5 Q4_3, 9 Q8_1, 10 Q2_K, 11 Q3_K, 15 Q8_K, 16 IQ2_XXS, 17 IQ2_XS, 18 IQ3_XXS, 19 IQ1_S, 20 IQ4_NL, 21 IQ3_S,
    22 IQ2_S, 23 IQ4_XS, 24 I8, 25 I16, 26 I32, 27 I64, 28 F64, 29 IQ1_M, 31 Q4_0_4_4, 32 Q4_0_4_8, 33 Q4_0_8_8, 34 TQ1_0,
    35 TQ2_0, 36 IQ4_NL_4_4, 37 IQ4_NL_4_8, 38 IQ4_NL_8_8, 39 MXFP4, 40 NVFP4, 41 Q1_0"""
OTHER_NAMES = {int(number): name for number, name in (entry.split() for entry in _OTHERS.split(","))}
