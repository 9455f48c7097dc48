"""`unembed sample`: a model goes on with a text, and the text arrives as it is made."""

import sys

import click

from unembed.cli.render import format_option, quiet_option, say, write_result
from unembed.visible import visible


@click.command(name="sample", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model")
@click.option("--prompt", default="", help="The text to go on with.")
@click.option("--tokens", default=200, show_default=True, type=click.IntRange(min=0), help="At most so many tokens.")
@click.option("--greedy", is_flag=True, help="Always the most probable token: the same as --temperature 0.")
@click.option(
    "--temperature", default=None, type=float, help="0 is greedy; 1, the default, the model's own distribution."
)
@click.option("--top-k", type=int, help="Keep the K most probable tokens.")
@click.option("--top-p", type=float, help="Keep the fewest tokens whose probabilities reach P.")
@click.option("--min-p", type=float, help="Keep tokens with at least P times the largest probability.")
@click.option("--repetition-penalty", type=float, help="Make tokens that occurred less likely; 1 changes nothing.")
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
@format_option
@quiet_option
def command(
    model: str,
    prompt: str,
    tokens: int,
    greedy: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    seed: int,
    past_context: str,
    output_format: str,
    quiet: bool,
) -> None:
    """Let MODEL go on with a text.

    Examples:

    \b
        unembed sample runs/tour --tokens 40
        unembed sample runs/mine --prompt "To be" --temperature 0.8 --seed 3
        unembed sample runs/mine --greedy --format json
    """
    from unembed.checkpoints.load import load
    from unembed.errors import UsageError
    from unembed.generation.decode import Continuation, stream_ids
    from unembed.generation.sampling import Sampling, check_sampling
    from unembed.generation.texts import prompt_ids, tokenizer_of, values_of
    from unembed.results import Result
    from unembed.tokenizers.base import StreamDecoder

    if greedy and temperature not in (None, 0.0):
        raise UsageError(f"--greedy and --temperature {temperature} contradict each other; give one of them")
    sampling = check_sampling(
        Sampling(
            temperature=0.0 if greedy else 1.0 if temperature is None else temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
    )
    loaded = load(model)
    tokenizer = tokenizer_of(loaded)
    ids, is_text = prompt_ids(tokenizer, prompt)
    text = Continuation(prompt_ids=ids)
    shown = StreamDecoder(tokenizer, after=ids if is_text else [])
    is_live = output_format == "table"
    # a terminal is shown no control characters that a model made up; a pipe gets the text itself
    clean = _for_a_terminal if sys.stdout.isatty() else str
    if is_live:
        click.echo(clean(prompt), nl=False)
    steps = stream_ids(
        loaded,
        [text],
        n_tokens=tokens,
        sampling=sampling,
        seeds=[seed],
        n_known=tokenizer.vocab_size,
        end_id=tokenizer.end_id,
        past_context="slide" if past_context == "slide" else "stop",
    )
    for (new,) in steps:
        if is_live and new is not None:
            click.echo(clean(shown.feed(new)), nl=False)
    if not is_live:
        write_result(Result(name="sample", values=values_of(text, tokenizer, is_text)), output_format)
        return
    click.echo(clean(shown.finish()))
    if text.n_slides:
        say(
            f"the context of {loaded.spec.context_length} tokens was full {text.n_slides} times; each time its last three "
            "quarters were read again (--past-context stop ends the text instead)",
            quiet=quiet,
        )
    elif text.stopped == "context":
        say(f"stopped: the context of {loaded.spec.context_length} tokens is full", quiet=quiet)


def _for_a_terminal(text: str) -> str:
    return visible(text, keeps_lines=True)
