"""The page of the settings of a run, asked from the config and its ranges. Next to read: generate.py, which writes it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_origin

import msgspec

from markup import markdown_table
from unembed.training.settings import OF_KINDS, OF_RECIPES, READING, WHAT

# What the recipe small decides from the text and the minutes; everything else it has in common with nanogpt-cpu.
CHOSEN = ("steps", "batch_size", "learning_rate", "context_length", "eval_every", "checkpoint_every")
DERIVED = ("training.schedule.floor", "training.schedule.warmup_steps")
TYPES = {int: "whole number", float: "number", bool: "true or false"}
READERS = {"newlines": "`keep`, `lf`", "invalid_bytes": "`refuse`, `skip`", "column": "a column's name, or null"}


def settings_page() -> str:
    """Every setting: its type, its range, its default and what it does."""
    return "\n".join(
        [
            "# Settings",
            "",
            "What `unembed train --set NAME=VALUE` takes, and `settings` in Python. Values are JSON: `true`, `null`, `5e-4`.",
            "The default is that of the recipe nanogpt-cpu; *chosen* means that the recipe small, the one that is used when",
            "none is named, decides it from your text and the minutes, as its first lines say. A run keeps all of its settings",
            "in run.json. Model, seed and init stay as they are when a run goes on.",
            "",
            *markdown_table(("name", "type", "range", "default", "what it does"), rows()),
        ]
    )


def rows() -> Iterator[tuple[str, ...]]:
    """One line a setting, in the order of settings.py."""
    from unembed.model.spec import HEADS
    from unembed.training.config import KINDS, LONGEST_CONTEXT, SHORT_NAMES, with_settings
    from unembed.training.ranges import BY_PATH

    config = nanogpt_config()
    other = with_settings(config, {name: kinds[-1] for name, kinds in KINDS.items()})
    for name, what in WHAT.items():
        if name == "tied":
            kind, rule, value = "true or false", "", "true"
        elif name in KINDS:
            kind, rule, value = "text", ", ".join(f"`{one}`" for one in KINDS[name]), KINDS[name][0]
        elif name == "sharing":
            kind, rule, value = "text", ", ".join(f"`{kind}`" for kind in HEADS), "tied"
        elif name == "context_length":
            kind, value = TYPES[int], str(config.model.context_length)
            rule = f"at least 1 and at most {LONGEST_CONTEXT:,}"
        else:
            path = SHORT_NAMES.get(name, name)
            kind, value = field_of(other if name in OF_KINDS else config, path)
            rule = BY_PATH[path].rule if path in BY_PATH else ""
        value += f", with `{OF_KINDS[name]}`" if name in OF_KINDS else ""
        value += ", *chosen* by small" if name in (*CHOSEN, *DERIVED) else ""
        yield f"`{name}`", kind, rule, value, what
    for name, what in READING.items():
        yield (
            f"`{name}`",
            "text",
            READERS[name],
            {"column": "null"}.get(name, READERS[name].split(",")[0].strip("`")),
            what,
        )
    for name, (recipe, what) in OF_RECIPES.items():
        kind, rule, value = {
            "minutes": ("number", "above 0", "5"),
            "vocabulary": ("text or whole number", "`characters`, or from 320 to 65,536", "characters"),
            "language": ("text", "`en`, `es`, `ko`", "en"),
        }[name]
        yield f"`{name}`", kind, rule, value, f"Recipe {recipe} alone. {what}"


def field_of(config: Any, path: str) -> tuple[str, str]:
    """The type of a field in words, and its value in JSON."""
    place, *names = config, *path.split(".")
    for name in names[:-1]:
        place = getattr(place, name)
    (field,) = (one for one in msgspec.structs.fields(type(place)) if one.name == names[-1])
    if get_origin(field.type) is Literal:  # the rule beside it lists the words
        return "text", f"`{getattr(place, names[-1])}`"
    kinds = [field.type] if field.type in TYPES else [one for one in field.type.__args__ if one in TYPES]
    words = TYPES[kinds[0]] + (" or null" if field.type not in TYPES else "")
    return words, msgspec.json.encode(getattr(place, names[-1])).decode()


def nanogpt_config() -> Any:
    """The config of the recipe nanogpt-cpu, for a text of no matter what."""
    from unembed.corpora.reading import Reading
    from unembed.recipes.nanogpt_cpu import prepare

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text("to be or not to be\n" * 100, encoding="utf-8")
        return prepare([str(path)], Reading(), {}).config
