"""Any MODEL that a user may name, as a model in memory: a run, a checkpoint in one, another program's files, or a preset.

The weights in memory are the weights in the file; nothing is folded, centred or guessed. Parameters are made without
memory and take over the mapped file, so a model is never held twice. The next file to read is foreign/translate.py, for
files of other programs, or ../training/loop.py for how a run's come to be.
"""

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.gguf import open_gguf
from unembed.checkpoints.foreign.single_files import MICROGPT, open_bin, open_torch
from unembed.checkpoints.foreign.translate import Dtype, Source, as_dtype, named_dtype, translate
from unembed.checkpoints.formats.gguf.read import is_gguf
from unembed.checkpoints.formats.pickles import refuse_pickle, why_unsafe
from unembed.checkpoints.rules.ignoring import checked
from unembed.checkpoints.run.description import RUN_FILE
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.intact import open_checkpoint
from unembed.checkpoints.run.native import MANIFEST, WEIGHTS, Checkpoint
from unembed.checkpoints.run.start_ids import start_ids
from unembed.errors import CheckpointError, DamageWarning, RunError, SpecError, UsageError
from unembed.model.check import from_plain
from unembed.model.init import Gpt2Init, build
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import TransformerSpec
from unembed.model.transformer import Transformer
from unembed.model_names import what_a_model_is, why_no_model
from unembed.places import check_path, refuse_like, shown
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers import foreign

TOKENIZER = "tokenizer.json"
CONVERTED_KEY = "converted_from"  # in the run.json of a folder that convert wrote
CONFIG_KEY = "config"
THREADS_KEY = "threads"  # of the CPU, when the run began: sums are rounded by it
SPECIAL_IDS = "special_ids"
# What analyses and the report read of a description, if it is there.
_NAMES = {dict: "an object", str: "a text", int: "a whole number", int | float: "a number"}
_TYPES = (
    ("config.seed", int),
    ("command", str),
    ("data.grammar", dict),
    ("data.grammar.language", str),
    ("data.grammar.size", str),
    ("floors.entropy_floor", int | float),
)


class Found(NamedTuple):
    """What a MODEL turned out to be: another program's files, a checkpoint of a run, or the name of a preset."""

    path: Path
    source: Source | None = None
    run: RunFolder | None = None
    checkpoint: Checkpoint | None = None
    preset: str | None = None


def load(
    model: str | Path,
    *,
    step: int | None = None,
    tokenizer: str | Path | None = None,
    like: str | None = None,
    dtype: Dtype | str = None,
    ignore_tensors: Sequence[str] = (),
) -> Transformer:
    """Opens a MODEL: a run folder (its newest complete checkpoint, or that of `step`), a checkpoint folder, a folder or file
    of another program, or a preset.

    `.tokenizer` is the one that made the run's ids, the one found in or beside another program's file, or that of the file
    `tokenizer`; a preset has none, and random weights (seed 0). `like` names the preset whose shape a microGPT .bin has.
    `dtype` is as foreign/translate.py says, "file" for files of one type alone; `ignore_tensors` names tensors of another
    program's file that the model does without, `*` standing for any part of a name; `.load_report` tells what was decided.
    Warns: DamageWarning where the newest checkpoint is damaged and an older one is taken.
    Raises: CheckpointError when nothing of that name is a model, or its weights and its spec do not agree; UsageError for
    a step of what has none.
    """
    found = find(model, step, like=like, ignore_tensors=ignore_tensors)
    opened = open_found(found, tokenizer=tokenizer, dtype=dtype)
    kinds = Counter(str(parameter.dtype).removeprefix("torch.") for parameter in opened.parameters())
    if len(kinds) > 1:  # a product of two types is an error of torch's; convert, which computes nothing, keeps them
        mixed = " and ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        raise UsageError(
            f"{shown(model)}: dtype is file, and the file mixes types ({mixed} tensors), which no model computes with. Leave "
            "dtype out, and all become the widest of them, exactly; or name one type"
        )
    return opened


