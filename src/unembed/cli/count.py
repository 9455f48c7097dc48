"""`unembed count`: the accounts of a model, from its description alone."""

import click

from unembed.cli.models import ignore_option, ignored_tensors
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, html_option, quiet_option, write_result


@click.command(name="count", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", shell_complete=complete_model)
@click.option("--tied/--untied", "tied", default=None, help="Count the model tied, or untied, and both side by side.")
@click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
@ignore_option
@html_option
@format_option
@quiet_option
def command(model: str, tied: bool | None, like: str | None, output_format: str, quiet: bool) -> None:
    """Count the parameters of MODEL, any model, part by part; a shared table counts once.

    Examples:

    \b
        unembed count gpt2
        unembed count gpt2 --untied
    """
    from unembed.counting import spec_of_model
    from unembed.model.counts import BYTES_PER_NUMBER, count
    from unembed.model.spec import with_tying
    from unembed.planning.flops import flops
    from unembed.results import Result
    from unembed.tying.savings import side_by_side

    spec = spec_of_model(model, like=like, ignore_tensors=ignored_tensors())
    spec = spec if tied is None else with_tying(spec, tied)
    counted, flops_per_token = count(spec), round(flops(spec).forward)
    # rows of CSV stay the accounts of the one model that was asked for
    shows_both = tied is not None and output_format in ("table", "json")
    tables = {"side_by_side": side_by_side(spec, flops_per_token)} if shows_both else {}
    write_result(
        Result(
            name="count",
            values={
                "parameters": counted.parameters,
                "parameters_untied": counted.parameters_untied,
                "table_parameters": counted.table_parameters,
                "tied": counted.tied,
                "by_part": counted.by_part,
                "bytes": {name: counted.parameters * size for name, size in BYTES_PER_NUMBER.items()},
                "flops_per_token": flops_per_token,
            },
            tables=tables,
        ),
        output_format,
    )
