"""Carrying out a recipe: start a run or take one up, train it, and say what came of it.

The data is encoded once, into the run's own folder, so a run goes on even when the text it came from has moved. The next
file to read is outcome.py.
"""

import importlib.metadata
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy
import torch

from unembed.checkpoints.files import explaining
from unembed.checkpoints.load import CONFIG_KEY, THREADS_KEY, TOKENIZER, open_run
from unembed.checkpoints.run_folder import RUN_FILE, RunFolder, refuse_occupied
from unembed.checkpoints.start_ids import start_ids
from unembed.corpora.reading import Reading, reading_of
from unembed.corpora.shards import TokenShards
from unembed.errors import CheckpointError, RunError, UsageError
from unembed.model.init import build
from unembed.optim.schedules import learning_rate
from unembed.places import check_path
from unembed.recipes import recipe
from unembed.recipes.advice import tell
from unembed.recipes.base import Prepared
from unembed.recipes.outcome import Outcome, opening, outcome, verdict
from unembed.recipes.refusals import refuse_absent, refuse_another_run, refuse_converted
from unembed.recipes.small import check_minutes
from unembed.recipes.threads import Threads, choose_threads
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.base import Tokenizer
from unembed.training.config import RunConfig, config_of, with_settings
from unembed.training.loop import Trainer
from unembed.training.profile import Profile, no_profile
from unembed.training.run_parts import lost_history
from unembed.training.samples import Sampler
from unembed.training.tensorboard import EventWriter, require_tensorboard
from unembed.training.watching import Observer
from unembed.tying.watch import TableWatch

DATA = "data"
SETTINGS_KEY = "settings"
Say = Callable[[str], None]


def train(
    data: Sequence[str | Path] = (),
    *,
    recipe_name: str,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    reading: Reading | None = None,
    resume: bool = False,
    command: str = "",
    device: str = "cpu",
    threads: Threads = None,
    observers: Sequence[Observer] = (),
    say: Say = lambda sentence: None,
    on_signal: Say = lambda name: None,
    profile: Profile | None = None,
) -> Outcome:
    """Trains a run by a recipe and leaves it in the folder `out`.

    With `resume` an existing run goes on from its newest complete checkpoint; where there is none it starts again, and
    where there is no run it begins one. `say` is handed sentences for the user, `on_signal` the name of a signal as it
    comes (see training/signals.py). `threads` are torch's: a number, "auto" for what the run deserves (threads.py), None
    for those that are set. A `profile` is filled, and what it says is said. Raises: RunError when a run is in the way; what
    Trainer.run raises.
    """
    settings = dict(settings or {})
    if not str(out):
        raise UsageError("out is empty; name the folder that the run is to be kept in")
    check_path(out, RunError)
    begins = not (resume and RunFolder.exists(out))
    if not begins:
        run, config = _take_up(Path(out), settings, reading, say)
        why_steps = ""
    else:
        if resume:
            refuse_absent(out, data, recipe_name)
        run, config, why_steps = _begin([str(d) for d in data], recipe_name, Path(out), settings, reading, command, say)
    with run:
        run.lock()  # before anything is read that another process may be writing
        if begins:
            n_threads = choose_threads(threads, config, None, device, say)
            run.write_description({**run.description, THREADS_KEY: n_threads})
        elif threads != "auto" or THREADS_KEY in run.description:
            choose_threads(threads, config, run.description.get(THREADS_KEY), device, say)
        if not (run.path / DATA).is_dir():
            _write_data_again(run, config, [str(d) for d in data], reading)
        shards = TokenShards.open(run.path / DATA)
        tokenizer = _tokenizer_of(run, shards)
        model = build(config.model, config.init, seed=config.seed).to(device)
        model.tokenizer, model.start_ids = tokenizer, start_ids(run, tokenizer)
        # a model that sees both ways cannot go on with a text
        sampler = Sampler(config.seed) if config.model.is_causal else None
        with ExitStack() as watching:
            watch = TableWatch(model, **msgspec.structs.asdict(config.training.tying))
            given: dict[str, Any] = {"run": run, "observers": observers, "sampler": sampler, "watch": watch}
            trainer = Trainer(model, config, shards.train, shards.val, **given, profile=profile or no_profile)
            _restore(run, trainer, say)
            if profile is not None:
                profile.begins(trainer.step_number, trainer.tokens)
                watching.callback(tell, trainer, profile, say)
            if config.training.tensorboard:
                writer = watching.enter_context(EventWriter(run.path, run.metrics()))
                trainer.observers = (*trainer.observers, writer)
            for sentence in opening(trainer, why_steps):
                say(sentence)
            trainer.run(on_signal)
        for sentence in verdict(trainer, run.path):
            say(sentence)
        return outcome(trainer, run.path)


