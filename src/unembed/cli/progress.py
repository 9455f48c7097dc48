"""What a person sees while a run trains: one live line on a terminal, a plain line per interval elsewhere, and a sample
now and then.

The loss is smoothed for the eye; the log holds every number as it was. The next file to read is ../training/loop.py.
"""

import os
import shutil
import sys
import time
from itertools import pairwise
from typing import Any

import click

from unembed.cli.render import CLEAR_LINE, say
from unembed.model.product import measure_flops
from unembed.planning.flops import flops
from unembed.runtime import set_threads
from unembed.training.loop import Trainer
from unembed.visible import visible

PLAIN_EVERY_SECONDS = 10.0
LIVE_EVERY_SECONDS = 0.2
SAMPLE_CHARACTERS = 100
# Below this share of the peak, for so many lines with a speed in a row and so many seconds of steps, threads wait more than
# they work.
LOW_SHARE, LOW_LINES, LOW_SECONDS = 0.1, 2, 10.0
FEWER_THREADS = (
    "hint: the run uses little of this machine's peak; --threads 1 may be faster when other programs are busy"
)
PEAK_EXPLAINED = "% of peak: the share of this machine's float32 matrix speed, measured now, that the training reaches"


def stopping(signal: str) -> str:
    """What is said when a signal comes, by its name, and the step in progress ends first."""
    if signal == "SIGINT":
        return "stopping after this step; press Ctrl-C again to stop now"
    return f"{signal}: stopping after this step"


class Progress:
    """An observer of a trainer that writes to stderr.

    Its line holds the step, the losses, tokens a second, which share of this machine's peak that is, and the time left. The
    peak is measured once, when the first line with a speed is shown, and only then. Tokens are those of all processes that
    train together. While the run goes on, the speed leaves out what came before the first record, which warms up and would
    spoil the time left; the last line tells that of the whole run, as the summary does.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_live = sys.stderr.isatty()
        self._smooth: float | None = None
        self._val: tuple[float, int] | None = None
        self._has_told_peak = False
        self._shown_at = 0.0
        self._sampled_at = 0.0
        self._began: tuple[int, float] | None = None
        self._peak_flops: float | None = None
        self._low_lines, self._has_hinted = 0, False

    def __call__(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Takes a record; shows it if it is time."""
        if self._quiet:
            return
        try:
            if record["split"] == "sample":
                self._show_sample(record)
            else:
                self._show_line(trainer, record)
        except BrokenPipeError:
            self._quiet = True  # whoever looked has gone; the training goes on

    def on_signal(self, name: str) -> None:
        """Says that the step in progress ends first. Called by a signal's handler, maybe amid another write to stderr, whose
        buffer would refuse a second writer: so past that buffer."""
        if self._quiet:
            return
        try:
            os.write(sys.stderr.fileno(), f"{CLEAR_LINE if self._is_live else ''}{stopping(name)}\n".encode())
        except (OSError, ValueError):
            self._quiet = True  # nobody is there to read it

    def _show_line(self, trainer: Trainer, record: dict[str, Any]) -> None:
        if record["split"] == "val":
            self._val = (record["loss_nats"], record["step"])
        else:
            loss = record["loss_nats"]
            self._smooth = loss if self._smooth is None else 0.8 * self._smooth + 0.2 * loss
        if self._began is None:
            self._began = (trainer.tokens, trainer.seconds)
        is_last = trainer.is_finished
        wait = LIVE_EVERY_SECONDS if self._is_live else PLAIN_EVERY_SECONDS
        if not is_last and time.monotonic() - self._shown_at < wait:
            return
        line = self._line(trainer)
        if self._peak_flops is not None and not self._has_told_peak:
            self._has_told_peak = True
            say(PEAK_EXPLAINED)
        if self._is_live:
            # the cursor waits at the line's beginning, so that whatever is said next takes its place
            shown = line[: shutil.get_terminal_size().columns - 1]
            click.echo(CLEAR_LINE + shown, err=True, nl=False)
            click.echo("\n" if is_last and record["split"] == "val" else "\r", err=True, nl=False)
        elif not is_last or record["split"] == "val":
            click.echo(line, err=True)
        self._shown_at = time.monotonic()
        is_low = self._low_lines >= LOW_LINES and not self._has_hinted and not is_last
        if is_low and trainer.seconds - self._began[1] >= LOW_SECONDS:
            self._has_hinted = True
            if set_threads(None) > 1 and trainer.model.embed.table.device.type == "cpu":
                say(FEWER_THREADS)

    def _show_sample(self, record: dict[str, Any]) -> None:
        """One line of what the model wrote, not more often than a plain line; samples.jsonl has them all."""
        if self._sampled_at and time.monotonic() - self._sampled_at < PLAIN_EVERY_SECONDS:
            return
        self._sampled_at = time.monotonic()
        text = visible(record["text"])
        cut = text if len(text) <= SAMPLE_CHARACTERS else text[: SAMPLE_CHARACTERS - 1] + "…"
        say(f"step {record['step']} writes: {cut}")

    def _line(self, trainer: Trainer) -> str:
        training = trainer.config.training
        parts = [f"step {trainer.step_number:>{len(str(training.steps))}}/{training.steps}"]
        if self._smooth is not None:
            parts.append(f"loss {self._smooth:.4f}")
        if self._val is not None:
            loss, step = self._val
            bits = trainer.val.bits_per_byte(loss)
            told = f"val {loss:.4f} nats" + ("" if bits is None else f", {bits:.3f} bits/byte")
            # evaluations are rare: without its step an old one reads like that of the step before it
            parts.append(told if step == trainer.step_number else f"{told} (step {step:,})")
        tokens, seconds = self._began or (0, 0.0)
        if trainer.seconds > seconds and trainer.tokens > tokens:
            speed = (trainer.tokens - tokens) / (trainer.seconds - seconds)
            per_step = training.batch_size * training.accumulate * trainer.config.model.context_length
            left = 0.0 if trainer.is_finished else (training.steps - trainer.step_number) * per_step / speed
            if trainer.is_finished:
                speed = trainer.tokens / trainer.seconds
            n = trainer.processes.n
            together = f" by {n} processes" if n > 1 else ""
            share = self._share(trainer, speed)
            self._low_lines = self._low_lines + 1 if share < LOW_SHARE else 0
            parts += [f"{speed:,.0f} tokens/s{together}", f"{share:.0%} of peak", f"{_duration(left)} left"]
        return " · ".join(parts)

    def _share(self, trainer: Trainer, speed: float) -> float:
        """The operations that the matrix products of a step need, beside what this machine can do of them."""
        if self._peak_flops is None:
            self._peak_flops = measure_flops(trainer.model.embed.table.device.type)
        return speed * flops(trainer.config.model).training / (self._peak_flops * trainer.processes.n)


def _duration(seconds: float) -> str:
    """A time left, in the two largest units that it has.

    >>> [_duration(s) for s in (4.6, 75, 3 * 3600 + 59, 200_000)]
    ['5 s', '1 min 15 s', '3 h 0 min', '2 d 7 h']
    """
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left = round(seconds)
    for (large, size), (small, part) in pairwise(units):
        if left >= size:
            return f"{left // size} {large} {left % size // part} {small}"
    return f"{left} s"
