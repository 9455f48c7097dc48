"""Claim: transformers, where it is installed, computes the same logits from the same file.

A model of another format is written as a Hugging Face folder first. Of a large one the first layers are compared: every
kind of layer is among them, and nothing is gained by waiting for the rest. Transformers is an oracle here and nothing
else; without it the claim is skipped.
"""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.foreign.export import exportable, write_huggingface
from unembed.checkpoints.foreign.translate import Source
from unembed.checkpoints.formats.safetensors import clean_names
from unembed.errors import SpecError
from unembed.model import counts
from unembed.model.spec import Learned
from unembed.model.transformer import Transformer
from unembed.verify.claim import Claim, Subject, judged, skipped, tolerance_for, worst_of

NAME = "parity with transformers"
LARGEST = 300_000_000
# Gemma 3 has one full layer in six.
N_LAYERS_OF_A_LARGE_ONE = 6


def claim(subject: Subject) -> Claim:
    """Compares the logits of one text of random ids."""
    if importlib.util.find_spec("transformers") is None:
        return skipped(NAME, "transformers is not installed: pip install transformers")
    try:
        prefers = None if subject.source is None else subject.source.family.name
        model, family, _ = exportable(subject.model, prefers=prefers)
    except SpecError as error:
        return skipped(NAME, str(error).splitlines()[0].removeprefix("export: ")[:200])
    model, layers = _first_layers(model)
    folder = None if subject.source is None else _folder(subject.source)
    with tempfile.TemporaryDirectory() as name:
        if folder is None or layers is not None:
            write_huggingface(model, Path(name), family=family)
            folder = name
        reference = _open(family, Path(folder), model.embed.table.dtype)
        ids = _without_padding(subject.probe(1), model.spec.embedding.position)
        with torch.no_grad():
            ours = model(ids)
            try:
                theirs = reference(input_ids=ids).logits
            except (
                Exception
            ) as error:  # another program's code, which may raise anything, for a model at the edge of its range
                return skipped(
                    NAME, f"transformers itself does not compute this model: {type(error).__name__}: {error}"[:200]
                )
    part = "" if layers is None else f", the first {layers} of {subject.model.spec.n_layers} layers"
    detail = f"logits of {ids.shape[1]} random ids against {family.architecture}{part}"
    # transformers makes its rotary tables and norms in float32 even where the weights are float64
    return judged(
        NAME, worst_of(ours, theirs), tolerance_for(ours.float() if ours.dtype == torch.float64 else ours), detail
    )


def _folder(source: Source) -> str | None:
    """Where transformers can read the file itself: a folder of its own, without a wrapper's words in the names."""
    is_plain = source.format == "huggingface" and list(clean_names({name: name for name in source.tensors})) == list(
        source.tensors
    )
    return source.where if is_plain else None


def _without_padding(ids: Int[Tensor, "batch pos"], position: object) -> Int[Tensor, "batch pos"]:
    """Where positions begin after the padding id (RoBERTa), transformers takes that id for padding wherever it stands."""
    if not isinstance(position, Learned) or not position.offset:
        return ids
    return ids.where(ids != position.offset - 1, position.offset)


def _first_layers(model: Transformer) -> tuple[Transformer, int | None]:
    """The model itself, or its first layers alone, sharing their parameters, and how many they are."""
    spec = model.spec
    if counts.count(spec).parameters <= LARGEST or spec.n_layers <= N_LAYERS_OF_A_LARGE_ONE:
        return model, None
    shorter = msgspec.structs.replace(spec, blocks=spec.blocks[:N_LAYERS_OF_A_LARGE_ONE])
    with torch.device("meta"):
        cut = Transformer(shorter)
    held = dict(model.named_parameters())
    cut.load_state_dict({name: held[name] for name, _ in cut.named_parameters()}, assign=True)
    return cut, N_LAYERS_OF_A_LARGE_ONE


def _open(family: Family, folder: Path, dtype: torch.dtype) -> Any:
    transformers = importlib.import_module("transformers")
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        made = getattr(transformers, family.architecture)
        return made.from_pretrained(folder, dtype=dtype, attn_implementation="eager", local_files_only=True).eval()
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()
