"""`unembed calibration`: how far each layer's reading may be believed, on text that was held out."""

import click

from unembed.cli.looking import looking_command, show
from unembed.cli.models import open_model
from unembed.cli.over_training import over_training_option, refuse_tuned
from unembed.cli.render import write_result


@looking_command("calibration", data=True)
@click.option("--tuned", metavar="FILE", help="A lens of `unembed tune-lens`, measured beside the logit lens.")
@click.option("--tokens", type=int, default=2048, show_default=True, help="Held-out tokens that are read.")
@click.option("--column", metavar="NAME", help="The column of a table that holds the text.")
@over_training_option
def command(
    model: str,
    data: tuple[str, ...],
    tuned: str | None,
    tokens: int,
    column: str | None,
    over_training: bool,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Hold each layer's reading against held-out text: how often its guess is right, and how sure it was.

    An early layer's score is a clue, not what the model believes; this says how good a clue. DATA are files or folders of
    text, of which the last tenth is read; a run needs none.

    Examples:

    \b
        unembed calibration runs/tour
        unembed calibration runs/tour --over-training
        unembed calibration model.gguf book.txt --tuned lens.safetensors --format json
    """
    from unembed.errors import UsageError
    from unembed.lenses.tuned_file import load_lens
    from unembed.views.held_out import calibration_on
    from unembed.views.over_training import every_checkpoint
    from unembed.views.over_training import over_training as through
    from unembed.views.texts import splits_of

    if over_training:
        refuse_tuned(tuned)
    if tokens < 1:
        raise UsageError(f"--tokens is {tokens}; it must be at least 1")
    opened = open_model(model, tokenizer, like, quiet=quiet)
    translators = None if tuned is None else load_lens(tuned, opened)
    view = every_checkpoint(model) if over_training else None
    _, val = splits_of(model, opened, data, column=column)
    if view is not None:
        found = through(view, lambda one: calibration_on(val, one, tokens), table="layers", color="loss_nats")
        write_result(found, output_format)
        return
    found = calibration_on(val, opened, tokens, tuned=translators)
    # the bins and the curves of the picture are for programs: a row a layer says how far to believe it
    show(found, output_format, quiet=quiet, tables={"layers": found.tables["layers"]})
