"""`unembed plan`: what training would take on devices that you may not have yet."""

import click

from unembed.cli.models import ignore_option, ignored_tensors
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, html_option, quiet_option, say, write_result
from unembed.errors import UsageError


@click.command(name="plan", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", shell_complete=complete_model)
@click.option("--devices", type=int, default=1, show_default=True, help="How many devices train together.")
@click.option(
    "--device",
    type=click.Choice(["h100", "a100", "4090", "cpu"]),
    default="h100",
    show_default=True,
    help="Their kind; cpu measures the cores of this machine, one process for each device.",
)
@click.option(
    "--parallel",
    type=click.Choice(["ddp", "fsdp"]),
    help="How several devices share the work: a whole model on each, or a part (default: fsdp).",
)
@click.option("--batch-size", type=int, help="Sequences of one micro-batch on one device (default: as many as fit).")
@click.option("--context", "context_length", type=int, help="Tokens of a sequence (default: the model's own length).")
@click.option("--accumulate", type=int, default=1, show_default=True, help="Micro-batches of one step.")
@click.option(
    "--checkpoint/--no-checkpoint", "checkpoints", default=False, help="Run each block again on the way back."
)
@click.option("--compile/--no-compile", "compiles", default=False, help="Join passes over tensors with torch.compile.")
@click.option(
    "--chunked/--plain-loss", "chunked", default=False, help="Hold no more than a piece of the logits at once."
)
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), help="Type of products (default: bfloat16; cpu: float32)."
)
@click.option("--tokens", type=int, help="Tokens of the whole run (default: 20 for each parameter).")
@click.option("--price", type=float, help="US dollars for one device and hour (default: a list price of 2025).")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of each process on cpu (default: the cores, shared out)."
)
@click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
@ignore_option
@html_option
@format_option
@quiet_option
def command(
    model: str,
    devices: int,
    device: str,
    parallel: str | None,
    batch_size: int | None,
    context_length: int | None,
    accumulate: int,
    checkpoints: bool,
    compiles: bool,
    chunked: bool,
    dtype: str | None,
    tokens: int | None,
    price: float | None,
    threads: int | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Plan the training of MODEL: memory of each device by part, the largest micro-batch, operations, talk between the
    devices, seconds of a step, utilisation, days and cost.

    The model of cost, its constants, and how far it was off from published runs: docs/scale.md.

    Examples:

    \b
        unembed plan llama-3-8b --devices 8 --device h100 --chunked --checkpoint
        unembed plan gpt2 --device cpu --batch-size 4 --context 256
    """
    from unembed.counting import spec_of_model
    from unembed.planning.plan import TOKENS_PER_PARAMETER, as_result, plan, what_would_fit
    from unembed.planning.setup import SCORES_AT_ONCE, plain_setup

    spec = spec_of_model(model, like=like, ignore_tensors=ignored_tensors())
    setup = plain_setup(
        devices=devices,
        parallel=parallel or ("fsdp" if devices > 1 else "none"),
        batch_size=1 if batch_size is None else batch_size,
        context_length=spec.context_length if context_length is None else context_length,
        accumulate=accumulate,
        dtype=dtype or ("float32" if device == "cpu" else "bfloat16"),
        recomputed=1.0 if checkpoints else 0.0,
        compiles=compiles,
        scores_at_once=SCORES_AT_ONCE if chunked else None,
    )
    if price is not None and not 0 <= price < float("inf"):
        raise UsageError(f"--price is {price}; it must be a number of US dollars, 0 or more")
    found = plan(
        spec,
        setup,
        device=device,
        tokens=tokens,
        price=price,
        threads=threads,
        fills=batch_size is None,
        notice=lambda sentence: say(sentence, quiet=quiet),
    )
    if not found.fits:
        room, needed = found.memory_bytes, found.memory.peak
        fed = f"{found.setup.batch_size} x {found.setup.context_length:,} tokens"
        hint = what_would_fit(spec, found.setup, room, on_cores=device == "cpu")
        say(
            f"it does not fit: {fed} take {needed / 1e9:,.1f} GB of a device, and {room / 1e9:,.1f} GB are there. {hint}",
            quiet=quiet,
        )
    write_result(as_result(found), output_format)
    if tokens is None:
        say(f"the run is {TOKENS_PER_PARAMETER} tokens for each parameter; give --tokens for another", quiet=quiet)
    if device != "cpu":
        say(
            "of 23 published runs such plans were off by 8 % in the median and by 77 % at worst (docs/scale_runs.md)",
            quiet=quiet,
        )
