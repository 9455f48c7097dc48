"""What a person sees while a run trains: one live line on a terminal, a plain line per interval elsewhere.

The loss is smoothed for the eye; the log holds every number as it was.
"""

import shutil
import sys
import time
from typing import Any

import click

from unembed.cli.render import CLEAR_LINE
from unembed.training.loop import Trainer

PLAIN_EVERY_SECONDS = 10.0
LIVE_EVERY_SECONDS = 0.2


class Progress:
    """An observer of a trainer that writes to stderr: step, loss, validation loss, tokens a second, time left."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_live = sys.stderr.isatty()
        self._smooth: float | None = None
        self._val: float | None = None
        self._shown_at = 0.0
        self._began: tuple[int, float] | None = None

    def __call__(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Takes a record; shows it if it is time."""
        if self._quiet:
            return
        if record["split"] == "val":
            self._val = record["loss_nats"]
        else:
            loss = record["loss_nats"]
            self._smooth = loss if self._smooth is None else 0.8 * self._smooth + 0.2 * loss
        if self._began is None:
            self._began = (trainer.tokens, trainer.seconds)
        steps = trainer.config.training.steps
        is_last = trainer.step_number == steps
        wait = LIVE_EVERY_SECONDS if self._is_live else PLAIN_EVERY_SECONDS
        if not is_last and time.monotonic() - self._shown_at < wait:
            return
        self._shown_at = time.monotonic()
        line = self._line(trainer, steps)
        try:
            if self._is_live:
                # the cursor waits at the line's beginning, so that whatever is said next takes its place
                shown = line[: shutil.get_terminal_size().columns - 1]
                click.echo(CLEAR_LINE + shown, err=True, nl=False)
                click.echo("\n" if is_last and record["split"] == "val" else "\r", err=True, nl=False)
            elif not is_last or record["split"] == "val":
                click.echo(line, err=True)
        except BrokenPipeError:
            self._quiet = True  # whoever looked has gone; the training goes on

    def _line(self, trainer: Trainer, steps: int) -> str:
        parts = [f"step {trainer.step_number:>{len(str(steps))}}/{steps}"]
        if self._smooth is not None:
            parts.append(f"loss {self._smooth:.4f}")
        if self._val is not None:
            parts.append(f"val {self._val:.4f} nats")
        tokens, seconds = self._began or (0, 0.0)
        if trainer.seconds > seconds:
            speed = (trainer.tokens - tokens) / (trainer.seconds - seconds)
            training = trainer.config.training
            per_step = training.batch_size * training.accumulate * trainer.config.model.context_length
            left = (steps - trainer.step_number) * per_step / speed
            parts += [f"{speed:,.0f} tokens/s", f"{left:.0f} s left"]
        return " · ".join(parts)