def _begin(
    data: list[str],
    recipe_name: str,
    out: Path,
    settings: Mapping[str, Any],
    reading: Reading | None,
    command: str,
    say: Say,
) -> tuple[RunFolder, RunConfig, str]:
    """The run, its settings, and why it has so many steps, where its recipe chose them."""
    refuse_occupied(out)  # before the data is looked at, which may take minutes
    prepared = _prepare(data, recipe_name, settings, reading)
    if prepared.config.training.tensorboard:
        require_tensorboard()
    for note in prepared.notes:
        say(note)
    description = {
        CONFIG_KEY: msgspec.to_builtins(prepared.config),
        SETTINGS_KEY: dict(settings),
        "data": dict(prepared.data),
        "floors": dict(prepared.floors),
        "versions": versions(),
        "command": command,
    }
    was_there = out.is_dir()
    run = RunFolder.create(out, description=description)
    try:
        _refuse_too_short(_write_data(run, prepared), prepared.config)
    except BaseException:
        _undo(run.path, was_there)  # still under the lock: what another process begins here meanwhile is not ours
        run.close()
        raise
    return run, prepared.config, prepared.why_steps


def _refuse_too_short(shards: TokenShards, config: RunConfig) -> None:
    """Refuses data without a single window to learn from, or without a token to predict. Raises: CorpusError."""
    shards.train.sample(config.seed, 0, config.model.context_length)
    next(shards.val.windows(config.model.context_length))


def _undo(path: Path, was_there: bool) -> None:
    """Takes away what a start has written that came to nothing, so that the same --out can be used again."""
    if not was_there:
        shutil.rmtree(path, ignore_errors=True)
        return
    shutil.rmtree(path / DATA, ignore_errors=True)
    for name in (TOKENIZER, RUN_FILE):
        (path / name).unlink(missing_ok=True)


def _prepare(data: list[str], recipe_name: str, settings: Mapping[str, Any], reading: Reading | None) -> Prepared:
    chosen = recipe(recipe_name)
    if chosen.needs_data and not data:
        raise UsageError(f"recipe {chosen.name} needs text to train on; name files or folders")
    chosen_reading, others = reading_of(settings, reading)
    return chosen.prepare(data, chosen_reading, others)


def _write_data(run: RunFolder, prepared: Prepared) -> TokenShards:
    """The tokenizer first and the shards last: they appear in one instant, so a folder of shards means all is there."""
    run.lock()
    for unfinished in run.path.glob(f".{DATA}.*"):  # of a process that was killed: we hold the lock, so it is gone
        shutil.rmtree(unfinished, ignore_errors=True)
    run.write_text(TOKENIZER, tokenizer_files.to_json(prepared.tokenizer) + "\n")
    with explaining(f"writing the ids into {run.path / DATA}", "The run was not started.", RunError):
        return prepared.write_shards(run.path / DATA)


def _write_data_again(run: RunFolder, config: RunConfig, data: list[str], reading: Reading | None) -> None:
    """For a run that was killed before its data was ready: what was decided stands in run.json, the text is read again.

    Raises: RunError when the text has changed so much meanwhile that the model no longer fits it.
    """
    if not data and recipe(config.recipe).needs_data:
        raise RunError(
            f"{run.path / DATA}: is gone, and with it the run's data. Put it back, or name the same files again"
        )
    settings = run.description.get(SETTINGS_KEY, {})
    prepared = _prepare(data, config.recipe, settings, _reading_of_run(run) or reading)
    if prepared.config.model != config.model:
        raise RunError(
            f"{run.path}: its data was not ready when it was stopped, and what is read now makes another model. Name the "
            "same files, or begin another run"
        )
    _write_data(run, prepared)


