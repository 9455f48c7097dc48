"""`unembed patch`: what must be known where, for the answer to a clean text to come back in a corrupted one."""

import click

from unembed.cli.looking import grid, looking_command, read_ids, show
from unembed.cli.models import open_model


@looking_command("patch", "clean", "corrupted")
@click.option(
    "--tap",
    default="resid_pre",
    show_default=True,
    metavar="NAME",
    help="What is replaced: a step of every layer (resid_pre, attn_out, mlp_out, z, ..., blocks.*.z) or of one (blocks.3.z).",
)
@click.option(
    "--by",
    type=click.Choice(["position", "head"]),
    default="position",
    show_default=True,
    help="One position at a time, or one head at all positions.",
)
@click.option("--target", metavar="TEXT", help="The token that is scored; the clean text's best one unless given.")
@click.option("--against", metavar="TEXT", help="Its rival; the corrupted text's best token unless given.")
@click.option(
    "--position", type=int, metavar="N", help="Where the score is read, from 0; the last position unless given."
)
@click.option(
    "--metric",
    type=click.Choice(["logit_difference", "logit", "probability"]),
    default="logit_difference",
    show_default=True,
    help="Target's lead over its rival, its score, or its probability.",
)
def command(
    model: str,
    clean: str,
    corrupted: str,
    tap: str,
    by: str,
    target: str | None,
    against: str | None,
    position: int | None,
    metric: str,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Run MODEL on CORRUPTED, each time with one value of the run on CLEAN put in its place, and show how much of the clean
    score comes back: 0 nothing, 1 all of it.

    Both texts must have the same number of tokens. Rows are layers from 0, columns positions (or heads). Replacing everything
    gives the clean run and replacing nothing the corrupted one, which is checked on each call (check_error).

    Examples:

    \b
        unembed patch runs/tour "the girls will see" "the girl will see" --target themselves --against herself
        unembed patch runs/tour "the girls will see" "the girl will see" --tap z --by head --metric probability
    """
    from unembed.lenses.asking import targets
    from unembed.lenses.patching import patch

    loaded = open_model(model, tokenizer, like, quiet=quiet)
    rows = [read_ids("patch", loaded, text, quiet=quiet) for text in (clean, corrupted)]
    named = targets("patch", loaded, target, against)
    found = patch(loaded, rows[0], rows[1], tap=tap, by=by, position=position, metric=metric, **named)
    patched = found.tables["patched"]
    heads = None if by == "head" else list(dict(zip(patched["position"], patched["token"], strict=True)).values())
    shown = {"patched": grid(patched, "layer", by, "recovered", heads), "layers": found.tables["layers"]}
    show(found, output_format, quiet=quiet, tables=shown)
