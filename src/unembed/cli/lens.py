"""`unembed lens`: what each layer of a model would say, as a grid in the terminal or as data."""

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.looking import looking_command, read_ids
from unembed.cli.models import open_model
from unembed.cli.over_training import over_training_option, refuse_tuned
from unembed.cli.render import is_live, say, words, write_page, write_result
from unembed.errors import UsageError

if TYPE_CHECKING:
    from unembed.model.transformer import Transformer
    from unembed.results import Result


@looking_command("lens", "text")
@click.option("--layers", metavar="LIST", help="Layers to read, such as 0,4,8-12; the last one is always read.")
@click.option(
    "--after-attention", is_flag=True, help="Also read the stream inside each block: 0.5 is inside the first."
)
@click.option(
    "--top", type=int, default=5, show_default=True, help="How many of the best tokens of each layer to give."
)
@click.option("--target", metavar="TEXT", help="A token to follow through all layers and positions.")
@click.option("--tuned", metavar="FILE", help="Read every layer through a lens of `unembed tune-lens`.")
@over_training_option
def command(
    model: str,
    text: str,
    layers: str | None,
    after_attention: bool,
    top: int,
    target: str | None,
    tuned: str | None,
    over_training: bool,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Show what each layer of MODEL would say after each token of TEXT, if it were the last. TEXT "-" reads standard input.

    The final norm and the unembedding are applied to the stream after every layer. The last layer must be the model's own
    answer; how far it is off is given as identity_error.

    Examples:

    \b
        unembed lens runs/tour "the girls near the dog"
        unembed lens runs/tour "the girls near the dog" --tuned lens.safetensors
        unembed lens runs/tour "the girls near the dog" --over-training
        unembed lens model.gguf "The capital of France is" --target " Paris"
    """
    from unembed.lenses.logit_lens import logit_lens
    from unembed.lenses.prompts import target_of, token_texts
    from unembed.lenses.tuned_file import load_lens
    from unembed.views.over_training import by_layer, every_checkpoint
    from unembed.views.over_training import over_training as through

    if over_training:
        refuse_tuned(tuned)
    asked = None if layers is None else parsed_layers(layers)
    opened = open_model(model, tokenizer, like, quiet=quiet)
    ids = read_ids("lens", opened, text, quiet=quiet)
    translators = None if tuned is None else load_lens(tuned, opened)
    texts, followed = token_texts(opened), target_of(opened, target)

    def read(one: "Transformer") -> "Result":
        return logit_lens(
            one,
            ids,
            texts=texts,
            n_top=top,
            layers=asked,
            after_attention=after_attention,
            target=followed,
            tuned=translators,
        )

    if over_training:
        view = every_checkpoint(model)
        followed_through = through(view, lambda one: by_layer(read(one)), table="by_layer", color="cross_entropy_nats")
        write_result(followed_through, output_format)
        return
    found = read(opened)
    write_page(found)
    if output_format == "table":
        _write_table(found)
        for note in found.notes:
            say(words().text(f"note.{note}"), quiet=quiet)
    else:
        write_result(found if output_format == "json" else _as_rows(found), output_format)


def parsed_layers(text: str) -> list[float]:
    """Numbers and ranges of whole numbers. Raises: UsageError for anything else.

    >>> parsed_layers("0,2.5,4-6")
    [0, 2.5, 4, 5, 6]
    """
    found: list[float] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,6})\s*-\s*(\d{1,6})\s*", part)
        one = re.fullmatch(r"\s*(\d{1,6})(\.\d{1,3})?\s*", part)
        if span and int(span[1]) <= int(span[2]):
            found += range(int(span[1]), int(span[2]) + 1)
        elif one:
            found.append(float(part) if one[2] else int(one[1]))
        else:
            raise UsageError(f"--layers {text!r}: {part!r} is no layer; give numbers and ranges such as 0,4,8-12")
    return found


def _write_table(found: "Result") -> None:
    """The grid, what each layer says at the end of the text, and the single numbers."""
    import shutil

    from unembed.cli.lens_grid import color_of, lines_of_grid
    from unembed.cli.render import paint

    width = shutil.get_terminal_size().columns if is_live(sys.stdout) else None

    def shaded(cell: str, probability: float) -> str:
        background, ink = color_of(probability)
        return paint(cell, sys.stdout, bg=background, fg=ink)

    click.echo("\n".join([*lines_of_grid(found, words(), width=width, paint=shaded), ""]), color=True)
    write_result(_at_the_end(found), "table")


def _at_the_end(found: "Result") -> "Result":
    """The last position alone, a row a layer from the last one down, and the values that are single numbers."""
    from unembed.results import Result, Table

    lens = found.tables["lens"]
    last: list[dict[str, Any]] = [row for row in lens.rows() if row["position"] == len(found.values["tokens"]) - 1][
        ::-1
    ]
    names = ["layer", "text", "probability", "entropy_nats", "kl_to_final_nats"]
    columns: dict[str, Any] = {name: [row[name] for row in last] for name in names}
    values: dict[str, Any] = {"identity_error": found.values["identity_error"]}
    if (target := found.values.get("target")) is not None:
        columns |= {name: [row[name] for row in last] for name in ("target_rank", "target_probability")}
        values = {"target": _shown(target["text"]), **values}
    columns["text"] = [_shown(text) for text in columns["text"]]
    columns["top"] = [
        "; ".join(f"{_shown(text)} {words().percent(share)}" for text, share in row["top"][1:]) for row in last
    ]
    units = {name: unit for name, unit in lens.units.items() if name in columns}
    return Result(name="lens", values=values, tables={"lens_at_the_end": Table(columns=columns, units=units)})


def _shown(text: object) -> str:
    from unembed.visible import visible

    return visible(str(text), marks_edges=True)


def _as_rows(found: "Result") -> "Result":
    """Rows for CSV, JSON lines and Parquet: the best tokens as lists of one kind each, which a column can hold."""
    from unembed.results import Table

    lens, best = found.tables["lens"], found.tables["top"]
    columns = {name: values for name, values in lens.columns.items() if name != "top"}
    columns |= {f"top_{name}": best[name] for name in ("ids", "texts", "probabilities")}
    return replace(found, tables={"lens": Table(columns=columns, units=lens.units)}, pictures=())
