"""What a run is going to do, what it came to, and where its best lies: sentences for people, and one record for programs.

The next file to read is ../training/loop.py.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unembed.checkpoints.run import native
from unembed.model.counts import count
from unembed.optim.muon import MuonConfig
from unembed.recipes.memory import memory_sentence
from unembed.training.loop import Trainer
from unembed.visible import counted


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to: the keys of `unembed train --format json`. `seconds` counts steps alone.

    `val_loss_nats` was measured at `val_step`, which is before `step` where a run was interrupted. `stopped` is `steps` when
    all are done, `early` when the validation loss stopped getting better, else null. `best_step` has a checkpoint.
    `val_bits_per_byte` is the same loss per byte of the text, so that runs with different tokenizers can be compared.
    """

    run: str
    step: int
    tokens: int
    seconds: float
    tokens_per_second: float | None
    val_loss_nats: float | None
    val_bits_per_byte: float | None
    parameters: int
    context_length: int
    val_step: int | None
    best_step: int | None
    best_val_loss_nats: float | None
    stopped: str | None


def opening(trainer: Trainer, why: str = "") -> Iterator[str]:
    """What is said before the first step: the model's size, what is going to be done, and what could not be done as asked."""
    if trainer.is_finished:
        return
    sizes = trainer.group_sizes
    told = f"weight decay applies to {sizes.decayed:,} of them, and not to {sizes.undecayed:,}"
    yield f"{count(trainer.config.model).parameters:,} parameters: {told} (norms' gains, biases)"
    if isinstance(muon := trainer.config.training.optimizer, MuonConfig):
        yield (
            f"optimizer: Muon for the blocks' matrices, learning rate {muon.matrix_learning_rate:g} at its peak; AdamW for the "
            "tables and all else"
        )
    yield plan(trainer, why)
    is_alone = trainer.model.embed.table.device.type == "cpu" and trainer.processes.n == 1
    if is_alone and (memory := memory_sentence(trainer.config)):
        yield memory
    if trainer.processes.n > 1 and trainer.config.training.dropout > 0:
        yield (
            f"dropout is drawn by each of the {trainer.processes.n} processes for itself: another number of them drops other "
            "entries, and trains a little otherwise. --set dropout=0 makes the number of processes make no difference"
        )
    if trainer.config.training.compile:
        yield "compiling the blocks; this takes a while, and the steps are faster then"
    trainer.prepare()
    if trainer.why_not_compiled is not None:
        yield (
            f"warning: compile=true, but the blocks cannot be compiled here: {trainer.why_not_compiled}. "
            "The run goes on without, at the usual speed"
        )


def plan(trainer: Trainer, why: str = "") -> str:
    """What is going to be done, from the run's real settings and data, and why where somebody chose it."""
    training, context_length = trainer.config.training, trainer.config.model.context_length
    per_step = training.batch_size * training.accumulate * context_length
    epochs = training.steps * per_step / len(trainer.train)
    times = f"{epochs:.1f}" if epochs >= 1 else f"{epochs:.2g}"
    at_most = "at most " if training.early_stop else ""
    n_all = len(trainer.train) + len(trainer.val)
    return (
        f"training: {at_most}{training.steps:,} steps of {per_step:,} tokens, {times} times the {len(trainer.train):,} "
        f"tokens to learn from, of {n_all:,} (a tenth is held out)" + (f": {why}" if why else "")
    )


def verdict(trainer: Trainer, path: Path) -> list[str]:
    """Why a run ended before its last step, and where the best of it lies when that is not the end."""
    said, training, validation = [], trainer.config.training, trainer.validation
    if trainer.stops_early and trainer.step_number < training.steps:
        said.append(
            f"stopped early after step {trainer.step_number:,} of {training.steps:,}: "
            f"{counted(validation.n_worse, 'evaluation')} in a row {'was' if validation.n_worse == 1 else 'were'} no better "
            "than the best; --resume --set early_stop=0 goes on"
        )
    if validation.best_step is not None and validation.best_step < trainer.step_number:
        best = path / "checkpoints" / native.folder_name(validation.best_step)
        open_it = f": unembed sample {shlex.quote(str(best))}" if best.is_dir() else ""
        said.append(
            f"the best validation loss, {validation.best_loss_nats:.4f} nats, was that of step "
            f"{validation.best_step:,}{open_it}"
        )
    return said


def outcome(trainer: Trainer, path: Path) -> Outcome:
    """Sums a trainer's work up."""
    speed = trainer.tokens / trainer.seconds if trainer.seconds > 0 else None
    loss = trainer.validation.loss_nats
    return Outcome(
        run=str(path.resolve()),
        step=trainer.step_number,
        tokens=trainer.tokens,
        seconds=trainer.seconds,
        tokens_per_second=speed,
        val_loss_nats=loss,
        val_bits_per_byte=None if loss is None else trainer.val.bits_per_byte(loss),
        parameters=count(trainer.config.model).parameters,
        context_length=trainer.config.model.context_length,
        val_step=trainer.validation.step,
        best_step=trainer.validation.best_step,
        best_val_loss_nats=trainer.validation.best_loss_nats,
        stopped=_why_ended(trainer),
    )


def _why_ended(trainer: Trainer) -> str | None:
    if trainer.step_number >= trainer.config.training.steps:
        return "steps"
    return "early" if trainer.stops_early else None
