"""Prompts from files and pipes: one text, or many with a seed each. The next file to read is sample.py, which asks.

One line break at the end belongs to the shell that wrote it (`echo`), not to the prompt; `printf` ends without one.
"""

import sys
from collections.abc import Callable
from typing import Any

import click

from unembed.errors import InputError, UsageError

STDIN = "-"
PARSE_SPECIALS = "--parse-specials"
_SPECIALS = "unembed.parse_specials"  # where the switch stands in a context


def specials_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --parse-specials to a command that takes a text; `parses_specials` tells it. Off: texts come from anywhere."""
    return click.option(
        PARSE_SPECIALS,
        is_flag=True,
        expose_value=False,
        callback=_note_specials,
        help="Read the names of special tokens in a text, such as [MASK] or <|im_start|>, as those tokens, not as letters.",
    )(command)


def _note_specials(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_SPECIALS] = value


def parses_specials() -> bool:
    """Whether --parse-specials was given to this call."""
    return bool(click.get_current_context().meta.get(_SPECIALS, False))


def read_prompt(prompt: str | None) -> str:
    """The prompt itself, "" when there is none, or for "-" what stands on standard input. Raises: InputError."""
    if prompt != STDIN:
        return prompt or ""
    return _read(STDIN).removesuffix("\n")


def read_prompts(source: str, first_seed: int) -> list[tuple[str, int]]:
    """The prompts of a file, or of standard input for "-", each with its seed: first_seed + n for line n, from 0.

    A file whose name ends in .jsonl, and standard input whose first line begins with {, holds an object a line with the
    keys `prompt` and perhaps `seed`; any other one a prompt a line, an empty line being no prompt. Raises: InputError.
    """
    from unembed.generation.checks import seed_of

    lines = _read(source).removesuffix("\n").split("\n")
    is_json = source.endswith(".jsonl") or (source == STDIN and lines[0].lstrip().startswith("{"))
    where = "standard input" if source == STDIN else source
    if not any(lines):
        raise InputError(f"{where}: holds no prompts; give one a line")
    found = []
    for n, line in enumerate(lines):
        prompt, seed = _from_json(line, f"{where}: line {n + 1}") if is_json else (line.removesuffix("\r"), None)
        found.append((prompt, seed_of(first_seed, n) if seed is None else seed))
    return found


def _from_json(line: str, where: str) -> tuple[str, int | None]:
    from unembed.checkpoints.formats import strict_json
    from unembed.generation.checks import check_seed

    try:
        values: Any = strict_json.decode(line.encode())  # which refuses a key given twice
    except ValueError as error:
        raise InputError(f'{where}: not JSON ({error}); expected {{"prompt": "To be", "seed": 3}}') from None
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        raise InputError(f'{where}: has no text under "prompt"; expected {{"prompt": "To be", "seed": 3}}')
    if unknown := sorted(set(values) - {"prompt", "seed"}):
        raise InputError(f"{where}: has the key {unknown[0]!r}, which is not known; there are prompt and seed")
    if values.get("seed") is None:
        return values["prompt"], None
    try:
        return values["prompt"], check_seed(values["seed"])
    except UsageError as error:
        raise InputError(f"{where}: {error}") from None


def _read(source: str) -> str:
    """The whole text. Raises: InputError for what is not UTF-8, or no file."""
    where = "standard input" if source == STDIN else source
    try:
        if source == STDIN:
            return sys.stdin.buffer.read().decode("utf-8")
        with open(source, encoding="utf-8", newline="\n") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is not UTF-8; write the prompts again as UTF-8") from None
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; --prompts takes a file, or - for standard input") from None
