"""What may be named on a command line, as a shell completes it, and where a command puts what nobody named a place for.

None of it imports torch, so a shell is answered at once; what is known elsewhere (recipes, settings) is repeated here and a
test holds the two together. The next file to read is main.py.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

RECIPES = ("small", "nanogpt-cpu", "speedrun", "tour", "shared-table")
SETTINGS = (
    "seed",
    "batch_size",
    "steps",
    "accumulate",
    "learning_rate",
    "weight_decay",
    "dropout",
    "checkpoint_every",
    "eval_every",
    "compile",
    "checkpoint_activations",
    "chunked_loss",
    "parallel",
    "precision",
    "context_length",
    "tied",
    "sharing",
    "tensorboard",
    "early_stop",
    "sample_every",
    "eval_at_start",
    "optimizer",
    "schedule",
    "tying.gradient_every",
    "tying.lookup_gradient_scale",
)
_MOST_FOLDERS = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def next_free(path: str) -> Path:
    """The path itself if nothing is there, otherwise with -2, -3, ... after it: an old run is never touched."""
    candidate, number = Path(path), 2
    while os.path.lexists(candidate):
        candidate, number = Path(f"{path}-{number}"), number + 1
    return candidate


def complete_model(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Presets, run folders, and the folders that lead to them."""
    from unembed.model.presets import PRESETS

    presets = [name for name in PRESETS if name.startswith(incomplete.lower())] if incomplete else []
    return [*complete_run(context, parameter, incomplete), *map(CompletionItem, presets)]


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Run folders, and with a slash after their names the folders that lead to them."""
    return [CompletionItem(path) for path in _folders(incomplete)]


def complete_recipe(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The recipes' names."""
    return [CompletionItem(name) for name in RECIPES if name.startswith(incomplete)]


def complete_setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The short names of settings, up to the sign that a value follows."""
    return [CompletionItem(f"{name}=") for name in SETTINGS if name.startswith(incomplete)]


def _folders(incomplete: str) -> Iterator[str]:
    folder, _, start = incomplete.rpartition("/")
    before = f"{folder}/" if "/" in incomplete else ""
    try:
        names = sorted(entry.name for entry in os.scandir(before or ".") if entry.is_dir())
    except OSError:
        return
    hidden = start.startswith(".")
    # a name that a shell or a terminal would obey is left to be typed by hand
    fit = [name for name in names if name.startswith(start) and name.isprintable() and name.startswith(".") == hidden]
    for name in fit[:_MOST_FOLDERS]:
        yield before + name if is_run(Path(before + name)) else f"{before}{name}/"


def is_run(path: Path) -> bool:
    """Whether a folder is a run, or a checkpoint of one."""
    return (path / "run.json").is_file() or (path / "MANIFEST.json").is_file()
