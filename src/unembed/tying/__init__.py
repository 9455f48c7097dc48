"""The shared matrix: whether a model is tied, and what its two uses teach it.

Names are imported when they are first used; each is one line of HOME: the name, and the module that holds it.
"""

import importlib
from typing import Any

HOME: dict[str, str] = {
    "split_gradient": "unembed.tying.gradients",
}


def __getattr__(name: str) -> Any:
    if name in HOME:
        return getattr(importlib.import_module(HOME[name]), name)
    raise AttributeError(f"module 'unembed.tying' has no attribute {name!r}; it has {', '.join(HOME)}")


def __dir__() -> list[str]:
    return sorted(HOME)
