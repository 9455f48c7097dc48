"""`unembed compare-sharing`: one small model, its table shared in five ways, each at its best learning rate, over seeds."""

import click

from unembed.cli.paths import complete_setting
from unembed.cli.render import format_option, html_option, quiet_option, say, write_result


@click.command(name="compare-sharing", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("data", nargs=-1, required=True)
@click.option("--out", required=True, metavar="DIR", help="Where the runs are kept; named again, it goes on.")
@click.option(
    "--vocabulary", default="characters", show_default=True, help="characters, or a number of byte-level BPE entries."
)
@click.option("--steps", type=int, help="Steps of each run (default 500).")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_setting,
    help="Change a setting of every run; may be given many times.",
)
@click.option("--threads", type=int, help="Threads of the CPU kernels (default: one).")
@html_option
@format_option
@quiet_option
def command(
    data: tuple[str, ...],
    out: str,
    vocabulary: str,
    steps: int | None,
    settings: tuple[str, ...],
    threads: int | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Train one small model on DATA with its token table tied, untied, tied with a scaled lookup gradient, tied through a map
    and by pseudo-inverse, and compare: 30 runs, a rate chosen for each way on a seed that is not reported.

    What is interrupted goes on where it was with the same command. DIR/comparison.md holds the first table for a page.

    Examples:

    \b
        unembed compare-sharing my.txt --out runs/sharing
        unembed compare-sharing my.txt --out runs/sharing-bpe --vocabulary 2048 --format json
    """
    from unembed.cli.progress import Progress
    from unembed.recipes.comparison import compare_sharing
    from unembed.runtime import set_threads
    from unembed.training.config import parse_setting

    named = dict(parse_setting(text) for text in settings)
    if steps is not None:
        named["steps"] = steps
    set_threads(threads)
    result = compare_sharing(
        data,
        out=out,
        vocabulary=int(vocabulary) if vocabulary.isascii() and vocabulary.isdigit() else vocabulary,
        settings=named,
        threads=1 if threads is None else threads,
        say=lambda sentence: say(sentence, quiet=quiet),
        on_signal=Progress(quiet=quiet).on_signal,
    )
    write_result(result, output_format)
