"""`unembed tour`: the whole way once, on a language small enough to know everything about."""

import shlex
import time
from pathlib import Path

import click

from unembed.cli.render import command_line, format_option, lang_option, quiet_option, say, write_result

RUN = str(Path("runs/tour"))


@click.command(name="tour", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", help="The run's folder (default: runs/tour, or the next free number).")
@click.option("--steps", type=int, help="Fewer steps than the recipe's, for a quicker look.")
@click.option("--threads", type=int, help="Threads of the CPU kernels (default 1: the model is too small for more).")
@lang_option
@format_option
@quiet_option
def command(
    out: str | None, steps: int | None, threads: int | None, lang: str | None, output_format: str, quiet: bool
) -> None:
    """Train Mini-GPT (103,680 parameters) on a small grammar, mark it like an exam, and write a report.

    The grammar's exact floor is known, so you see how close the model comes to the best possible one.

    Examples:

    \b
        unembed tour
        unembed tour --lang es --out runs/gira
    """
    import os

    from unembed import catalogue
    from unembed.cli.paths import next_free
    from unembed.cli.progress import Progress
    from unembed.recipes.start import train
    from unembed.report.write import analyse, write_report
    from unembed.results import Result
    from unembed.runtime import set_threads
    from unembed.views.run import RunView

    began = time.perf_counter()
    language = catalogue.choose(lang, os.environ)
    # a second thread has nothing to do in products this small, and waiting for it costs more than it brings
    set_threads(1 if threads is None else threads)
    settings: dict[str, object] = {"language": language} | ({} if steps is None else {"steps": steps})
    progress = Progress(quiet=quiet)
    run = next_free(RUN) if out is None else out
    if out is None and str(run) != RUN:
        say(f"{RUN} is there already and stays as it is; this tour goes to {run}", quiet=quiet)
    outcome = train(
        recipe_name="tour",
        out=run,
        settings=settings,
        command=command_line(),
        observers=[progress],
        say=lambda sentence: say(sentence, quiet=quiet),
        on_signal=progress.on_signal,
    )
    view = RunView.open(outcome.run)
    results = analyse(view)
    floor = view.folder.description["floors"]["entropy_floor"]
    path = write_report(outcome.run, lang=language, results=results)
    values = {
        "run": outcome.run,
        "report": str(path.resolve()),
        "val_loss_nats": outcome.val_loss_nats,
        "entropy_floor_nats": floor,
        "agreements_right": results["agreement"].values["share"],
        "seconds": time.perf_counter() - began,
        "samples": [str(text) for text in results["samples"].tables["samples"]["text"][-3:]],
    }
    write_result(Result(name="tour", values=values), output_format)
    name = shlex.quote(outcome.run)
    say(
        f"\nThree next commands:\n  unembed sample {name} --tokens 60 --seed 1\n"
        f"  unembed count {name}\n  unembed train my.txt --recipe nanogpt-cpu --out runs/mine",
        quiet=quiet,
    )