def find(
    model: str | Path, step: int | None = None, *, like: str | None = None, ignore_tensors: Sequence[str] = ()
) -> Found:
    """Looks what a MODEL is, without building it. Raises: as `load`."""
    ignored = checked(ignore_tensors)
    found = _find(model, step, like)
    if not ignored:
        return found
    if found.source is None:
        raise UsageError(
            f"{shown(model)}: is our own, so none of its tensors is surplus; tensors are ignored (--ignore-tensor) in other "
            "programs' files. Leave it out"
        )
    return found._replace(source=found.source._replace(ignored=ignored))


def _find(model: str | Path, step: int | None, like: str | None) -> Found:
    if not isinstance(model, str | Path) or not str(model).strip():
        raise UsageError(what_a_model_is(model))
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
        raise UsageError(f"step is {step!r}; it must be a whole number, 0 or more")
    if like is not None and not isinstance(like, str):
        raise UsageError(f"like is {repr(like)[:60]}, expected the name of a preset")
    path = Path(model)
    check_path(path, CheckpointError)
    if path.is_dir() and RunFolder.exists(path):
        refuse_like(path, like)
        run = RunFolder.open(path)
        return Found(path, run=run, checkpoint=_checkpoint_of(run, step))
    if step is not None:
        raise UsageError(f"{path}: step {step} was asked for, but only a run folder has checkpoints to choose from")
    if (source := open_source(path, like)) is not None:
        return Found(path, source=source)
    folder = path.parent if path.name == WEIGHTS and path.is_file() else path  # a checkpoint's own weights name it too
    above = folder.resolve().parent.parent  # resolved: "step-000100", named from inside, has no parents of its own
    if folder.is_dir() and RunFolder.exists(above):
        refuse_like(path, like)
        return Found(folder, run=RunFolder.open(above), checkpoint=open_checkpoint(folder))
    if str(model) in PRESETS:
        refuse_like(path, like)
        return Found(path, preset=str(model))
    raise CheckpointError(_why_no_model(path))


def open_found(found: Found, *, tokenizer: str | Path | None = None, dtype: Dtype | str = None) -> Transformer:
    """Builds the model of what was found. Raises: as `load`."""
    dtype = named_dtype(dtype)
    if tokenizer is not None and not isinstance(tokenizer, str | Path):
        raise UsageError(f"tokenizer is {repr(tokenizer)[:60]}, expected the path of a tokenizer's file")
    if found.source is not None:
        return _foreign(found.source, found.path, tokenizer, dtype)
    if found.run is not None and found.checkpoint is not None:
        model = load_checkpoint(found.run, found.checkpoint)
    else:
        assert found.preset is not None
        model = build(preset(found.preset).spec, Gpt2Init(std=0.02), seed=0)
    if tokenizer is not None:
        model.tokenizer = tokenizer_files.load(tokenizer, vocab_size=model.spec.embedding.vocab_size)
    if dtype is None and any(parameter.dtype == torch.float64 for parameter in model.parameters()):
        dtype = torch.float64  # of mixed types the widest, as of other programs' files
    for parameter in model.parameters():
        if (cast := as_dtype(parameter.data, dtype)) is not parameter.data:
            parameter.data = cast
    return model


def open_source(path: Path, like: str | None = None) -> Source | None:
    """What another program left at a path, or None where nothing is, or something of our own.

    Raises: CheckpointError; UsageError where `like` is given and the file says itself what shape it has.
    """
    source = _opened(path, like)
    if source is not None and source.family.name != MICROGPT:
        refuse_like(path, like)
    return source


def _opened(path: Path, like: str | None) -> Source | None:
    if path.is_dir() and os.path.lexists(path / huggingface.CONFIG):
        return huggingface.open_folder(path)
    if is_gguf(path):  # by its first bytes, whatever its name: no other kind of file begins so
        return open_gguf(path)
    if path.is_file() and path.suffix == ".safetensors" and not (path.parent / MANIFEST).is_file():
        return huggingface.open_file(path)
    if path.is_file() and path.suffix == ".bin" and why_unsafe(path) is None:
        return open_bin(path, like)
    if path.is_file() and path.suffix in (".pt", ".pth", ".ckpt", ".bin"):
        has_config = path.suffix == ".bin" and (path.parent / huggingface.CONFIG).is_file()
        return huggingface.open_file(path) if has_config else open_torch(path)
    return None


