"""`unembed convert`: a model in another format, bit for bit."""

from typing import Any

import click

from unembed.cli.models import ignored_tensors, model_options
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, quiet_option, say, write_result

DTYPES = ("file", "float32", "float16", "bfloat16", "float64")


@click.command(name="convert", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", shell_complete=complete_model)
@click.argument("dest")
@click.option("--to", "target", type=click.Choice(["hf", "gguf", "native"]), default="hf", show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="file", show_default=True, help="Type of the numbers.")
@model_options
@format_option
@quiet_option
def command(
    source: str,
    dest: str,
    target: str,
    dtype: str,
    tokenizer: str | None,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Write the model SOURCE at DEST in another format: hf (for transformers), gguf (llama.cpp), native (a run folder).

    Examples:

    \b
        unembed convert runs/mine exported
        unembed convert exported model.gguf --to gguf --dtype float16
    """
    import torch

    from unembed.checkpoints.convert import convert
    from unembed.checkpoints.foreign.translate import Dtype
    from unembed.results import Result

    kind: Dtype = "file" if dtype == "file" else getattr(torch, dtype)
    done = convert(
        source, dest, to=target, dtype=kind, tokenizer=tokenizer, like=like, ignore_tensors=ignored_tensors()
    )
    for note in done.notes:
        say(note, quiet=quiet)
    values: dict[str, Any] = {"written": str(done.written), "tensors": done.tensors, "parameters": done.parameters}
    values["tied"] = done.tied
    if done.left_out:
        values["left_out"] = list(done.left_out)
    write_result(Result(name="convert", values=values), output_format)
