"""A folder as transformers writes it: config.json beside one file of weights, or several and an index.

Only names that the index gives are opened, and only inside the folder. Weights are read from .safetensors; a
pytorch_model.bin goes through PyTorch's weights-only reader. The next file to read is translate.py.
"""

import os
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from unembed.checkpoints.families import FAMILIES
from unembed.checkpoints.families.base import Family
from unembed.checkpoints.foreign.translate import Source
from unembed.checkpoints.formats.safetensors import read_tensors, short
from unembed.checkpoints.formats.torch_files import read_torch
from unembed.checkpoints.rules.accounting import listed
from unembed.checkpoints.run.native import read_json_object
from unembed.errors import CheckpointError, did_you_mean
from unembed.places import check_path

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
OLD_WEIGHTS, OLD_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
# How transformers names what a model is for, and which of those say a next or a hidden token.
_HEAD = re.compile(r"For[A-Z]\w*$|DoubleHeadsModel$|Reward\w*$")
_LANGUAGE_HEADS = ("CausalLM", "MaskedLM", "PreTraining", "Generation")
_CONFIG_LIMIT_BYTES = 16 * 2**20
_INDEX_LIMIT_BYTES = 64 * 2**20


def open_folder(folder: Path) -> Source:
    """The source in a folder with a config.json. Raises: CheckpointError, UnsafeError."""
    config = read_config(folder / CONFIG)
    family, end = family_of(config, folder / CONFIG), generation_end(folder)
    return Source(family, "huggingface", config, read_weights(folder), str(folder), generation_end=end)


def open_file(file: Path) -> Source:
    """The source of one file of weights, with the config.json beside it. Raises: CheckpointError."""
    if file.stat().st_size == 0:
        raise CheckpointError(f"{file}: is empty (0 bytes). Copy or download it again.")
    config = file.parent / CONFIG
    if not os.path.lexists(config):
        raise CheckpointError(
            f"{file}: holds numbers and no description; expected {CONFIG} beside it. Copy the model's {CONFIG} there."
        )
    read = read_config(config)
    family, end = family_of(read, config), generation_end(file.parent)
    return Source(family, file.suffix.removeprefix("."), read, _read(file), str(file), generation_end=end)


def read_config(path: Path) -> dict[str, Any]:
    """The object in a config.json. Raises: CheckpointError."""
    check_path(path, CheckpointError)
    if path.is_dir():
        raise CheckpointError(
            f"{path}: is a folder, expected the file that describes the model. Copy or download it again."
        )
    return _read_object(path, _CONFIG_LIMIT_BYTES)


def _read_object(path: Path, limit_bytes: int) -> dict[str, Any]:
    try:
        return read_json_object(path, limit_bytes)
    except CheckpointError as error:
        if isinstance(error.__cause__, ValueError):  # no JSON, or JSON with a key twice
            raise CheckpointError(f"{error}. Mend the file, or copy or download it again.") from error
        raise


def generation_end(folder: Path) -> Any:
    """The `eos_token_id` of a folder's generation_config.json, unchecked; None where it says nothing.

    Chat models name the ids that end an answer there alone. Raises: CheckpointError for a file that cannot be read.
    """
    path = folder / GENERATION
    return read_config(path).get("eos_token_id") if os.path.lexists(path) else None


def family_of(config: dict[str, Any], path: Path) -> Family:
    """The family that a config's `model_type` names. Raises: CheckpointError listing those that are known."""
    _refuse_other_heads(config, path)
    kind = config.get("model_type")
    known = {name: family for family in FAMILIES for name in family.model_types}
    if kind is not None and not isinstance(kind, str):
        raise CheckpointError(f"{path}: model_type is {repr(kind)[:60]}, expected a word, such as gpt2")
    if not isinstance(kind, str) or kind not in known:
        if isinstance(kind, str) and "text_config" in config:
            text = config["text_config"].get("model_type") if isinstance(config["text_config"], dict) else None
            raise CheckpointError(
                f"{path}: model_type is {short(kind)}, a model of text and of something else, such as images; text alone is "
                f"read. Save its text part{f' ({short(text)})' if isinstance(text, str) else ''} as a model of its own."
            )
        likely = did_you_mean(kind, known, "", n=1, cutoff=0.8) if isinstance(kind, str) else ""
        raise CheckpointError(
            f"{path}: model_type is {short(kind) if isinstance(kind, str) else 'missing'}; known are "
            f"{', '.join(sorted(known))}. {likely} A family is added as docs/add/family.md says.".replace("  ", " ")
        )
    return known[kind]


def _refuse_other_heads(config: dict[str, Any], path: Path) -> None:
    """A classifier has the layers of a language model, and would be read as one once its own head is passed over."""
    names = config.get("architectures")
    for name in names if isinstance(names, list) else ():
        head = _HEAD.search(name) if isinstance(name, str) else None
        if head is not None and not any(word in head.group() for word in _LANGUAGE_HEADS):
            raise CheckpointError(
                f"{path}: architectures names {short(name)}, whose head gives no scores over the vocabulary; language models "
                "are read (...ForCausalLM, ...ForMaskedLM). Give the language model that it was made from."
            )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, mapped. Raises: CheckpointError where the index and the files disagree; UnsafeError."""
    for weights, index in ((WEIGHTS, INDEX), (OLD_WEIGHTS, OLD_INDEX)):
        is_single, is_sharded = (folder / weights).is_file(), (folder / index).is_file()
        if is_single and is_sharded:
            raise CheckpointError(
                f"{folder}: holds {weights} and {index}; which of the two are the model's weights cannot be told. Move one of "
                "them away."
            )
        if is_sharded:
            return _sharded(folder, index)
        if is_single:
            return _read(folder / weights)
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    raise CheckpointError(
        f"{folder}: has a {CONFIG} and no weights; expected {WEIGHTS}, or {INDEX} and its files."
        + (f" There is {listed(others)}: name the file itself." if others else " Copy them there.")
    )


def _read(file: Path) -> dict[str, Tensor]:
    return read_tensors(file) if file.suffix == ".safetensors" else dict(read_torch(file).tensors)


def _sharded(folder: Path, name: str) -> dict[str, Tensor]:
    path = folder / name
    index = _read_object(path, _INDEX_LIMIT_BYTES)
    file_of = index.get("weight_map")
    if not isinstance(file_of, dict) or not file_of or not all(isinstance(file, str) for file in file_of.values()):
        raise CheckpointError(f"{path}: weight_map is not an object of file names by tensor")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(file_of.values())):
        if Path(file).name != file or file.startswith("."):
            raise CheckpointError(f"{path}: names the file {short(file)}; expected a plain name of a file beside it")
        announced = {name for name, where in file_of.items() if where == file}
        held = _read(folder / file)
        if announced != set(held):
            lost, more = sorted(announced - set(held)), sorted(set(held) - announced)
            raise CheckpointError(
                f"{folder / file}: does not hold what {name} says: missing {listed(lost) or 'none'}, not announced "
                f"{listed(more) or 'none'}. Copy or download both again."
            )
        tensors |= held
    return tensors
