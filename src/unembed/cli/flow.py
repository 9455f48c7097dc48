"""`unembed flow`: how much of the gradient reaches each depth, of a model or of three that show why shortcuts exist."""

import click

from unembed.cli.looking import looking_command
from unembed.cli.models import open_model
from unembed.cli.over_training import over_training_option
from unembed.cli.render import say, write_result
from unembed.errors import UsageError


@looking_command("flow", data=True, needs_model=False)
@click.option(
    "--compare", is_flag=True, help="Train the same deep model with, without and beside its shortcut instead."
)
@click.option("--layers", type=int, help="With --compare: how deep (default 48).")
@click.option("--steps", type=int, help="With --compare: how many steps (default 200).")
@over_training_option
def command(
    model: str | None,
    data: tuple[str, ...],
    compare: bool,
    layers: int | None,
    steps: int | None,
    over_training: bool,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Measure the gradient by depth: of the stream after each layer of MODEL, and of each layer's parameters.

    DATA are files or folders of text, of which the last tenth is read; a run needs none. With --compare no MODEL is given:
    three models of 48 layers are trained for 200 steps, without warm-up, that differ in nothing but how a block meets the
    stream (pre_norm, no_shortcut, post_norm).

    Examples:

    \b
        unembed flow runs/tour
        unembed flow model.gguf book.txt --format json
        unembed flow --compare
    """
    if compare:
        if over_training:
            raise UsageError("--over-training goes through a run's checkpoints; --compare trains models that have none")
        if model is not None:
            raise UsageError(f"--compare trains models of its own; leave out {model!r}")
        from unembed.recipes.depth import N_LAYERS, N_STEPS, compare_depth

        def notice(variant: str, step: int, loss_nats: float) -> None:
            if step % 50 == 0:
                say(f"{variant}: step {step}, loss {loss_nats:.4f}", quiet=quiet)

        found = compare_depth(
            n_layers=N_LAYERS if layers is None else layers, n_steps=N_STEPS if steps is None else steps, notice=notice
        )
        write_result(found, output_format)
        return
    if model is None:
        raise UsageError("MODEL is missing; name a model, or give --compare for three that are trained here")
    if layers is not None or steps is not None:
        raise UsageError("--layers and --steps belong to --compare; a MODEL has the layers that it has")
    from unembed.views.held_out import flow_on
    from unembed.views.over_training import every_checkpoint
    from unembed.views.over_training import over_training as through
    from unembed.views.texts import splits_of

    opened = open_model(model, tokenizer, like, quiet=quiet)
    _, val = splits_of(model, opened, data)
    if over_training:
        view = every_checkpoint(model)
        found = through(view, lambda one: flow_on(val, one), table="flow", color="stream_grad_log10")
    else:
        found = flow_on(val, opened)
    write_result(found, output_format)
