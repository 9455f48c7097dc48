"""What the doctor notes down: one check, its status, and what was seen; and how tensors are told of in a sentence.

Details begin with a small letter and have no full stop, so that one can stand inside the verdict. The next file to read is
memory.py, which asks whether two tensors are one.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor, nn

from unembed.checkpoints.run.shards import is_sharded, local

Status = Literal["ok", "broken", "unknown"]


class Check(NamedTuple):
    """One thing that was looked at: ok, broken, or not known; `detail` says what was seen, with its numbers."""

    name: str
    status: Status
    detail: str


class Meaning(NamedTuple):
    """Whether a model is meant to be tied, None where nobody says, and who says so."""

    tied: bool | None
    source: str


def shape_of(tensor: Tensor) -> str:
    """`[13, 12] float32`."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def count_of(n: int, one: str, many: str | None = None) -> str:
    """`1 row`, `3 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def joined(words: Sequence[str]) -> str:
    """`a, b and c`; of a long list the first six."""
    shown = [*words[:6], f"{len(words) - 6} more"] if len(words) > 7 else list(words)
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def clean(name: str) -> str:
    """A name without what compiling, averaging or wrapping put into it."""
    return name.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "").removeprefix("module.")


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, data-parallel wrappers and moving averages, which keep it under these names."""
    while True:
        inner = module._modules.get("_orig_mod", module._modules.get("module"))
        if inner is None or (len(module._modules) > 1 and "_orig_mod" not in module._modules):
            return module
        module = inner


__all__ = ["Check", "Meaning", "Status", "clean", "count_of", "is_sharded", "joined", "local", "shape_of", "unwrapped"]
