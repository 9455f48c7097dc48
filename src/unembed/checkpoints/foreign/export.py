"""A model goes out as another program reads it: the first family that can say exactly what the spec says writes it.

"Exactly" is checked, not hoped for: the config that a family writes is read back, and must give the spec again. Tensors
keep every bit and their type. The next file to read is gguf_export.py.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from unembed.checkpoints.families import FAMILIES
from unembed.checkpoints.families.base import Family, read_spec
from unembed.checkpoints.files import DISK, FileLayer, write_file
from unembed.checkpoints.foreign.huggingface import CONFIG, INDEX, WEIGHTS
from unembed.checkpoints.foreign.translate import TIE_KEY
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.errors import CheckpointError, SpecError
from unembed.model import counts
from unembed.model.presets.row import EVERY_BIAS
from unembed.model.spec import LayerNorm, Norm, TiedHead, TransformerSpec, UntiedHead, with_tying
from unembed.model.transformer import Transformer

# transformers' own limit for one file of a sharded checkpoint is 50 GB now and was 5 GB for long
SHARD_BYTES = 5 * 10**9


def family_for(spec: TransformerSpec, *, prefers: str | None = None, where: str = "export") -> Family:
    """The first family (the preferred one before all others) whose config says exactly what the spec says.

    Raises: SpecError when none does, with what comes nearest and where it differs.
    """
    why: dict[str, str] = {}
    for family in sorted(FAMILIES, key=lambda family: family.name != prefers):
        if not family.model_types:
            continue
        if (reason := why_not(family, spec)) is None:
            return family
        why[family.name] = reason
    raise SpecError(
        f"{where}: no family of transformers describes this model exactly: "
        + "; ".join(f"{name}: {reason}" for name, reason in list(why.items())[:4])
        + ". Keep it as a run; for a run that goes out as a GPT-2, train with --recipe nanogpt-cpu."
    )


def exportable(
    model: Transformer, *, prefers: str | None = None, where: str = "export"
) -> tuple[Transformer, Family, str]:
    """The model in a form that some family of transformers describes exactly, as `in_a_form` gives it."""
    return in_a_form(model, lambda spec: family_for(spec, prefers=prefers, where=where))


def in_a_form(model: Transformer, choose: Callable[[TransformerSpec], Family]) -> tuple[Transformer, Family, str]:
    """The model in a form that a family describes exactly, that family, and a sentence where the form is another one.

    Raises: SpecError as `choose`, about the model as it came.
    """
    filled, family, why = form_of(model.spec, choose)
    if not why:
        return model, family, why
    weights: dict[str, Tensor] = dict(model.named_parameters())
    for tensor in counts.tensors(filled):
        if tensor.name not in weights:
            assert tensor.kind == "bias"
            weights[tensor.name] = torch.zeros(tensor.shape, dtype=model.embed.table.dtype)
    with torch.device("meta"):
        made = Transformer(filled)
    made.load_state_dict(weights, assign=True)
    made.tokenizer, made.special_ids = model.tokenizer, model.special_ids
    return made, family, why


def form_of(spec: TransformerSpec, choose: Callable[[TransformerSpec], Family]) -> tuple[TransformerSpec, Family, str]:
    """What `in_a_form` does to a description, without a weight.

    Formats without a way to say "no bias" (GPT-2's) take biases of zero: another description of the same function.
    Raises: SpecError as `choose`, about the spec as it came.
    """
    try:
        return spec, choose(spec), ""
    except SpecError as error:
        filled = with_every_bias(spec)
        try:
            family = choose(filled)
        except SpecError:
            raise error from None
    return filled, family, f"biases of zero were added, because {family.name} files cannot say that there are none"


def with_every_bias(spec: TransformerSpec) -> TransformerSpec:
    """The same model with a bias wherever attention, MLP or LayerNorm could have one."""

    def biased(norm: Norm | None) -> Norm | None:
        return replace(norm, has_bias=True) if isinstance(norm, LayerNorm) else norm

    blocks = tuple(
        replace(
            block,
            attention=replace(block.attention, biases=EVERY_BIAS),
            mlp=replace(block.mlp, has_bias=True),
            norm=biased(block.norm),
        )
        for block in spec.blocks
    )
    return replace(spec, blocks=blocks, final_norm=biased(spec.final_norm))


def why_not(family: Family, spec: TransformerSpec) -> str | None:
    """What a family cannot say of a spec, or None if it says all of it."""
    try:
        config = family.write(spec)
        back = read_spec(family, ConfigReader(json.loads(json.dumps(config)), family=family.name, where="export"))
    except (CheckpointError, SpecError, AttributeError, TypeError, KeyError) as error:
        # a writer may ask a spec for a part that another shape does not have
        return f"has no {error}" if isinstance(error, AttributeError) else str(error).removeprefix("export: ")[:80]
    if not isinstance(spec.head, TiedHead | UntiedHead):
        return f"has no head of type {spec.head.__struct_config__.tag}"
    return first_difference(with_tying(spec, False), back)


def first_difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Where two specs first differ, as `blocks.0.mlp.activation is 'relu', not 'gelu'`; None if they are equal."""
    if ours == theirs:
        return None
    if type(ours) is type(theirs) and isinstance(ours, tuple) and len(ours) == len(theirs):
        pairs = [(str(index), a, b) for index, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    elif type(ours) is type(theirs) and hasattr(ours, "__struct_fields__"):
        pairs = [(name, getattr(ours, name), getattr(theirs, name)) for name in ours.__struct_fields__]
    else:
        return f"{path or 'spec'} would be {_short(theirs)}, not {_short(ours)}"
    found = (first_difference(a, b, f"{path}.{name}".lstrip(".")) for name, a, b in pairs)
    return next(filter(None, found), None)


# Config classes have ids of their own for these, which a smaller vocabulary may lack; transformers warns of them.
_NO_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def config_of(family: Family, spec: TransformerSpec, dtype: str) -> dict[str, Any]:
    """The whole config.json of a spec in a family."""
    return {
        "architectures": [family.architecture],
        "model_type": family.model_types[0],
        **_NO_IDS,
        **family.write(spec),
        TIE_KEY: spec.ties_embeddings,
        "dtype": dtype,
    }


def write_huggingface(
    model: Transformer,
    folder: Path,
    *,
    family: Family,
    special_ids: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
    files: FileLayer = DISK,
) -> dict[str, Tensor]:
    """Writes config.json and the weights into an existing folder; gives the tensors that were written, by their names there.

    `special_ids` go into the config: the ids of start, end and padding.
    Raises: CheckpointError, ResourceError when a file cannot be written.
    """
    spec = model.spec
    repeats = [one for one in family.duplicates if one.is_written_if_untied and not spec.ties_embeddings]
    tensors = {
        name: tensor.contiguous()
        for name, tensor in to_theirs(family.rules(spec), dict(model.named_parameters()), repeats).items()
    }
    shards = split(tensors, shard_bytes)
    names = (
        [WEIGHTS]
        if len(shards) == 1
        else [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    )
    for name, shard in zip(names, shards, strict=True):
        _write(folder / name, encode_tensors(shard, label=name), files)
    if len(shards) > 1:
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        _write(folder / INDEX, [_json(index)], files)
    _write(
        folder / CONFIG,
        [_json(config_of(family, spec, declared_type(tensors.values())) | dict(special_ids or {}))],
        files,
    )
    return tensors


def declared_type(tensors: Iterable[Tensor]) -> str:
    """The narrowest type that holds every number of the tensors: transformers casts all of them to what config.json says.

    >>> declared_type([torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.float16)])
    'float32'
    """
    return str(reduce(torch.promote_types, [tensor.dtype for tensor in tensors])).removeprefix("torch.")


def split(tensors: Mapping[str, Tensor], limit_bytes: int) -> list[dict[str, Tensor]]:
    """Distributes tensors over files of at most `limit_bytes`, in order; a larger tensor gets a file of its own."""
    shards: list[dict[str, Tensor]] = [{}]
    room = limit_bytes
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = limit_bytes
        shards[-1][name] = tensor
        room -= size
    return shards


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _write(path: Path, chunks: Any, files: FileLayer) -> None:
    write_file(path, chunks, consequence=f"{path.name} was not written.", kind=CheckpointError, files=files)


def _short(value: Any) -> str:
    text = (
        value
        if isinstance(value, str)
        else type(value).__name__
        if hasattr(value, "__struct_fields__")
        else "absent"
        if value is None
        else repr(value)
    )
    return text if len(text) <= 40 else text[:37] + "..."
