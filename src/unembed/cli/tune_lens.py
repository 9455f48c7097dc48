"""`unembed tune-lens`: trains a translator for each layer, so that the lens asks a layer in its own language."""

import time

import click

from unembed.cli.looking import looking_command
from unembed.cli.models import open_model
from unembed.cli.render import say, write_result


@looking_command("tune-lens", data=True)
@click.option("--out", metavar="FILE", required=True, help="Where the lens is written, a .safetensors file.")
@click.option("--resume", is_flag=True, help="Go on with a training that was stopped.")
@click.option("--steps", type=int, help="Steps after the closed-form start (default: 200, with a large vocabulary 40).")
@click.option("--rows", type=int, help="Positions in a step (default: as many as suit the vocabulary).")
@click.option("--window", type=int, help="Tokens in a window (default: the model's context, at most 128).")
@click.option(
    "--start-tokens", type=int, help="Tokens read for the start (default: 8192, or 16 a number of the stream)."
)
@click.option(
    "--learning-rate", type=float, help="Of the first step (default: 0.2, with a large vocabulary 0.03); it falls to 0."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of positions.")
@click.option(
    "--held-out-tokens",
    type=int,
    default=1024,
    show_default=True,
    help="Tokens that it is scored on, in whole windows (at least one).",
)
@click.option("--column", metavar="NAME", help="The column of a table that holds the text.")
def command(
    model: str,
    data: tuple[str, ...],
    out: str,
    resume: bool,
    steps: int | None,
    rows: int | None,
    window: int | None,
    start_tokens: int | None,
    learning_rate: float | None,
    seed: int,
    held_out_tokens: int,
    column: str | None,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Train a tuned lens for MODEL on DATA and write it to --out; `unembed lens MODEL TEXT --tuned FILE` reads through it.

    DATA are files or folders of text; a run needs none, it has its own. The last tenth is held out, and the result tells
    how far each layer is from the model's answer there, with the tuned lens and without. The model is not changed.

    Examples:

    \b
        unembed tune-lens runs/tour --out tour-lens.safetensors
        unembed tune-lens model.gguf book.txt --steps 30 --out lens.safetensors
    """
    from pathlib import Path

    from unembed.cli.progress import PLAIN_EVERY_SECONDS, stopping
    from unembed.errors import UsageError
    from unembed.lenses.tuned_lens import settings_for
    from unembed.recipes.tuning import Tuning, tune
    from unembed.views.texts import splits_of

    if held_out_tokens < 1:
        raise UsageError(f"--held-out-tokens is {held_out_tokens}; it must be at least 1")
    opened = open_model(model, tokenizer, like, quiet=quiet)
    train, val = splits_of(model, opened, data, column=column)
    settings = settings_for(
        opened,
        steps=steps,
        rows=rows,
        window=window,
        start_tokens=start_tokens,
        learning_rate=learning_rate,
        seed=seed,
    )
    shown_at, began = [0.0], time.monotonic()

    def notice(step: int, kl_nats: float) -> None:
        now = time.monotonic()
        if step < settings.steps and now - shown_at[0] < PLAIN_EVERY_SECONDS:
            return
        shown_at[0] = now
        left = (now - began) / step * (settings.steps - step)
        say(f"step {step}/{settings.steps} · mean divergence {kl_nats:.4f} nats · {left:.0f} s left", quiet=quiet)

    tuning = Tuning(opened, train, val, settings, Path(out))
    found = tune(
        tuning,
        resume=resume,
        held_out_tokens=held_out_tokens,
        notice=notice,
        say=lambda sentence: say(sentence, quiet=quiet),
        on_signal=lambda name: say(stopping(name), quiet=quiet),
    )
    write_result(found, output_format)
