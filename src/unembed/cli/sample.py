"""`unembed sample`: a model goes on with a text, and the text arrives as it is made.

Many prompts at once come from prompts.py, the next file to read.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from unembed.cli.models import model_options, open_model, threads_option
from unembed.cli.paths import complete_model
from unembed.cli.prompts import parses_specials, read_prompt, read_prompts, specials_option
from unembed.cli.render import format_option, quiet_option, say, write_result
from unembed.cli.unread import tell_unread
from unembed.cli.weights import guessed, told_speed, weight_options, writing_model
from unembed.errors import UnembedError
from unembed.visible import visible

if TYPE_CHECKING:
    from unembed.generation.texts import Writing
    from unembed.model.transformer import Transformer


@click.command(name="sample", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", shell_complete=complete_model)
@click.option("--prompt", help="The text to go on with; - reads it from standard input.")
@click.option(
    "--prompts",
    metavar="FILE",
    help="Many texts to go on with, one a line, or JSON lines with the key prompt and perhaps seed (a file ending in "
    ".jsonl, or lines that begin with {); - is standard input. Line n has the seed --seed + n, counted from 0.",
)
@click.option("--tokens", default=200, show_default=True, type=click.IntRange(min=0), help="At most so many tokens.")
@click.option("--greedy", is_flag=True, help="Always the most probable token: the same as --temperature 0.")
@click.option(
    "--temperature", default=None, type=float, help="0 is greedy; 1, the default, the model's own distribution."
)
@click.option("--top-k", type=int, help="Keep the K most probable tokens.")
@click.option("--top-p", type=float, help="Keep the fewest tokens whose probabilities reach P.")
@click.option("--min-p", type=float, help="Keep tokens with at least P times the largest probability.")
@click.option(
    "--repetition-penalty",
    type=float,
    help="Make tokens that occurred, in the prompt or since, less likely; 1 changes nothing.",
)
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT",
    help="End before this text; may be given several times. Tokens that spell it stay among the ids.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0, max=2**63 - 1),
    help="The same seed gives the same text.",
)
@click.option(
    "--past-context",
    type=click.Choice(["slide", "stop"]),
    default="slide",
    show_default=True,
    help="When the context is full: read its last three quarters again, or stop.",
)
@click.option(
    "--candidates",
    "n_top",
    type=click.IntRange(min=1),
    metavar="N",
    help="For each token the N most probable ones, what cut each of them, and which was drawn. logprob is of the "
    "unfiltered distribution, probability that after temperature and filters, with which it was drawn.",
)
@weight_options
@threads_option
@specials_option
@model_options
@format_option
@quiet_option
def command(
    model: str,
    prompt: str | None,
    prompts: str | None,
    tokens: int,
    greedy: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    stops: tuple[str, ...],
    seed: int,
    past_context: str,
    n_top: int | None,
    weights: str | None,
    n_guesses: int,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Let MODEL go on with a text.

    Examples:

    \b
        unembed sample runs/tour --tokens 40
        unembed sample runs/mine --prompt "To be" --temperature 0.8 --seed 3
        unembed sample runs/mine --greedy --stop "." --format json
        unembed sample runs/mine --prompt - < opening.txt
        unembed sample runs/mine --prompts lines.txt --format jsonl
        unembed sample runs/mine --prompt "To be" --tokens 5 --top-k 3 --candidates 8
        unembed sample model.gguf --prompt "To be" --greedy --weights int8
    """
    from unembed.errors import UsageError
    from unembed.generation.checks import check_stops
    from unembed.generation.sampling import Sampling, check_sampling

    if greedy and temperature not in (None, 0.0):
        raise UsageError(f"--greedy and --temperature {temperature} contradict each other; give one of them")
    if prompts is not None and (prompt is not None or n_top is not None):
        other = "--prompt" if prompt is not None else "--candidates, which looks into a single text"
        raise UsageError(f"--prompts cannot go with {other}; give one of them")
    if prompts is not None and (n_guesses or weights not in (None, "float32")):
        given = "--lookup" if n_guesses else f"--weights {weights}"
        raise UsageError(f"--prompts cannot go with {given}, which helps a single text; give one of them")
    if n_guesses and not greedy and temperature != 0:
        raise UsageError("--lookup guesses what greedy decoding will choose; give --greedy with it")
    if n_guesses and weights not in (None, "float32"):
        raise UsageError(f"--lookup goes with float32 weights, and --weights {weights} was given; give one of them")
    options: dict[str, Any] = {
        "n_tokens": tokens,
        "sampling": check_sampling(
            Sampling(
                temperature=0.0 if greedy else 1.0 if temperature is None else temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
            )
        ),
        "past_context": past_context,
    }
    stops = check_stops(stops)
    if prompts is not None:
        requests = read_prompts(prompts, seed)
        _many(open_model(model, tokenizer, like, quiet=quiet), requests, stops, options, output_format, quiet)
        return
    text = read_prompt(prompt)
    loaded = open_model(model, tokenizer, like, quiet=quiet)
    if n_top is not None:
        _look(loaded, text, seed, stops, n_top, weights, options | {"lookup": n_guesses}, output_format, quiet)
    else:
        _one(loaded, text, seed, stops, weights, options | {"lookup": n_guesses}, output_format, quiet)


