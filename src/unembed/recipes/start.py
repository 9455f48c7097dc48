"""Carrying out a recipe: start a run or take one up, train it, and say what came of it.

The data is encoded once, into the run's own folder, so a run goes on even when the text it came from has moved. The next
file to read is outcome.py.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from unembed.checkpoints.load import CONFIG_KEY, THREADS_KEY, open_run
from unembed.checkpoints.run.folder import RunFolder, refuse_occupied
from unembed.checkpoints.run.start_ids import start_ids
from unembed.corpora.reading import Reading, reading_of
from unembed.corpora.shards import TokenShards
from unembed.errors import CheckpointError, RunError, UsageError
from unembed.optim.schedules import learning_rate
from unembed.places import check_path
from unembed.recipes.advice import tell
from unembed.recipes.memory import keep_to_plan
from unembed.recipes.outcome import Outcome, opening, outcome, verdict
from unembed.recipes.refusals import refuse_absent, refuse_another_run, refuse_converted
from unembed.recipes.run_data import (
    DATA,
    SETTINGS_KEY,
    prepare,
    reading_of_run,
    refuse_too_short,
    tokenizer_of,
    undo_start,
    versions,
    write_data,
    write_data_again,
)
from unembed.recipes.small import check_minutes
from unembed.recipes.threads import Threads, choose_threads
from unembed.recipes.together import after_a_loss, check_together, open_shared, refuse_early
from unembed.training.config import RunConfig, config_of, with_settings
from unembed.training.loop import Trainer
from unembed.training.parallel import Parallel
from unembed.training.processes import Processes, joined
from unembed.training.profile import Profile, no_profile
from unembed.training.run_parts import lost_history
from unembed.training.samples import Sampler
from unembed.training.tensorboard import EventWriter, require_tensorboard
from unembed.training.watching import Observer
from unembed.tying.watch import TableWatch

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
    tunes_memory: bool = False,
) -> Outcome:
    """Trains a run by a recipe and leaves it in the folder `out`.

    With `resume` an existing run goes on from its newest complete checkpoint; where there is none it starts again, and
    where there is no run it begins one. `say` is handed sentences for the user, `on_signal` the name of a signal as it
    comes (see training/signals.py). `threads` are torch's: a number, "auto" for what the run deserves (threads.py), None
    for those that are set. A `profile` is filled, and what it says is said. `tunes_memory` tunes the process
    (memory.py). Raises: RunError when a run is in the way; what Trainer.run raises.
    """
    settings = dict(settings or {})
    if not str(out):
        raise UsageError("out is empty; name the folder that the run is to be kept in")
    check_path(out, RunError)
    refuse_early(settings, os.environ, begins=not (resume and RunFolder.exists(out)))
    with joined(os.environ, device) as processes:
        if not processes.is_first:
            observers, say, on_signal = (), _silent, _silent
        asked = _Asked([str(d) for d in data], recipe_name, Path(out), settings, reading, resume, command)
        place = f"cuda:{processes.local_rank}" if device == "cuda" and processes.is_launched else device
        run, config, why_steps = _ready(asked, processes, place, threads, say)
        with run, processes.telling_of_the_lost(lambda: after_a_loss(run.path, processes.program)):
            if tunes_memory and place == "cpu":
                keep_to_plan(config, n_processes=processes.n_local)
            return _carry_out(run, config, why_steps, processes, place, observers, say, on_signal, profile)


class _Asked(NamedTuple):
    """What was asked for, as it came."""

    data: list[str]
    recipe: str
    out: Path
    settings: dict[str, Any]
    reading: Reading | None
    resume: bool
    command: str


def _silent(sentence: str) -> None:
    """What a process says that is not the first."""


def _ready(
    asked: _Asked, processes: Processes, device: str, threads: Threads, say: Say
) -> tuple[RunFolder, RunConfig, str]:
    """The run, begun or taken up by the first process, and its data; the others open what is there then."""
    here: list[RunFolder] = []

    def make_ready() -> dict[str, Any]:
        begins = not (asked.resume and RunFolder.exists(asked.out))
        if begins and asked.resume:
            refuse_absent(asked.out, asked.data, asked.recipe)
        run, config, why_steps = _begin(asked, processes, device, say) if begins else _take_up(asked, say)
        here.append(run)
        check_together(config, processes, device)
        run.lock()  # before anything is read that another process may be writing
        if begins:
            n_threads = choose_threads(threads, config, None, device, say)
            run.write_description({**run.description, THREADS_KEY: n_threads})
        if not (run.path / DATA).is_dir():
            write_data_again(run, config, asked.data, asked.reading)
        return {"config": msgspec.to_builtins(config), "why_steps": why_steps, "begins": begins}

    try:
        word = processes.first(make_ready)
        run = here[0] if here else open_shared(asked.out, processes)
        config = msgspec.convert(word["config"], RunConfig)
        if not (word["begins"] and processes.is_first) and (threads != "auto" or THREADS_KEY in run.description):
            choose_threads(threads, config, run.description.get(THREADS_KEY), device, say)
        return run, config, word["why_steps"]
    except BaseException:
        for begun in here:
            begun.close()
        raise


def _carry_out(
    run: RunFolder,
    config: RunConfig,
    why_steps: str,
    processes: Processes,
    device: str,
    observers: Sequence[Observer],
    say: Say,
    on_signal: Say,
    profile: Profile | None,
) -> Outcome:
    """Trains what is ready, and says what came of it."""
    shards = TokenShards.open(run.path / DATA)
    tokenizer = tokenizer_of(run, shards)
    training = config.training
    parallel = Parallel(training.parallel, processes, precision=training.precision, device=device)
    model = parallel.build(config.model, config.init, seed=config.seed)
    model.tokenizer, model.start_ids = tokenizer, start_ids(run, tokenizer)
    # a model that sees both ways cannot go on with a text
    sampler = Sampler(config.seed) if config.model.is_causal else None
    with ExitStack() as watching:
        watch = TableWatch(model, group=processes, **msgspec.structs.asdict(training.tying))
        given: dict[str, Any] = {"run": run, "observers": observers, "sampler": sampler, "watch": watch}
        given |= {"parallel": parallel, "profile": profile or no_profile}
        trainer = Trainer(model, config, shards.train, shards.val, **given)
        _restore(run, trainer, say)
        if profile is not None:
            profile.begins(trainer.step_number, trainer.tokens)
            watching.callback(tell, trainer, profile, say)
        if training.tensorboard and processes.is_first:
            writer = watching.enter_context(EventWriter(run.path, run.metrics()))
            trainer.observers = (*trainer.observers, writer)
        for sentence in opening(trainer, why_steps):
            say(sentence)
        trainer.run(on_signal)
    for sentence in verdict(trainer, run.path):
        say(sentence)
    return outcome(trainer, run.path)


def _begin(asked: _Asked, processes: Processes, device: str, say: Say) -> tuple[RunFolder, RunConfig, str]:
    """The run, its settings, and why it has so many steps, where its recipe chose them."""
    data, recipe_name, out, settings, reading, _, command = asked
    refuse_occupied(out)  # before the data is looked at, which may take minutes
    prepared = prepare(data, recipe_name, settings, reading)
    if prepared.config.training.tensorboard:
        require_tensorboard()
    check_together(prepared.config, processes, device)
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
        refuse_too_short(write_data(run, prepared), prepared.config)
    except BaseException:
        undo_start(run.path, was_there)  # still under the lock: what another process begins here meanwhile is not ours
        run.close()
        raise
    return run, prepared.config, prepared.why_steps


def _take_up(asked: _Asked, say: Say) -> tuple[RunFolder, RunConfig, str]:
    out, settings, reading = asked.out, asked.settings, asked.reading
    run = open_run(out)
    refuse_converted(run)
    saved = config_of(run.description, out)
    how, settings = reading_of(settings, reading)
    if how not in (Reading(), reading_of_run(run)):
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
        return run, changed, ""
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
    return run, changed, ""


def _is_stretched(saved: RunConfig, changed: RunConfig, n_done: int) -> bool:
    """Whether a new total would have given the steps done other rates; in a warm-up or on a plateau it would not."""
    if n_done == 0:
        return False
    rates = [learning_rate(one.training.schedule, n_done - 1, one.training.steps) for one in (saved, changed)]
    return changed.training.steps != saved.training.steps and rates[0] != rates[1]


def _restore(run: RunFolder, trainer: Trainer, say: Say) -> None:
    processes, newest = trainer.processes, run.latest if trainer.processes.is_first else None

    def choose() -> int | None:
        assert newest is not None
        checkpoint, messages = newest()
        for message in messages:
            say(message)
        if checkpoint is None:
            run.truncate_logs(-1)
        return None if checkpoint is None else checkpoint.step

    step = processes.first(choose)  # who reads every byte to find the newest whole one
    if step is None:
        return
    checkpoint = run.checkpoint_of(step)
    where, state = str(checkpoint.path), checkpoint.state
    if state.get("step") != step:
        raise CheckpointError(
            f"{where}/state.json: is the state of step {state.get('step')!r}, not {step}; was it edited?"
        )
    try:
        weights, moments = trainer.parallel.tensors_of(checkpoint)
        trainer.resume(weights, moments, state, where)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{where}/state.json: lacks what a run goes on with ({error}); was it edited?") from error
    if why := lost_history(run, step):
        say(why)
    if processes.is_first:
        run.truncate_logs(step)
    say(f"the run is finished at step {step}" if trainer.is_finished else f"going on after step {step}")
    if step >= trainer.config.training.steps:
        say("a larger total of --steps would go on from there")