def _foreign(source: Source, path: Path, tokenizer: str | Path | None, dtype: Dtype) -> Transformer:
    model = translate(source, dtype=dtype)
    beside = path if path.is_dir() else path.parent
    size = model.spec.embedding.vocab_size
    if tokenizer is not None:
        model.tokenizer = tokenizer_files.load(tokenizer, vocab_size=size)
    elif source.tokenizer is not None:
        model.tokenizer = source.tokenizer
    elif (there := foreign.find(beside, size)) is not None:
        model.tokenizer = tokenizer_files.load(there)
    return model


def load_checkpoint(run: RunFolder, checkpoint: Checkpoint) -> Transformer:
    """The model of one checkpoint of a run, with the run's tokenizer. Raises: CheckpointError, SpecError."""
    found = model_from_tensors(spec_of(run), checkpoint.weights(), where=str(checkpoint.path))
    found.special_ids = run.description.get(SPECIAL_IDS)
    tokenizer = run.path / TOKENIZER
    if tokenizer.is_file():
        found.tokenizer = tokenizer_files.load(tokenizer)
        found.start_ids = start_ids(run, found.tokenizer)
    return found


def open_run(path: str | Path) -> RunFolder:
    """Opens a run that training made. Raises: RunError also where run.json has other types than training writes."""
    run = RunFolder.open(path)
    for key in (CONFIG_KEY, "settings", "data", "floors", "versions"):
        if not isinstance(run.description.get(key, {}), dict):
            found = repr(run.description[key])[:40]
            raise RunError(f"{run.path / RUN_FILE}: {key} is {found}, expected an object; was it edited?")
    for where, kind in _TYPES:
        value: Any = run.description
        for key in where.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise RunError(
                f"{run.path / RUN_FILE}: {where} is {repr(value)[:40]}, expected {_NAMES[kind]}; was it edited?"
            )
    return run


def spec_of(run: RunFolder) -> TransformerSpec:
    """The description of a run's model. Raises: CheckpointError when run.json holds none."""
    try:
        return from_plain(run.description[CONFIG_KEY]["model"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{run.path / RUN_FILE}: holds no model under config.model, as training writes it"
        ) from error
    except SpecError as error:
        raise SpecError(f"{run.path / RUN_FILE}: {error}") from error


def model_from_tensors(spec: TransformerSpec, weights: dict[str, Tensor], *, where: str) -> Transformer:
    """A model whose parameters are the given tensors themselves.

    Raises: CheckpointError naming what is missing, left over, or of another shape; nothing stays at a random value.
    """
    with torch.device("meta"):
        model = Transformer(spec)
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    missing, surplus = sorted(set(wanted) - set(weights)), sorted(set(weights) - set(wanted))
    if missing or surplus:
        raise CheckpointError(
            f"{where}: {len(missing)} parameters have no tensor {missing[:4]}, and {len(surplus)} tensors have no "
            f"parameter {surplus[:4]}. The spec and the file must be of one model."
        )
    for name, shape in wanted.items():
        if tuple(weights[name].shape) != shape:
            raise CheckpointError(
                f"{where}: {name} has shape {list(weights[name].shape)}, the spec implies {list(shape)}"
            )
    model.load_state_dict(weights, assign=True)
    return model


def _checkpoint_of(run: RunFolder, step: int | None) -> Checkpoint:
    if step is None:
        newest, messages = run.latest()
        if newest is None:
            raise CheckpointError(
                f"{shown(run.path)}: no checkpoint is complete. Train on with --resume.\n" + "\n".join(messages[:3])
            )
        if messages:
            warnings.warn(f"{shown(run.path)}: {'; '.join(messages)}", DamageWarning, stacklevel=4)
        return newest
    there = {checkpoint.step: checkpoint for checkpoint in run.checkpoints()}
    if step not in there:
        raise CheckpointError(f"{run.path}: no complete checkpoint of step {step}; there are {sorted(there)}")
    return there[step]


def _why_no_model(path: Path) -> str:
    if path.is_file():
        refuse_pickle(path)
    return why_no_model(path, PRESETS)
