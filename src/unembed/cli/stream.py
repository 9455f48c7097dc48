"""`unembed stream`: what each block adds to the residual stream, attention and MLP apart."""

import click

from unembed.cli.looking import looking_command, read_ids, show
from unembed.cli.models import open_model


@looking_command("stream", "text")
@click.option(
    "--position", type=int, metavar="N", help="At this position alone, from 0; the mean over all unless given."
)
def command(
    model: str,
    text: str,
    position: int | None,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Show what each block of MODEL adds to the residual stream on TEXT: how long the update is, and whether it points along
    what is there (cosine_to_stream) and along what comes out in the end (cosine_to_final).

    Examples:

    \b
        unembed stream runs/tour "the girls near the boy"
        unembed stream runs/tour "the girls near the boy" --position 4 --format csv
    """
    from unembed.lenses.stream import stream

    loaded = open_model(model, tokenizer, like, quiet=quiet)
    found = stream(loaded, read_ids("stream", loaded, text, quiet=quiet), position=position)
    show(found, output_format, quiet=quiet, tables={"stream": found.tables["stream"]})
