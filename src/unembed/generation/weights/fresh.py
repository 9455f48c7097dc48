"""Whether packed copies are still those of the parameters that they were made of.

A prompt goes through the parameters themselves and a new token through the copies. If the parameters are trained or loaded
anew in between, both give numbers, of two different models, and nothing would show it. torch counts the writes to a tensor
(`_version`), so that is asked before each product. It does not count writes through `.data`, and it forgets those of fused
optimizers, which are counted for it (`count_steps`). The next file to read is joined.py.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from unembed.errors import UsageError


class _Seen(NamedTuple):
    """A parameter, how often it was written, and its memory, held so that no other tensor can come to lie there."""

    parameter: Tensor
    version: int
    memory: Tensor


class Origin:
    """The parameters that a copy was made of, as they were then."""

    def __init__(self, parameters: Sequence[Tensor | None], name: str, *, is_old: bool = False) -> None:
        count_steps()
        self._name, self._is_old = name, is_old
        self._seen = [None if one is None else _Seen(one, version(one), one.detach()) for one in parameters]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or kept in a file with its model, it looks at the new parameters as they are; one that is old stays so."""
        parameters = [None if one is None else one.parameter for one in self._seen]
        return _again, (parameters, self._name, self.is_old(parameters))

    def is_old(self, now: Sequence[Tensor | None]) -> bool:
        """Whether one was written since, or moved, or is another one `now`, in the places of the model."""
        if self._is_old or len(now) != len(self._seen):
            return True
        for one, seen in zip(now, self._seen, strict=True):
            if seen is None:
                if one is not None:
                    return True
            elif one is not seen.parameter or version(one) != seen.version or one.data_ptr() != seen.memory.data_ptr():
                return True
        return False

    def check(self, now: Sequence[Tensor | None]) -> None:
        """Raises: UsageError where it is old."""
        if self.is_old(now):
            raise UsageError(
                f"weights: {self._name} changed since its packed copy was made, so a prompt and the tokens after it "
                "would come of two different models. Call with_weights again, on the model as it is now"
            )


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; those made under torch.inference_mode count nothing, and cannot be trained."""
    return 0 if tensor.is_inference() else tensor._version


@cache
def count_steps() -> None:
    """Counts the steps of torch's optimizers as writes, from now on: fused kernels forget to."""
    register_optimizer_step_post_hook(_count)


def _count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    torch.autograd.graph.increment_version([one for group in optimizer.param_groups for one in group["params"]])


def _again(parameters: list[Tensor | None], name: str, is_old: bool) -> Origin:
    return Origin(parameters, name, is_old=is_old)