def _reading_of_run(run: RunFolder) -> Reading | None:
    """How the run's text was read; None where its recipe brought its own."""
    noted = run.description.get("data", {}).get("reading")
    return None if noted is None else msgspec.convert(noted, Reading)


def _tokenizer_of(run: RunFolder, shards: TokenShards) -> Tokenizer:
    """The run's tokenizer; refused where the ids are not its own: nobody could read what the model writes."""
    tokenizer = tokenizer_files.load(run.path / TOKENIZER)
    if tokenizer_files.fingerprint(tokenizer) != shards.manifest.tokenizer:
        raise RunError(
            f"{run.path / TOKENIZER}: is not the tokenizer that made the ids in {run.path / DATA}. Put the run's own file "
            "back, or begin another run."
        )
    return tokenizer


def _take_up(out: Path, settings: Mapping[str, Any], reading: Reading | None, say: Say) -> tuple[RunFolder, RunConfig]:
    run = open_run(out)
    refuse_converted(run)
    saved = config_of(run.description, out)
    asked, settings = reading_of(settings, reading)
    if asked not in (Reading(), _reading_of_run(run)):
        say("the text was read when the run began; column, newlines and invalid_bytes stay as they were")
    begun_with = run.description.get(SETTINGS_KEY, {})
    if "minutes" in settings and settings["minutes"] != begun_with.get("minutes"):
        check_minutes(settings["minutes"])
        raise UsageError(f"{out}: minutes can only be given when a run begins. Give --steps to go on longer")
    # the same command again says nothing new, and some of its settings (the tour's language) only a recipe knows
    changed = with_settings(saved, {k: v for k, v in settings.items() if k not in begun_with or begun_with[k] != v})
    refuse_another_run(out, saved, changed)
    newest, _ = run.latest()
    if newest is not None and changed.training.steps < newest.step:
        # the total is reached: the run is reported as it is, and what it was told stays as it stands
        say(f"steps={changed.training.steps:,} is below the {newest.step:,} that are done, so it is ignored; give more")
        return run, changed
    if changed.training.tensorboard:
        require_tensorboard()
    if changed != saved:
        now = {CONFIG_KEY: msgspec.to_builtins(changed), SETTINGS_KEY: {**begun_with, **settings}}
        run.write_description({**run.description, **now})
        say("the settings differ from the run's own; the new ones hold from here on")
        if newest is not None and _is_stretched(saved, changed, newest.step):
            say(
                f"the learning rate's schedule now spans {changed.training.steps:,} steps instead of "
                f"{saved.training.steps:,}; the {newest.step:,} steps done had the rates of the old total, so this is not the "
                "run that would have been begun with the new one"
            )
    return run, changed


def _is_stretched(saved: RunConfig, changed: RunConfig, n_done: int) -> bool:
    """Whether a new total would have given the steps done other rates; in a warm-up or on a plateau it would not."""
    if n_done == 0:
        return False
    rates = [learning_rate(one.training.schedule, n_done - 1, one.training.steps) for one in (saved, changed)]
    return changed.training.steps != saved.training.steps and rates[0] != rates[1]


def _restore(run: RunFolder, trainer: Trainer, say: Say) -> None:
    checkpoint, messages = run.latest()
    for message in messages:
        say(message)
    if checkpoint is None:
        run.truncate_logs(-1)
        return
    where, state = str(checkpoint.path), checkpoint.state
    if state.get("step") != checkpoint.step:
        raise CheckpointError(
            f"{where}/state.json: is the state of step {state.get('step')!r}, not {checkpoint.step}; was it edited?"
        )
    try:
        trainer.resume(checkpoint.weights(), checkpoint.optimizer(), state, where)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{where}/state.json: lacks what a run goes on with ({error}); was it edited?") from error
    if why := lost_history(run, checkpoint.step):
        say(why)
    run.truncate_logs(checkpoint.step)
    is_done = trainer.is_finished
    say(f"the run is finished at step {checkpoint.step}" if is_done else f"going on after step {checkpoint.step}")


def versions() -> dict[str, str]:
    """The versions that a run depends on."""
    return {
        "unembed": importlib.metadata.version("unembed"),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
