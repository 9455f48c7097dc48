"""Whether packed copies are still those of the parameters that they were made of.

A prompt goes through the parameters themselves and a new token through the copies. If the parameters are trained or loaded
anew in between, both give numbers, of two different models, and nothing would show it. torch counts the writes to a tensor
(`_version`), so that is asked before each product; a write through `.data` is not counted. The next file to read is
joined.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from unembed.errors import UsageError

# The module that has a parameter, its name there, the parameter, and how often it was written and where it lay.
Seen = tuple[nn.Module, str, Tensor | None, int, int]


class Origin:
    """The parameters that a copy was made of, as they were then."""

    def __init__(self, places: Iterable[tuple[nn.Module, str]], name: str, *, is_old: bool = False) -> None:
        self._name, self._is_old = name, is_old
        self._seen = [_seen(module, key) for module, key in places]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or kept in a file with its model, it looks at the new parameters as they are; one that is old stays so."""
        return _again, ([(module, key) for module, key, *_ in self._seen], self._name, self.is_old())

    def is_old(self, now: Sequence[nn.Module] = ()) -> bool:
        """Whether a parameter was written since, moved, or exchanged for another.

        `now` are the modules that stand for the owners in a model that was made of them, two parameters each.
        """
        if self._is_old:
            return True
        for module, key, then, written, place in self._seen:
            if module._parameters.get(key) is not then:
                return True
            if then is not None and (version(then) != written or then.data_ptr() != place):
                return True
        for index, owner in enumerate(now):
            (_, one, first, *_), (_, other, second, *_) = self._seen[2 * index : 2 * index + 2]
            if owner._parameters.get(one) is not first or owner._parameters.get(other) is not second:
                return True
        return False

    def check(self, now: Sequence[nn.Module] = ()) -> None:
        """Raises: UsageError where it is old."""
        if self.is_old(now):
            raise UsageError(
                f"weights: {self._name} changed since its packed copy was made, so a prompt and the tokens after it "
                "would come of two different models. Call with_weights again, on the model as it is now"
            )


def places_of(root: nn.Module, parameter: Tensor) -> list[tuple[nn.Module, str]]:
    """Every place of a model that holds this very parameter."""
    return [(module, key) for module in root.modules() for key, own in module._parameters.items() if own is parameter]


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; those made under torch.inference_mode count nothing, and cannot be trained."""
    return 0 if tensor.is_inference() else tensor._version


def _again(places: list[tuple[nn.Module, str]], name: str, is_old: bool) -> Origin:
    return Origin(places, name, is_old=is_old)


def _seen(module: nn.Module, key: str) -> Seen:
    own = module._parameters.get(key)
    return (module, key, own, 0, 0) if own is None else (module, key, own, version(own), own.data_ptr())