def _one(
    loaded: "Transformer",
    prompt: str,
    seed: int,
    stops: tuple[str, ...],
    weights: str | None,
    options: dict[str, Any],
    output_format: str,
    quiet: bool,
) -> None:
    """One text, shown while it is made where people read it."""
    from unembed.generation.texts import Writing, write
    from unembed.results import Result

    writing = Writing(loaded, prompt, stops=stops, parse_specials=parses_specials())
    _tell_unread(loaded, [prompt], quiet)
    begun, n_tokens = writing.continuation.prompt_ids, options["n_tokens"]
    loaded, facts = writing_model(loaded, weights, begun, n_tokens, quiet=quiet)
    is_live = output_format == "table"
    # a terminal is shown no control characters that a model made up; a pipe gets the text itself
    clean = _for_a_terminal if sys.stdout.isatty() else str
    if is_live:
        click.echo(clean(prompt), nl=False)
    began = time.perf_counter()
    try:
        for (new,) in write(loaded, [writing], seeds=[seed], **options):
            if is_live:
                click.echo(clean(new), nl=False)
    except UnembedError:
        if is_live:
            _end_line(says_more=True)
        raise
    if is_live:
        _end_line(says_more=not quiet)
    asked = weights is not None or options["lookup"] > 0
    told_speed(writing, time.perf_counter() - began, asked=asked, quiet=quiet)
    facts |= guessed(writing, options["lookup"], quiet=quiet)
    if not is_live:
        write_result(Result(name="sample", values=writing.values() | facts), output_format)
    if writing.continuation.stopped == "end" and not writing.continuation.ids:
        say("the model ended the text at once (stopped: end)", quiet=quiet)
    _tell(loaded, [writing], quiet)


def _many(
    loaded: "Transformer",
    requests: list[tuple[str, int]],
    stops: tuple[str, ...],
    options: dict[str, Any],
    output_format: str,
    quiet: bool,
) -> None:
    """Many texts side by side: one row each, in the order of the prompts."""
    from unembed.generation.texts import Writing, table_of, write_all

    writings = [Writing(loaded, prompt, stops=stops, parse_specials=parses_specials()) for prompt, _ in requests]
    _tell_unread(loaded, [prompt for prompt, _ in requests], quiet)
    write_all(loaded, writings, seeds=[seed for _, seed in requests], **options)
    # people read texts; programs get the ids too
    columns = ("seed", "stopped", "prompt", "text") if output_format == "table" else None
    write_result(table_of(requests, writings, columns), output_format)
    _tell(loaded, writings, quiet)


def _look(
    loaded: "Transformer",
    prompt: str,
    seed: int,
    stops: tuple[str, ...],
    n_top: int,
    weights: str | None,
    options: dict[str, Any],
    output_format: str,
    quiet: bool,
) -> None:
    """One text and the candidates of each draw."""
    from unembed.generation.candidates import look
    from unembed.generation.texts import Writing
    from unembed.results import Result

    writing = Writing(loaded, prompt, stops=stops, parse_specials=parses_specials())
    _tell_unread(loaded, [prompt], quiet)
    begun, n_tokens = writing.continuation.prompt_ids, options["n_tokens"]
    loaded, facts = writing_model(loaded, weights, begun, n_tokens, quiet=quiet)
    found = look(loaded, writing, n_top=n_top, seed=seed, **options)
    facts |= guessed(writing, options["lookup"], quiet=quiet)
    write_result(Result(name=found.name, tables=found.tables, values={**found.values, **facts}), output_format)
    _tell(loaded, [writing], quiet)


def _tell(model: "Transformer", writings: "list[Writing]", quiet: bool) -> None:
    """What was not read of a prompt, and what happened at the end of the context, once for all texts."""
    length = model.spec.context_length
    made = [writing.continuation for writing in writings]
    longest = max((len(text.prompt_ids) for text in made if text.n_slides), default=0)
    if longest > length:
        # the same three quarters that decode.py reads again
        say(
            f"the prompt has {longest:,} tokens and the context holds {length:,}: its first "
            f"{longest - max(1, 3 * length // 4):,} tokens were not read",
            quiet=quiet,
        )
    if n_slides := max((text.n_slides for text in made), default=0):
        say(
            f"the context of {length} tokens was full {n_slides} {'time' if n_slides == 1 else 'times'}; each time its last "
            "three quarters were read again (--past-context stop ends the text instead)",
            quiet=quiet,
        )
    elif any(text.stopped == "context" for text in made):
        say(f"stopped: the context of {length} tokens is full", quiet=quiet)


def _tell_unread(loaded: "Transformer", prompts: list[str], quiet: bool) -> None:
    """What the model never gets to see of the prompts."""
    tell_unread(loaded.tokenizer, prompts, one="the prompt", many="a prompt", quiet=quiet)


def _end_line(*, says_more: bool) -> None:
    """A pipe gets the text to the last byte, a terminal a prompt on its own line; before any note or error, which would
    begin in the text's line, and on a terminal clear it."""
    click.echo(nl=sys.stdout.isatty() or (says_more and _notes_follow_the_text()))


def _notes_follow_the_text() -> bool:
    """Whether both streams go to one place that is no terminal, as after 2>&1: a note would stand in the text's last line."""
    try:
        ends = [os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return False
    return os.path.samestat(*ends)


def _for_a_terminal(text: str) -> str:
    return visible(text, keeps_lines=True)
