"""`unembed report`: a run as one HTML file."""

import click

from unembed.cli.paths import complete_run
from unembed.cli.render import format_option, lang_option, quiet_option, write_result


@click.command(name="report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", shell_complete=complete_run)
@click.option("-o", "--out", help="Where to write it (default: report.html in the run).")
@lang_option
@format_option
@quiet_option
def command(run: str, out: str | None, lang: str | None, output_format: str, quiet: bool) -> None:
    """Write the report of RUN: loss, samples, accounts, the lens, the token map; one file, no network.

    Examples:

    \b
        unembed report runs/tour
        unembed report runs/tour --lang es -o informe.html
    """
    from unembed.report.write import write_report
    from unembed.results import Result

    path = write_report(run, out, lang=lang)
    write_result(Result(name="report", values={"report": str(path.resolve())}), output_format)
