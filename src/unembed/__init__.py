"""unembed: a glass-box workbench for transformer language models, from token ids to logits and back.

    import unembed
    model = unembed.load("runs/tour")             # .spec .tokenizer .hidden(ids) .unembed(resid), model(ids) -> logits
    unembed.train("my.txt", recipe="nanogpt-cpu", out="runs/mine", steps=2000)
    unembed.generate(model, "to be", tokens=50, temperature=0.8, seed=1).values["text"]
    unembed.candidates(model, "to be", top_k=3)   # what could have come next, and what cut it
    unembed.lens(model, "to be")                  # a Result: .tables, .to_dict(), shown in a notebook
    unembed.count("gpt2").parameters
    unembed.convert("runs/mine", "exported")      # a folder that transformers opens
    unembed.verify_model("exported")              # what is claimed of every model, tried on this one
    unembed.tying.examine("exported")             # is it tied? takes a module in memory as well
    unembed.write_report("runs/tour", lang="es")

Names are imported when they are first used, so `import unembed` is instant and loads no torch. The way of a token
through the package is told in docs/walk.md; the next file to read is python.py, where these functions stand.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unembed import tying  # noqa: F401
    from unembed.python import (
        candidates,
        convert,
        count,
        generate,
        generate_many,
        lens,
        load,
        resize_vocabulary,
        train,
        verify_model,
        write_report,
    )

# A name that is also a folder here would turn into that folder once it is imported: so `write_report`, not `report`, and
# `verify_model`, not `verify`.
__all__ = [
    "candidates",
    "convert",
    "count",
    "generate",
    "generate_many",
    "lens",
    "load",
    "resize_vocabulary",
    "train",
    "verify_model",
    "write_report",
]
# Folders that hold names for users; importing them loads nothing.
FOLDERS = ("tying",)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("unembed")
    if name in __all__:
        return getattr(importlib.import_module("unembed.python"), name)
    if name in FOLDERS:
        return importlib.import_module(f"unembed.{name}")
    raise AttributeError(f"module 'unembed' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*__all__, *FOLDERS, "__version__"])
