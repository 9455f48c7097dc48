"""`unembed truth`: from which layer on the lens knows what the grammar of a run decides."""

import click

from unembed.cli.over_training import over_training_option, refuse_tuned
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, html_option, quiet_option, write_result


@click.command(name="truth", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", shell_complete=complete_model)
@click.option("--tuned", metavar="FILE", help="A lens of `unembed tune-lens`, put to the same questions.")
@over_training_option
@html_option
@format_option
@quiet_option
def command(run: str, tuned: str | None, over_training: bool, output_format: str, quiet: bool) -> None:
    """Hold each layer of a tour's RUN against the grammar's exact probabilities, feature by feature.

    A layer knows a feature (number, gender, tense, ...) when, from it on, nine in ten questions about agreement are answered
    right. The questions come from sentences that training has not read.

    Examples:

    \b
        unembed truth runs/tour
        unembed truth runs/tour --over-training --format json
    """
    from unembed.lenses.tuned_file import load_lens
    from unembed.views import truth as views
    from unembed.views.over_training import over_training as through

    if over_training:
        refuse_tuned(tuned)
    view = views.open_grammar_run(run)
    if over_training:
        found = through(
            view, lambda model: views.truth_of(view, model), table="known_from", y="feature", color="known_layer"
        )
    else:
        translators = None if tuned is None else load_lens(tuned, view.model())
        found = views.truth_of(view, view.model(), tuned=translators)
    write_result(found, output_format)
