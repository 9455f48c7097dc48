"""`unembed tokenize`: a text as ids, tokens and spans, or the same text by every kind of tokenizer."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unembed.cli.paths import complete_run
from unembed.cli.prompts import PARSE_SPECIALS
from unembed.cli.render import format_option, html_option, quiet_option, say, write_page, write_result

if TYPE_CHECKING:
    from unembed.tokenizers.base import Tokenizer


@click.command(name="tokenize", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False, shell_complete=complete_run)
@click.argument("text", required=False)
@click.option("--compare", "compared", metavar="FILE", help="Measure words, characters, bytes and subwords on FILE.")
@click.option(
    "--vocab-size",
    type=click.IntRange(min=257),
    default=2000,
    show_default=True,
    help="Subword vocabulary for --compare.",
)
@click.option(
    PARSE_SPECIALS,
    "--specials",
    "specials",
    is_flag=True,
    help="Read the names of special tokens in TEXT, such as <end> or [MASK], as those tokens, not as letters.",
)
@html_option
@format_option
@quiet_option
def command(
    model: str | None,
    text: str | None,
    compared: str | None,
    vocab_size: int,
    specials: bool,
    output_format: str,
    quiet: bool,
) -> None:
    """Show TEXT as the tokenizer of MODEL (a run, or a tokenizer's file) sees it. TEXT "-" reads standard input.

    Examples:

    \b
        unembed tokenize runs/mine "To be, or not"
        unembed tokenize --compare my.txt
    """
    from unembed.corpora.text import TextReader
    from unembed.errors import UsageError
    from unembed.results import Result, Table
    from unembed.tokenizers.base import unknown_note
    from unembed.tokenizers.comparing import compare, remarks
    from unembed.tokenizers.notes import specials_note

    if compared is not None:
        if model is not None:
            raise UsageError("tokenize: --compare takes one FILE and no MODEL or TEXT")
        result = compare("".join(TextReader(compared).documents()), vocab_size=vocab_size)
        for sentence in remarks(result, vocab_size):
            say(sentence, quiet=quiet)
        write_result(result, output_format)
        return
    if model is None or text is None:
        raise UsageError(
            'tokenize: give MODEL and TEXT, or --compare FILE; for example: unembed tokenize runs/mine "a text"'
        )
    tokenizer = _tokenizer_at(model)
    if text == "-":
        # as it came: line ends too, and bytes that are no UTF-8 are refused by the tokenizer, whatever the locale
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    encoding = tokenizer.encode(text, parse_specials=specials)
    if unknown := unknown_note(tokenizer, text, encoding):
        say(unknown, quiet=quiet)
    if not specials and (spelt := specials_note(tokenizer, [text], what="the text", option=PARSE_SPECIALS)):
        say(spelt, quiet=quiet)
    tokens = [tokenizer.token_text(i) for i in encoding.ids]
    columns = {"id": list(encoding.ids), "token": tokens, "span": [f"{a}-{b}" for a, b in encoding.spans]}
    lossless = tokenizer.decode(encoding.ids, show_specials=specials) == text
    for_people = Result(name="tokenize", tables={"tokens": Table(columns=columns)}, values={"lossless": lossless})
    write_page(for_people)
    if output_format == "table":
        write_result(for_people, output_format)
        return
    spans = [list(span) for span in encoding.spans]
    values = {"ids": list(encoding.ids), "tokens": tokens, "spans": spans, "lossless": lossless}
    write_result(Result(name="tokenize", values=values), output_format)


def _tokenizer_at(model: str) -> "Tokenizer":
    """The tokenizer of a run, of a checkpoint in it, of another program's folder, or a tokenizer's own file."""
    from unembed.errors import TokenizerError
    from unembed.model.presets import PRESETS
    from unembed.tokenizers import files

    path = Path(model)
    if not path.exists() and model in PRESETS:
        raise TokenizerError(
            f"{model}: a preset is a shape with random weights and has no tokenizer. Name a run folder, or a tokenizer's "
            "file such as tokenizer.json, tokenizer.model or vocab.bpe"
        )
    if path.is_file() and (found := _inside_or_beside(path)) is not None:
        return found
    run = path.resolve().parent.parent
    if path.is_dir() and not (path / files.FILE_NAME).exists() and (run / "run.json").is_file():
        path = run  # a checkpoint: its run keeps the tokenizer
    return files.load(path)


def _inside_or_beside(path: Path) -> "Tokenizer | None":
    """The tokenizer of a file of weights: inside a GGUF, beside the others; None where the file is a tokenizer's own."""
    from unembed.errors import CheckpointError, TokenizerError
    from unembed.tokenizers import files, foreign

    if path.suffix == ".gguf":
        from unembed.checkpoints.foreign.gguf import tokenizer_of
        from unembed.checkpoints.formats.gguf.read import read_gguf

        tokenizer, notes = tokenizer_of(read_gguf(path))
        if tokenizer is None:
            raise TokenizerError(notes[0] if notes else f"{path}: has no tokenizer inside; name its file instead")
        return tokenizer
    size = None
    if path.suffix == ".bin":
        from unembed.checkpoints.formats.llama2c import read_config

        try:
            size = read_config(path).vocab_size
        except CheckpointError:
            return None  # a tokenizer's own .bin, as its reader will say
    elif path.suffix not in (".safetensors", ".pt"):
        return None
    beside = foreign.find(path.parent, size)
    if beside is None:
        raise foreign.why_none(path.parent, size)
    return files.load(beside)
