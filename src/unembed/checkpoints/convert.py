"""A model goes from one format to another: opened as it is, written beside its place, and moved there when it is whole.

    hf      config.json, generation_config.json, weights as safetensors, the tokenizer, a model card
    gguf    one file for llama.cpp: weights and tokenizer
    native  a run folder of one checkpoint, which every command here reads

Numbers keep their bits unless another type is asked for. The next file to read is foreign/export.py.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from unembed.checkpoints.beside import written_beside
from unembed.checkpoints.files import DISK, explaining, write_file
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.foreign.carrying import CONFIG, FILES, LIBRARY, NOTHING, Carried, carried, special_ids_of
from unembed.checkpoints.foreign.export import exportable, write_huggingface
from unembed.checkpoints.foreign.translate import Dtype, as_dtype, named_dtype
from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.load import CONFIG_KEY, CONVERTED_KEY, SPECIAL_IDS, TOKENIZER, find, open_found
from unembed.checkpoints.rules.accounting import listed
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.state import model_tensors
from unembed.errors import CheckpointError, SpecError, UsageError
from unembed.model.spec import TiedHead, UntiedHead
from unembed.model.transformer import Transformer
from unembed.places import check_path
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.library import config_of as tokenizer_config
from unembed.tokenizers.library import to_library
from unembed.visible import in_markdown

FORMATS = ("hf", "gguf", "native")
LEFT_OUT = "left_out"  # of a run.json: tensors of the file it was made of


class Converted(NamedTuple):
    """What was written: the place, how many tensors and parameters, whether the model is tied, what a user should know, and
    the file's tensors that were left out by request.
    """

    written: Path
    tensors: int
    parameters: int
    tied: bool
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: str = "hf",
    dtype: Dtype | str = "file",
    tokenizer: str | Path | None = None,
    like: str | None = None,
    ignore_tensors: Sequence[str] = (),
) -> Converted:
    """Opens a MODEL and writes it at `destination`, which must not exist yet.

    Raises: UsageError when something is there already; CheckpointError, SpecError when the format cannot say what the model
    is; ResourceError when the disk is full. Nothing is left at the destination then.
    """
    place, kind = free_place(destination), named_dtype(dtype)
    found = find(source, like=like, ignore_tensors=ignore_tensors)
    model = open_found(found, tokenizer=tokenizer, dtype="file")
    refuse_shared_otherwise(model, to, str(source))
    if kind != "file":
        narrow(model, kind)
    prefers = None if found.source is None else found.source.family.name
    along = carried(found.source, found.path, tokenizer, model)
    return write_model(model, place, to=to, source=str(source), prefers=prefers, along=along)


def refuse_shared_otherwise(model: Transformer, to: str, source: str) -> None:
    """Refuses a head that no other program's format can say, with the way around it. Raises: SpecError."""
    if to == "native" or isinstance(model.spec.head, TiedHead | UntiedHead):
        return
    kind = model.spec.head.__struct_config__.tag
    raise SpecError(
        f"{source}: its head is {kind}, which no {to} file can say; it can be multiplied out into two plain tables, and the "
        f"function stays the same. First: unembed tie {shlex.quote(source)} --repair untie --out DIR, then convert DIR."
    )


def narrow(model: Transformer, dtype: Dtype) -> None:
    """Casts every parameter. Raises: CheckpointError naming those that hold numbers too large for the type."""
    for name, parameter in model.named_parameters():
        cast = as_dtype(parameter.data, dtype)
        if bool((parameter.data.isfinite() & ~cast.isfinite()).any()):
            largest = float(parameter.data.abs().max())
            raise CheckpointError(
                f"{name}: its largest number is {largest:.3g}, which {str(cast.dtype).removeprefix('torch.')} cannot hold; "
                "it would become infinite. Choose bfloat16 or float32."
            )
        parameter.data = cast


def free_place(destination: str | Path) -> Path:
    """The place to write at. Raises: UsageError when something is there already, or nothing can ever be."""
    if not isinstance(destination, str | Path) or not str(destination):
        raise UsageError(f"the destination is {repr(destination)[:60]}, expected the path to write at")
    place = Path(destination)
    if os.path.lexists(place):
        raise UsageError(f"{place}: exists already; name a new place, nothing is overwritten")
    check_path(place, UsageError)
    return place


def write_model(
    model: Transformer, place: Path, *, to: str, source: str, prefers: str | None = None, along: Carried = NOTHING
) -> Converted:
    """Writes a model in memory at a free place; `prefers` names the family whose form is taken where several can say it,
    `along` what goes with its tokenizer.

    Raises: as `convert`.
    """
    assert to in FORMATS, to
    notes = [] if model.load_report is None else list(model.load_report.warnings)
    left_out = _left_out(model)
    if left_out:
        n = len(left_out)
        notes.append(f"{n} {'tensor' if n == 1 else 'tensors'} left out: {listed([short(one) for one in left_out])}")
    with written_beside(place) as temporary:
        match to:
            case "hf":
                with explaining(f"making {place}", f"{place} was not written.", CheckpointError):
                    DISK.make_folder(temporary)
                n_tensors, n_numbers, more = _huggingface(model, temporary, source, prefers, along)
            case "native":
                n_tensors, n_numbers, more = _native(model, temporary, source)
                more += along.lost("a run folder")
            case _:
                n_tensors, n_numbers, more = gguf_export.write(model, temporary, name=Path(source).name, along=along)
    return Converted(
        written=place.resolve(),
        tensors=n_tensors,
        parameters=n_numbers,
        tied=model.spec.ties_embeddings,
        notes=(*notes, *more),
        left_out=left_out,
    )


