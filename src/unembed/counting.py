"""The spec of whatever a user names, found without loading a weight: what `unembed count` and `plan` start from.

It imports no torch for our own: a preset is data, and a run's description is JSON. The next file to read is model/counts.py.
"""

from collections.abc import Sequence
from pathlib import Path

from unembed.errors import CheckpointError, SpecError, UsageError
from unembed.model.check import from_plain, parse_json
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import TransformerSpec
from unembed.model_names import what_a_model_is, why_no_model
from unembed.places import check_path, refuse_like


def spec_of_model(model: str | Path, *, like: str | None = None, ignore_tensors: Sequence[str] = ()) -> TransformerSpec:
    """The description of a preset, a run folder, a checkpoint in one, or another program's file.

    A folder wins over a preset of the same name. Raises: CheckpointError, SpecError.
    """
    if not isinstance(model, str | Path) or not str(model).strip():
        raise UsageError(what_a_model_is(model))
    path = Path(model)
    check_path(path, CheckpointError)
    if ignore_tensors != ():  # only another program's files have any
        from unembed.checkpoints.load import find

        find(path, like=like, ignore_tensors=ignore_tensors)
    for folder in (path, path.resolve().parent.parent) if path.is_dir() else ():
        file = folder / "run.json"
        check_path(file, CheckpointError)
        if file.is_dir():
            raise CheckpointError(
                f"{file}: is a folder, expected the file that training writes. Was the run copied by hand?"
            )
        if file.is_file():
            refuse_like(path, like)
            return _spec_of_run(file)
    if str(model) in PRESETS:
        refuse_like(path, like)
        return preset(str(model)).spec
    if path.exists() and (found := _described(path, like, ignore_tensors)) is not None:
        return found
    raise CheckpointError(why_no_model(path, PRESETS))


def _described(path: Path, like: str | None, ignore_tensors: Sequence[str]) -> TransformerSpec | None:
    """What another program's files describe, or None for other paths; only here are weights looked at, for the tie and
    because a model that is not all there would be counted as if it were.
    """
    from unembed.checkpoints.foreign.whole import described_whole
    from unembed.checkpoints.load import open_source

    source = open_source(path, like)
    return None if source is None else described_whole(source._replace(ignored=tuple(ignore_tensors))).spec


def _spec_of_run(file: Path) -> TransformerSpec:
    try:
        plain = parse_json(file.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{file}: is not the JSON that was written there: {error}") from error
    try:
        return from_plain(plain["config"]["model"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{file}: holds no model under config.model, as training writes it") from error
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error
