"""`unembed tokenize`: a text as ids, tokens and spans, or the same text by every kind of tokenizer."""

import sys
from pathlib import Path
from typing import Any

import click

from unembed.cli.render import format_option, write_result


@click.command(name="tokenize", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False)
@click.argument("text", required=False)
@click.option("--compare", "compared", metavar="FILE", help="Measure words, characters, bytes and subwords on FILE.")
@click.option("--vocab-size", type=int, default=2000, show_default=True, help="Subword vocabulary for --compare.")
@click.option(
    "--specials", is_flag=True, help="Take specials such as <end> in TEXT for what they mean, not for letters."
)
@format_option
def command(
    model: str | None, text: str | None, compared: str | None, vocab_size: int, specials: bool, output_format: str
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
    from unembed.tokenizers import files
    from unembed.tokenizers.comparing import compare

    if compared is not None:
        if model is not None:
            raise UsageError("tokenize: --compare takes one FILE and no MODEL or TEXT")
        write_result(compare("".join(TextReader(compared).documents()), vocab_size=vocab_size), output_format)
        return
    if model is None or text is None:
        raise UsageError(
            'tokenize: give MODEL and TEXT, or --compare FILE; for example: unembed tokenize runs/mine "a text"'
        )
    path = Path(model)
    tokenizer = files.load(path / "tokenizer.json" if path.is_dir() else path)
    if text == "-":
        text = sys.stdin.read()
    encoding = tokenizer.encode(text, parse_specials=specials)
    tokens = [tokenizer.token_text(i) for i in encoding.ids]
    tables: dict[str, Table] = {}
    values: dict[str, Any] = {}
    if output_format == "table":
        columns = {"id": list(encoding.ids), "token": tokens, "span": [f"{a}-{b}" for a, b in encoding.spans]}
        tables["tokens"] = Table(columns=columns)
    else:
        values |= {"ids": list(encoding.ids), "tokens": tokens, "spans": [list(span) for span in encoding.spans]}
    values["lossless"] = tokenizer.decode(encoding.ids, show_specials=specials) == text
    write_result(Result(name="tokenize", tables=tables, values=values), output_format)