def _left_out(model: Transformer) -> tuple[str, ...]:
    return () if model.load_report is None else model.load_report.left_out


def _huggingface(
    model: Transformer, folder: Path, source: str, prefers: str | None, along: Carried
) -> tuple[int, int, list[str]]:
    left_out = _left_out(model)
    model, family, note = exportable(model, prefers=prefers, where=Path(source).name)
    ids = special_ids_of(model, along)  # transformers looks for them in both files
    tensors = write_huggingface(model, folder, family=family, special_ids=ids)
    _put(folder / "generation_config.json", {"_from_model_config": True, **ids})
    notes = [note] if note else []
    copied = along.copy(folder)
    if model.tokenizer is None and not copied:
        notes.append("no tokenizer is known for this model, so none was written")
    elif model.tokenizer is not None and LIBRARY not in copied:
        notes += _tokenizer(model, model.tokenizer, folder, along, copied)
    has_tokenizer = any((folder / name).is_file() for name in FILES)
    card = model_card(model, family.architecture, source, has_tokenizer=has_tokenizer, left_out=left_out)
    write_file(
        folder / "README.md", [card.encode()], consequence="The model card was not written.", kind=CheckpointError
    )
    return len(tensors), sum(tensor.numel() for tensor in tensors.values()), notes


def _tokenizer(model: Transformer, tokenizer: Tokenizer, folder: Path, along: Carried, copied: set[str]) -> list[str]:
    """Writes a tokenizer.json, and its config where none was copied; gives what there is to say."""
    if (values := to_library(tokenizer)) is None:
        if copied:
            return []
        return [
            f"the {tokenizer.kind} tokenizer has no exact form in the tokenizers library, so none was written; commands on "
            "what was written read it from the source with --tokenizer SOURCE"
        ]
    _put(folder / LIBRARY, values)
    if CONFIG in copied:
        return []
    more, notes = along.for_library(tokenizer)
    _put(folder / CONFIG, tokenizer_config(tokenizer, model.spec.context_length) | more)
    return notes


def _native(model: Transformer, folder: Path, source: str) -> tuple[int, int, list[str]]:
    description: dict[str, Any] = {CONFIG_KEY: {"model": msgspec.to_builtins(model.spec)}, CONVERTED_KEY: source}
    if model.special_ids:
        description[SPECIAL_IDS] = model.special_ids
    if left_out := _left_out(model):
        description[LEFT_OUT] = list(left_out)
    with RunFolder.create(folder, description=description) as run:
        if model.tokenizer is not None:
            tokenizer_files.save(model.tokenizer, run.path / TOKENIZER)
        weights = model_tensors(model)
        run.save_checkpoint(0, weights=weights, optimizer={}, state={"step": 0})
    notes = [] if model.tokenizer is not None else ["no tokenizer is known for this model, so none was written"]
    return len(weights), sum(tensor.numel() for tensor in weights.values()), notes


def model_card(
    model: Transformer, architecture: str, source: str, *, has_tokenizer: bool = False, left_out: Sequence[str] = ()
) -> str:
    """The README.md of an exported model: what it is, in numbers, and how to open it."""
    spec = model.spec
    rows = {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "layers": spec.n_layers,
        "width": spec.embedding.d_model,
        "vocabulary": f"{spec.embedding.vocab_size:,}",
        "context": f"{spec.context_length:,}",
        "head": "tied to the embedding" if spec.ties_embeddings else "a table of its own",
        "tokenizer": "none" if model.tokenizer is None else model.tokenizer.kind,
        **({"left out": listed([in_markdown(one) for one in left_out])} if left_out else {}),
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    name = in_markdown(Path(source).name or "model")
    auto = "AutoModelForCausalLM" if spec.is_causal else "AutoModelForMaskedLM"
    names = f"{auto}, AutoTokenizer" if has_tokenizer else auto
    tokenizer = 'tokenizer = AutoTokenizer.from_pretrained(".")\n' if has_tokenizer else ""
    return (
        f"---\nlibrary_name: transformers\n---\n\n# {name}\n\nWritten by unembed for transformers ({architecture}).\n\n"
        f"| | |\n|---|---|\n{table}\n\n```python\nfrom transformers import {names}\n\n"
        f'model = {auto}.from_pretrained(".")\n{tokenizer}```\n'
    )


def _put(path: Path, values: Mapping[str, Any]) -> None:
    data = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    write_file(path, [data], consequence=f"{path.name} was not written.", kind=CheckpointError)
