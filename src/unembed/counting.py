"""The spec of whatever a user names, found without loading a weight: what `unembed count` and `plan` start from.

It imports no torch for our own: a preset is data, and a run's description is JSON. The next file to read is model/counts.py.
"""

import json
from pathlib import Path

from unembed.errors import CheckpointError, did_you_mean
from unembed.model.check import from_plain
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import TransformerSpec


def spec_of_model(model: str | Path) -> TransformerSpec:
    """The description of a preset, a run folder, a checkpoint in one, or another program's file.

    A folder wins over a preset of the same name. Raises: CheckpointError, SpecError.
    """
    path = Path(model)
    for folder in (path, path.parent.parent) if path.is_dir() else ():
        file = folder / "run.json"
        if file.is_file():
            try:
                return from_plain(json.loads(file.read_text(encoding="utf-8"))["config"]["model"])
            except (ValueError, KeyError, TypeError) as error:
                raise CheckpointError(f"{file}: holds no model under config.model, as training writes it") from error
    if str(model) in PRESETS:
        return preset(str(model)).spec
    if path.exists() and (found := _described(path)) is not None:
        return found
    if path.exists():
        raise CheckpointError(f"{path}: is no run. Give a run folder, or a preset such as gpt2.")
    beside = [str(one) for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    hint = did_you_mean(str(path), [*beside, *PRESETS], "Give a run folder, or a preset such as gpt2.", cutoff=0.6)
    raise CheckpointError(f"{path}: there is no such run, and no preset of that name. {hint}")


def _described(path: Path) -> TransformerSpec | None:
    """What another program's files describe, or None for other paths; only here are weights looked at, for the tie."""
    from unembed.checkpoints.load import open_source
    from unembed.checkpoints.translate import describe

    source = open_source(path)
    return None if source is None else describe(source).spec
