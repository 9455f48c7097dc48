"""Whether packed copies are still those of the parameters that they were made of.

A prompt goes through the parameters themselves and a new token through the copies. If the parameters are trained or loaded
anew in between, both give numbers, of two different models, and nothing would show it. torch counts the writes to a tensor
(`_version`), so that is asked before each product; a write through `.data` is not counted. The next file to read is
parts.py.
"""

import copy
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from unembed.errors import UsageError
from unembed.generation.weights.parts import version

# The module that has a parameter, its name there, the parameter, and how often it was written and where it lay.
Seen = tuple[nn.Module, str, Tensor | None, int, int]


class Origin:
    """The parameters that a copy was made of, as they were then."""

    def __init__(self, places: Iterable[tuple[nn.Module, str]], name: str) -> None:
        self._name = name
        self._seen = [_seen(module, key) for module, key in places]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Origin":
        """Copied with its model, it looks at the copied parameters as they are; one that is old already is not copied."""
        self.check()
        return Origin([(copy.deepcopy(module, memo), key) for module, key, *_ in self._seen], self._name)

    def check(self) -> None:
        """Raises: UsageError where one was written since, moved, or exchanged for another."""
        for module, key, then, written, place in self._seen:
            now = module._parameters.get(key)
            if now is not then or (now is not None and (now.data_ptr() != place or version(now) != written)):
                raise UsageError(
                    f"weights: {self._name} changed since its packed copy was made, so a prompt and the tokens after it "
                    "would come of two different models. Call with_weights again, on the model as it is now"
                )


def places_of(root: nn.Module, parameter: Tensor) -> list[tuple[nn.Module, str]]:
    """Every place of a model that holds this very parameter."""
    return [(module, key) for module in root.modules() for key, own in module._parameters.items() if own is parameter]


def _seen(module: nn.Module, key: str) -> Seen:
    own = module._parameters.get(key)
    return (module, key, own, 0, 0) if own is None else (module, key, own, version(own), own.data_ptr())
