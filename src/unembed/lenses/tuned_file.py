"""A tuned lens on disk: a safetensors file that says whose lens it is, and is refused for any other model.

    lens.safetensors            weight [layer, d_model, d_model], bias [layer, d_model], float32
    lens.safetensors.training   what an unfinished training needs to go on; gone when the lens is written

Both carry in their header the SHA-256 of the model's weights and of its tokenizer: a lens on other weights still gives
numbers, and they mean nothing. Files are replaced in one instant, so a kill leaves the old one or the new one. Before it:
tuned_lens.py. The next file to read is layer_scores.py, which says how good a lens is.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unembed.checkpoints.files import replace_file
from unembed.checkpoints.formats.safetensors import Header, read_header, read_tensors
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.errors import CheckpointError
from unembed.lenses.translators import Translators
from unembed.model.transformer import Transformer
from unembed.tokenizers.files import fingerprint as tokenizer_fingerprint

LENS, TRAINING = "unembed tuned lens 1", "unembed tuned lens in training 1"
ENDING = ".training"


def fingerprint_of(model: Transformer) -> dict[str, str]:
    """What tells one model from another: `model_sha256` of names, shapes and values, `tokenizer_sha256` ("" without one).

    Half-precision weights count as the float32 numbers that they are, so the type that a file was loaded in changes nothing.
    """
    digest = hashlib.sha256(repr(model.spec).encode())
    for name, parameter in sorted(model.named_parameters()):
        values = parameter.detach().cpu().contiguous()
        wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        digest.update(f"{name} {tuple(wide.shape)}".encode())
        digest.update(wide.numpy().data)
    tokenizer = "" if model.tokenizer is None else tokenizer_fingerprint(model.tokenizer)
    return {"model_sha256": digest.hexdigest(), "tokenizer_sha256": tokenizer}


def save_lens(path: Path, translators: Translators, whose: Mapping[str, str]) -> None:
    """Writes a finished lens. Raises: CheckpointError, ResourceError; an older file is then untouched."""
    tensors = {"weight": translators.weight.contiguous(), "bias": translators.bias.contiguous()}
    _write(path, tensors, {**whose, "kind": LENS, "about": json.dumps(translators.about, sort_keys=True)})


def load_lens(path: str | Path, model: Transformer) -> Translators:
    """Reads a lens that was tuned for this very model.

    Raises: CheckpointError for a file that is damaged, no lens, or another model's; UnsafeError for a pickle.
    """
    path = Path(path)
    found = _tensors(path, LENS, "lens", fingerprint_of(model))
    spec = model.spec
    shapes = {
        "weight": (spec.n_layers, spec.embedding.d_model, spec.embedding.d_model),
        "bias": (spec.n_layers, spec.embedding.d_model),
    }
    _check(path, found, shapes)
    about = _about(path, read_header(path))
    return Translators(found["weight"].clone(), found["bias"].clone(), about)


def save_training(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any], whose: Mapping[str, str]
) -> None:
    """Writes the state of a training beside the lens that it will become. Raises: as `save_lens`."""
    text = json.dumps(dict(about), sort_keys=True)
    _write(training_path(path), dict(tensors), {**whose, "kind": TRAINING, "about": text})


def load_training(
    path: Path, model_fingerprint: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads the state of a training for this very model: its tensors, and what `save_training` was told.

    Raises: as `load_lens`.
    """
    place = training_path(path)
    found = _tensors(place, TRAINING, "training", model_fingerprint)
    _check(place, found, shapes)
    return found, _about(place, read_header(place))


def training_path(path: Path) -> Path:
    """Where an unfinished training of a lens stands."""
    return path.with_name(path.name + ENDING)


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    chunks = encode_tensors(tensors, label=path.name, metadata=metadata)
    replace_file(path, chunks, kind=CheckpointError)


def _tensors(path: Path, kind: str, what: str, whose: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a file of this kind that belongs to this model. Raises: CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; `unembed tune-lens MODEL TEXT --out {path.name}` makes a lens")
    metadata = read_header(path).metadata
    if metadata.get("kind") != kind:
        raise CheckpointError(
            f"{path}: is no tuned {what} of this version: its header says {str(metadata.get('kind'))[:60]!r}, expected "
            f"{kind!r}. `unembed tune-lens MODEL TEXT --out FILE` makes one"
        )
    for name, part in (("model_sha256", "weights"), ("tokenizer_sha256", "tokenizer")):
        if metadata.get(name) != whose[name]:
            raise CheckpointError(
                f"{path}: was tuned for a model with other {part}: theirs begin with {_short(metadata.get(name))}, this "
                f"model's with {_short(whose[name])} (SHA-256). Its numbers would mean nothing here.\n"
                "Tune one for this model: unembed tune-lens MODEL TEXT --out FILE"
            )
    return read_tensors(path)


def _check(path: Path, found: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    there = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if there != dict(shapes):
        odd = sorted(name for name in {*there, *shapes} if there.get(name) != shapes.get(name))[0]
        raise CheckpointError(
            f"{path}: tensor {odd[:60]!r} is {there.get(odd)}, expected {shapes.get(odd)}. The file was changed; tune the lens "
            "again"
        )
    if bad := [name for name, one in found.items() if one.dtype != torch.float32 or not bool(one.isfinite().all())]:
        raise CheckpointError(f"{path}: tensor {bad[0]!r} holds what is no float32 number. Tune the lens again")


def _about(path: Path, header: Header) -> dict[str, Any]:
    try:
        about = json.loads(header.metadata.get("about", ""))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: what its header says of its making is no JSON: {error}") from error
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: what its header says of its making is no object")
    return about


def _short(digest: str | None) -> str:
    return "nothing" if not digest else digest[:12]
