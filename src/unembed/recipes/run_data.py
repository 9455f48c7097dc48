"""What a run is begun with: its data as ids in its own folder, its tokenizer, and the words for what is wrong with either.

Before it: start.py, which decides whether a run begins or goes on. The next file to read is outcome.py.
"""

import importlib.metadata
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy
import torch

from unembed.checkpoints.files import explaining
from unembed.checkpoints.load import TOKENIZER
from unembed.checkpoints.run.description import RUN_FILE
from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.reading import Reading, reading_of
from unembed.corpora.shards import TokenShards
from unembed.errors import RunError, UsageError
from unembed.recipes import recipe
from unembed.recipes.base import Prepared
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.base import Tokenizer
from unembed.training.config import RunConfig

DATA = "data"
SETTINGS_KEY = "settings"


def refuse_too_short(shards: TokenShards, config: RunConfig) -> None:
    """Refuses data without a single window to learn from, or without a token to predict. Raises: CorpusError."""
    shards.train.sample(config.seed, 0, config.model.context_length)
    next(shards.val.windows(config.model.context_length))


def undo_start(path: Path, was_there: bool) -> None:
    """Takes away what a start has written that came to nothing, so that the same --out can be used again."""
    if not was_there:
        shutil.rmtree(path, ignore_errors=True)
        return
    shutil.rmtree(path / DATA, ignore_errors=True)
    for name in (TOKENIZER, RUN_FILE):
        (path / name).unlink(missing_ok=True)


def prepare(data: list[str], recipe_name: str, settings: Mapping[str, Any], reading: Reading | None) -> Prepared:
    """What a recipe makes of data and settings. Raises: UsageError where it needs text and none is named."""
    chosen = recipe(recipe_name)
    if chosen.needs_data and not data:
        raise UsageError(f"recipe {chosen.name} needs text to train on; name files or folders")
    chosen_reading, others = reading_of(settings, reading)
    return chosen.prepare(data, chosen_reading, others)


def write_data(run: RunFolder, prepared: Prepared) -> TokenShards:
    """The tokenizer first and the shards last: they appear in one instant, so a folder of shards means all is there."""
    run.lock()
    for unfinished in run.path.glob(f".{DATA}.*"):  # of a process that was killed: we hold the lock, so it is gone
        shutil.rmtree(unfinished, ignore_errors=True)
    run.write_text(TOKENIZER, tokenizer_files.to_json(prepared.tokenizer) + "\n")
    with explaining(f"writing the ids into {run.path / DATA}", "The run was not started.", RunError):
        return prepared.write_shards(run.path / DATA)


def write_data_again(run: RunFolder, config: RunConfig, data: list[str], reading: Reading | None) -> None:
    """For a run that was killed before its data was ready: what was decided stands in run.json, the text is read again.

    Raises: RunError when the text has changed so much meanwhile that the model no longer fits it.
    """
    if not data and recipe(config.recipe).needs_data:
        raise RunError(
            f"{run.path / DATA}: is gone, and with it the run's data. Put it back, or name the same files again"
        )
    settings = run.description.get(SETTINGS_KEY, {})
    prepared = prepare(data, config.recipe, settings, reading_of_run(run) or reading)
    if prepared.config.model != config.model:
        raise RunError(
            f"{run.path}: its data was not ready when it was stopped, and what is read now makes another model. Name the "
            "same files, or begin another run"
        )
    write_data(run, prepared)


def reading_of_run(run: RunFolder) -> Reading | None:
    """How the run's text was read; None where its recipe brought its own."""
    noted = run.description.get("data", {}).get("reading")
    return None if noted is None else msgspec.convert(noted, Reading)


def tokenizer_of(run: RunFolder, shards: TokenShards) -> Tokenizer:
    """The run's tokenizer; refused where the ids are not its own: nobody could read what the model writes."""
    tokenizer = tokenizer_files.load(run.path / TOKENIZER)
    if tokenizer_files.fingerprint(tokenizer) != shards.manifest.tokenizer:
        raise RunError(
            f"{run.path / TOKENIZER}: is not the tokenizer that made the ids in {run.path / DATA}. Put the run's own file "
            "back, or begin another run."
        )
    return tokenizer


def versions() -> dict[str, str]:
    """The versions that a run depends on."""
    return {
        "unembed": importlib.metadata.version("unembed"),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
