"""What a MODEL may be, and why something that a user named is none: one answer for every command that takes one.

It looks at names alone and opens nothing. Before it: places.py, for paths that nothing could open. The next file to read is
counting.py.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from unembed.errors import closest, suggest
from unembed.places import near_paths, shown

MODEL_KINDS = (
    "a run folder, a checkpoint in it, a Hugging Face folder, a .gguf, .safetensors, .pt or .bin file, "
    "or a preset's name"
)
RUN_FILE, CONFIG = "run.json", "config.json"
# Files that other programs lay beside a model's weights, and ours beside a run's.
A_TOKENIZER = "is a tokenizer's file, which holds no weights; --tokenizer and `unembed inspect` take it"
_BESIDE = (".json", ".jsonl", ".model", ".jinja", ".md", ".index", ".bpe")
_TOKENIZERS = ("tokenizer.json", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe", "vocab.txt")
_NEEDS_CONFIG = re.compile(r"\.safetensors$|^pytorch_model.*\.bin$")
_ALONE = (".gguf", ".pt", ".pth", ".ckpt", ".bin")
_ON_A_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_MOST_NAMES = 2_000  # of a folder are looked through


def what_a_model_is(given: object) -> str:
    """The answer to what is no name at all.

    >>> what_a_model_is("")[:38]
    "MODEL is ''; give a run folder, a chec"
    """
    return f"MODEL is {repr(given)[:60]}; give {MODEL_KINDS}"


def why_no_model(path: Path, presets: Iterable[str]) -> str:
    """Why nothing that is read as a MODEL stands at a path, with the next step that suits what does stand there."""
    if path.is_file():
        return f"{shown(path)}: {_why_no_file(path)}"
    if (path / RUN_FILE).is_dir():
        return f"{shown(path / RUN_FILE)}: is a folder, expected the file that training writes. Was the run copied by hand?"
    if path.is_dir():
        return f"{shown(path)}: {_why_no_folder(path)}"
    return f"{shown(path)}: there is no such file or folder, and no preset of that name. {_where_else(path, presets)}"


def _why_no_file(path: Path) -> str:
    folder = path.parent
    is_tokenizer = path.name in _TOKENIZERS or path.suffix == ".model"
    if path.suffix in _BESIDE or is_tokenizer:
        if any((folder / name).is_file() for name in (CONFIG, RUN_FILE, "MANIFEST.json")):
            return f"is one of the files beside a model's weights. Name its folder: {shown(folder)}"
        if is_tokenizer:
            return A_TOKENIZER
    return f"this kind of file is no model. A MODEL is {MODEL_KINDS}."


def _why_no_folder(folder: Path) -> str:
    try:
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry, _ in zip(found, range(_MOST_NAMES), strict=False))
    except OSError:
        names = []
    if weights := [name for name in names if _NEEDS_CONFIG.search(name)]:
        return (
            f"{CONFIG} is missing beside {shown(weights[0])}, and the weights alone do not say what model they are of. "
            "Fetch it from where they came from"
        )
    if alone := [name for name in names if Path(name).suffix in _ALONE]:
        return f"holds no {CONFIG} and no {RUN_FILE}. If {alone[0]} is the model, name it: {shown(folder / alone[0])}"
    if "checkpoints" in names:
        return f"{RUN_FILE} is missing beside its checkpoints, which training writes first. Was the run copied whole?"
    return f"holds no {RUN_FILE} and no {CONFIG}, so it is no MODEL, which is {MODEL_KINDS}."


def _where_else(path: Path, presets: Iterable[str]) -> str:
    """The next step where nothing is a MODEL of that name: near paths and near presets, else what may be given."""
    name, known, near = os.fspath(path), list(presets), near_paths(path)
    if not near and _ON_A_HUB.fullmatch(name) and path.parts[0] != "runs" and not path.parent.exists():
        is_shape = path.name.lower() in known  # a name that is only near would be another model
        shape = f" The preset {path.name.lower()} has its shape and random weights." if is_shape else ""
        return f"Nothing is downloaded; if it is on a hub, fetch it and give the local folder.{shape}"
    found = [*closest(name, known, n=2, cutoff=0.6), *near]
    return f"{suggest(list(dict.fromkeys(found))[:3], f'Give {MODEL_KINDS}.')} docs/presets.md lists the presets."
