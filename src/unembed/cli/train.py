"""`unembed train`: a run on your own files, or one that goes on."""

import shlex

import click

from unembed.cli.paths import complete_recipe, complete_run, complete_setting
from unembed.cli.render import command_line, format_option, quiet_option, say, write_result


@click.command(name="train", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("data", nargs=-1)
@click.option(
    "--recipe",
    default="small",
    show_default=True,
    shell_complete=complete_recipe,
    help="What kind of run: small, nanogpt-cpu, speedrun, tour or shared-table.",
)
@click.option("--minutes", type=float, help="Time budget of the recipe small (default 5).")
@click.option(
    "--out", shell_complete=complete_run, help="The run's folder (default: runs/RECIPE, or the next free number)."
)
@click.option("--steps", type=int, help="Total number of steps, those already done included.")
@click.option("--column", help="Read this column of CSV or JSONL files.")
@click.option(
    "--newlines", type=click.Choice(["keep", "lf"]), default="keep", help="Keep CRLF line ends, or make them LF."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_setting,
    help="Change a setting; may be given many times. docs/settings.md lists them all.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out, or begin it if there is none.")
@click.option("--profile", is_flag=True, help="Say in the end where the time went, and what would make it less.")
@click.option("--device", default=None, help="cpu, cuda, mps; by default an accelerator if there is one.")
@click.option("--threads", type=int, help="Threads of the CPU kernels (default: one for a small model).")
@format_option
@quiet_option
def command(
    data: tuple[str, ...],
    recipe: str,
    minutes: float | None,
    out: str | None,
    steps: int | None,
    column: str | None,
    newlines: str,
    settings: tuple[str, ...],
    resume: bool,
    profile: bool,
    device: str | None,
    threads: int | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Train a model on DATA: files, folders or globs of text.

    Examples:

    \b
        unembed train my.txt --out runs/mine
        unembed train my.txt --recipe nanogpt-cpu --out runs/like-nanogpt
        unembed train my.txt --out runs/mine --resume --steps 4000
        unembed train books/ --set learning_rate=5e-4 --set tied=false
    """
    import os

    import msgspec

    from unembed.cli.paths import next_free
    from unembed.cli.progress import Progress
    from unembed.corpora.reading import Reading
    from unembed.errors import UsageError
    from unembed.recipes.advice import in_milliseconds, profile_table
    from unembed.recipes.start import train
    from unembed.recipes.threads import asked_threads
    from unembed.results import Result
    from unembed.runtime import choose_device, set_threads
    from unembed.training.config import parse_setting
    from unembed.training.profile import Profile

    named = dict(parse_setting(text) for text in settings)
    if steps is not None:
        if "steps" in named and named["steps"] != steps:
            raise UsageError(
                f"--steps {steps} and --set steps={named['steps']} contradict each other; give one of them"
            )
        named["steps"] = steps
    if minutes is not None:
        named["minutes"] = minutes
    if resume and out is not None:
        _check_resumed(data, recipe, out)
    if resume and out is None:
        raise UsageError("--resume needs --out: the folder of the run to go on with")
    if out is None and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        raise UsageError("several processes that train together need --out: the folder that is to be the run of all")
    set_threads(threads)  # before anything is begun, so that a number that cannot be leaves nothing behind
    is_follower = os.environ.get("RANK", "0") not in ("", "0")  # of torchrun's processes the first one speaks
    quiet = quiet or is_follower
    progress, chosen = Progress(quiet=quiet), choose_device(device)
    measured = Profile(chosen.partition(":")[0]) if profile else None
    outcome = train(
        data,
        recipe_name=recipe,
        out=next_free(f"runs/{recipe}") if out is None else out,
        settings=named,
        reading=Reading(newlines="lf" if newlines == "lf" else "keep", column=column),
        resume=resume,
        command=command_line(),
        device=chosen,
        threads=asked_threads(threads, os.environ),
        observers=[progress],
        say=lambda sentence: say(sentence, quiet=quiet),
        on_signal=progress.on_signal,
        profile=measured,
        tunes_memory=True,
    )
    if is_follower:
        return
    values = {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}
    tables = {} if measured is None else {"profile": profile_table(measured)}
    if measured is not None and output_format == "table":
        tables = {"profile": in_milliseconds(tables["profile"])}
    write_result(Result(name="train", values=msgspec.to_builtins(values), tables=tables), output_format)
    run = shlex.quote(outcome.run)
    say(f"next: unembed sample {run}   ·   unembed report {run}", quiet=quiet)


def _check_resumed(data: tuple[str, ...], recipe: str, out: str) -> None:
    """Refuses what contradicts the run that is to go on, and says so where other text is named than it learns from.

    Raises: UsageError.
    """
    from click.core import ParameterSource

    from unembed.checkpoints.load import CONFIG_KEY, open_run
    from unembed.checkpoints.run.folder import RunFolder
    from unembed.corpora.text import find_files
    from unembed.errors import CorpusError, UsageError

    if not RunFolder.exists(out):
        return
    description = open_run(out).description
    own = description.get(CONFIG_KEY, {}).get("recipe")
    is_named = click.get_current_context().get_parameter_source("recipe") is not ParameterSource.DEFAULT
    if is_named and recipe != own:
        raise UsageError(f"{out}: its recipe is {own!r}, not {recipe!r}; leave --recipe out, or begin another run")
    if not data:
        return
    try:
        names = [path.name for path in find_files(data)]
    except CorpusError as error:
        raise UsageError(f"{error}\nThe run goes on with its own data; leave DATA out") from error
    sources = description.get("data", {}).get("sources")
    if names != sources:
        had = ", ".join(map(str, sources[:3])) if isinstance(sources, list) and sources else "what its recipe brought"
        say(f"warning: {out} goes on with its own data ({had}) and recipe ({own}); {', '.join(names[:3])} is not read")
