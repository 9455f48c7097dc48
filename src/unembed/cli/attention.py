"""`unembed attention`: what each head looks at, in numbers and as maps."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.looking import looking_command, read_ids, show
from unembed.cli.models import open_model
from unembed.cli.over_training import over_training_option
from unembed.errors import UsageError

if TYPE_CHECKING:
    from unembed.results import Table


@looking_command("attention", "text")
@click.option("--layer", type=int, metavar="N", help="Show the patterns of this layer, from 0.")
@click.option("--head", type=int, metavar="N", help="Of that layer, this head alone, from 0.")
@over_training_option
def command(
    model: str,
    text: str,
    layer: int | None,
    head: int | None,
    over_training: bool,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Show what each head of MODEL looks at in TEXT: the token before, the first, itself, its earlier places, what came after
    them (induction), and how spread its weights are.

    Every number is a mean of attention weights; induction_repeated is measured on random tokens that stand there twice. With
    --layer the keys that each token looks at most; with --format json also the weights themselves.

    Examples:

    \b
        unembed attention runs/tour "the girls near the boy"
        unembed attention runs/tour "the girls near the boy" --layer 1 --head 2
        unembed attention runs/tour "the girls near the boy" --over-training
        unembed attention gpt2-folder "to be or not to be" --layer 5 --format json
    """
    from unembed.lenses.attention_maps import attention_maps

    loaded = open_model(model, tokenizer, like, quiet=quiet)
    ids = read_ids("attention", loaded, text, quiet=quiet)
    if over_training:
        if layer is not None or head is not None:
            raise UsageError("--over-training follows every head of every layer; leave out --layer and --head")
        from unembed.cli.render import write_result
        from unembed.views.over_training import every_checkpoint
        from unembed.views.over_training import over_training as through

        measure = "induction_repeated" if loaded.spec.is_causal else "previous"
        view = every_checkpoint(model)
        found = through(
            view, lambda one: attention_maps(one, ids), table="heads", y=measure, color="head", facet="layer"
        )
        write_result(found, output_format)
        return
    found = attention_maps(loaded, ids, layer=layer, head=head)
    tables = {name: found.tables[name] for name in ("heads", "attended") if name in found.tables}
    if output_format == "table" and "attended" in tables:
        tables["attended"] = _readable(tables["attended"])
    if output_format == "parquet" and "attended" in tables:
        found = replace(found, tables={"attended": _of_one_kind(tables["attended"])}, pictures=())
    show(found, output_format, quiet=quiet, tables=tables)


def _readable(attended: "Table") -> "Table":
    """The keys in one cell each, the position before its token as in the grids: `2 girls 0.53; 5 boy 0.21`."""
    from unembed.results import Table

    cells = [
        "; ".join(f"{at} {token} {weight:.3f}" for at, (token, weight) in zip(places, seen, strict=True))
        for places, seen in zip(attended["looks_at_positions"], attended["looks_at"], strict=True)
    ]
    columns = {name: attended[name] for name in ("layer", "head", "position", "token")}
    return Table(columns={**columns, "looks_at": cells}, units=attended.units)


def _of_one_kind(attended: "Table") -> "Table":
    """Tokens and weights as two lists: a column of Parquet holds lists of one kind."""
    from unembed.results import Table

    seen = attended["looks_at"]
    columns: dict[str, Any] = {
        name: attended[name] for name in ("layer", "head", "position", "token", "looks_at_positions")
    }
    columns["looks_at_tokens"] = [[token for token, _ in one] for one in seen]
    columns["looks_at_shares"] = [[weight for _, weight in one] for one in seen]
    return Table(columns=columns, units=attended.units)
