"""`unembed attribute`: one score, divided among the parts of the model so that they add up to it."""

import click

from unembed.cli.looking import looking_command, read_ids, show
from unembed.cli.models import open_model


@looking_command("attribute", "text")
@click.option("--target", metavar="TEXT", help="The token whose score is explained; the best-scored one unless given.")
@click.option("--against", metavar="TEXT", help="Explain how far the target's score lies above this token's.")
@click.option(
    "--position", type=int, metavar="N", help="Where the score is read, from 0; the last position unless given."
)
def command(
    model: str,
    text: str,
    target: str | None,
    against: str | None,
    position: int | None,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Divide one score of MODEL on TEXT among the parts that wrote it: embedding, positions, each head, each MLP, biases.

    The parts add up to the score exactly, which is checked on each call (check_error). Layers and heads count from 0: L3H5 is
    head 5 of layer 3. With --format json all tables: parts, strongest, by_token, heads, sources. TEXT may be -, for standard
    input; --target " Paris" with its space is what follows a word in most subword vocabularies.

    Examples:

    \b
        unembed attribute runs/tour "tomorrow the girls near the boy will see"
        unembed attribute runs/tour "tomorrow the girls near the boy will see" --target themselves
        unembed attribute llama "The capital of France is" --target " Paris" --format json
    """
    from unembed.lenses.asking import targets
    from unembed.lenses.attribution import attribute

    loaded = open_model(model, tokenizer, like, quiet=quiet)
    ids = read_ids("attribute", loaded, text, quiet=quiet)
    found = attribute(loaded, ids, position=position, **targets("attribute", loaded, target, against))
    tables = {name: found.tables[name] for name in ("strongest", "by_token")}
    show(found, output_format, quiet=quiet, tables=tables)
