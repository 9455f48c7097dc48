"""Pieces of a Markdown page, for the pages that are derived from the code. Next to read: generate.py."""

from collections.abc import Iterable, Iterator, Sequence


def code_block(text: str) -> list[str]:
    """Lines between fences, without spaces at their ends."""
    return ["```text", *(line.rstrip() for line in text.strip().splitlines()), "```"]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; a bar inside a cell is escaped."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
