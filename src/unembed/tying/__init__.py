"""The shared matrix: whether a model is tied, and what its two uses teach it.

    unembed.tying.examine(model)             doctor.py: is it tied, in its file, in memory, in the optimizer?
    unembed.tying.split_gradient(model, ...) gradients.py: what looking up and scoring teach the table
    unembed.tying.likeness(model)            alike.py: how alike the two tables of an untied model are

Names are imported when they are first used; each is one line of HOME: the name, and the module that holds it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unembed.tying.alike import likeness
    from unembed.tying.doctor import examine
    from unembed.tying.gradients import split_gradient

HOME: dict[str, str] = {
    "examine": "unembed.tying.doctor",
    "split_gradient": "unembed.tying.gradients",
    "likeness": "unembed.tying.alike",
}
__all__ = ["examine", "likeness", "split_gradient"]


def __getattr__(name: str) -> Any:
    if name in HOME:
        return getattr(importlib.import_module(HOME[name]), name)
    raise AttributeError(f"module 'unembed.tying' has no attribute {name!r}; it has {', '.join(HOME)}")


def __dir__() -> list[str]:
    return sorted(HOME)
