"""unembed: a glass-box workbench for transformer language models, from token ids to logits and back.

    import unembed
    model = unembed.load("runs/tour")             # .spec .tokenizer .hidden(ids) .unembed(resid), model(ids) -> logits
    unembed.train("my.txt", recipe="nanogpt-cpu", out="runs/mine", steps=2000)
    unembed.generate(model, "to be", tokens=50, temperature=0.8, seed=1).values["text"]
    unembed.with_weights(model, "int8")           # the same model, writing faster: see docs/decoding.md
    unembed.candidates(model, "to be", top_k=3)   # what could have come next, and what cut it
    unembed.lens(model, "to be")                  # a Result: .tables, .to_dict(), shown in a notebook
    unembed.attribute(model, "to be")             # which part of the model wrote the answer's score
    unembed.attention(model, "to be", layer=1)    # who looks at whom, and what kind of head each head is
    unembed.patch(model, "to be", "to do")        # what must be known where for the answer to come back
    unembed.stream(model, "to be")                # what each block adds
    unembed.calibration(model, "runs/tour")       # how far each layer may be believed, on the run's held-out text
    unembed.tune_lens(model, "runs/tour", out="lens.safetensors")   # a fairer lens; unembed.lens(..., tuned=) reads by it
    unembed.truth(model, "runs/tour")             # from which layer on the grammar's decisions can be read
    unembed.gradient_flow(model, "runs/tour")     # how much of the gradient reaches each depth
    unembed.count("gpt2").parameters
    unembed.convert("runs/mine", "exported")      # a folder that transformers opens
    unembed.verify_model("exported")              # what is claimed of every model, tried on this one
    unembed.tying.examine("exported")             # is it tied? takes a module in memory as well
    unembed.write_report("runs/tour", lang="es")

Names are imported when they are first used, so `import unembed` is instant and loads no torch. The way of a token
through the package is told in docs/walk.md; the next file to read is python/models.py, where most of these functions
stand.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unembed import tying  # noqa: F401
    from unembed.python.held_out import calibration, gradient_flow, truth, tune_lens
    from unembed.python.lenses import attention, attribute, patch, stream
    from unembed.python.models import (
        convert,
        count,
        lens,
        load,
        resize_vocabulary,
        train,
        verify_model,
        write_report,
    )
    from unembed.python.texts import candidates, generate, generate_many, with_weights

# A name that is also a folder here would turn into that folder once it is imported: so `write_report`, not `report`, and
# `verify_model`, not `verify`.
__all__ = [
    "attention",
    "attribute",
    "calibration",
    "candidates",
    "convert",
    "count",
    "generate",
    "generate_many",
    "gradient_flow",
    "lens",
    "load",
    "patch",
    "resize_vocabulary",
    "stream",
    "train",
    "truth",
    "tune_lens",
    "verify_model",
    "with_weights",
    "write_report",
]
# Where those of __all__ stand that do not stand in python/models.py.
ELSEWHERE = {
    "held_out": ("calibration", "gradient_flow", "truth", "tune_lens"),
    "lenses": ("attention", "attribute", "patch", "stream"),
    "texts": ("candidates", "generate", "generate_many", "with_weights"),
}
# Folders that hold names for users; importing them loads nothing.
FOLDERS = ("tying",)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("unembed")
    if name in __all__:
        module = next((module for module, names in ELSEWHERE.items() if name in names), "models")
        return getattr(importlib.import_module(f"unembed.python.{module}"), name)
    if name in FOLDERS:
        return importlib.import_module(f"unembed.{name}")
    raise AttributeError(f"module 'unembed' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*__all__, *FOLDERS, "__version__"])
