"""The lens as a grid of text: tokens from left to right, layers from bottom to top, in each cell a guess and its probability.

A cell reads `Paris 43`: the likeliest token, outer spaces as open boxes and bytes spelled out, and its probability in percent,
so that nothing is lost without colours; with colours the cell is darker the surer the guess. A text that is wider than the
terminal goes on in a further block of rows. Texts that run from right to left stand in isolation marks, which keep them
from turning the rest of the line around. Before it: tables.py. The next file to read is lens.py.
"""

import unicodedata
from collections.abc import Callable, Sequence

from unembed.catalogue import Words
from unembed.cli.tables import columns, cut
from unembed.results import Result, to_plain
from unembed.visible import visible

Paint = Callable[[str, float], str]  # a cell's text and its probability -> the text, coloured or not
WIDTH = 120  # where no terminal says how wide it is
WIDEST_TEXT = 14
_GAP = 2
# Light to dark, of the 256 colours that terminals have; ink that can be read on each.
RAMP = ((255, 16), (189, 16), (153, 16), (111, 16), (26, 231), (18, 231))


def lines_of_grid(result: Result, words: Words, *, width: int | None, paint: Paint) -> list[str]:
    """The blocks of a lens result of one text, an empty line between them; a followed target has a grid of its own."""
    lens = result.tables["lens"]
    layers = [to_plain(layer) for layer in result.values["layers"]]
    n_pos = len(result.values["tokens"])
    heads = [_token(token) for token in lens["token"][:n_pos]]
    if "text" not in lens.columns:
        return []
    shares = lens["probability"].tolist()
    blocks = _blocks(layers, heads, [_token(text) for text in lens["text"]], shares, words, width or WIDTH, paint)
    if result.values.get("target") is not None and "target_rank" in lens.columns:
        named = result.values["target"]
        name = _token(named["text"] if named["text"] is not None else str(named["id"]))
        ranks = [f"#{words.number(rank)}" for rank in lens["target_rank"].tolist()]
        shares = lens["target_probability"].tolist()
        label = "target" if words.lang == "en" else words.name("value", "target")
        blocks += [
            "",
            f"{label}: {_isolated(name)}",
            *_blocks(layers, heads, ranks, shares, words, width or WIDTH, paint),
        ]
    return blocks


def color_of(probability: float) -> tuple[int, int]:
    """Background and ink of a cell, by their numbers among the 256 colours."""
    return RAMP[min(len(RAMP) - 1, max(0, int(probability * len(RAMP))))] if probability == probability else RAMP[0]


def _blocks(
    layers: Sequence[object],
    heads: Sequence[str],
    texts: Sequence[str],
    shares: Sequence[float],
    words: Words,
    width: int,
    paint: Paint,
) -> list[str]:
    """Rows of cells, the last layer first, as many positions beside each other as fit; texts and shares are [layer * pos]."""
    n_pos = len(heads)
    title = "layer" if words.lang == "en" else words.name("column", "layer")
    names = [str(layer) for layer in layers]
    left = max(columns(title), *map(columns, names))
    texts = [cut(text, WIDEST_TEXT) for text in texts]
    numbers = [_percent(share) for share in shares]
    tail = max(map(columns, numbers))
    wide = max(columns(text) for text in [*texts, *(cut(head, WIDEST_TEXT) for head in heads)])
    cell = wide + 1 + tail
    fit = max(1, (width - left) // (cell + _GAP))
    lines: list[str] = []
    for first in range(0, n_pos, fit):
        at = range(first, min(first + fit, n_pos))
        if lines:
            lines.append("")
        if n_pos > fit:
            lines.append(_row("", [_padded(str(p), cell) for p in at], left))
        lines.append(_row(title, [_padded(cut(heads[p], cell), cell) for p in at], left))
        for i in reversed(range(len(layers))):
            here = [i * n_pos + p for p in at]
            row = [paint(f"{_padded(texts[k], wide)} {numbers[k]:>{tail}}", shares[k]) for k in here]
            lines.append(_row(names[i], row, left))
    return lines


def _percent(share: float) -> str:
    return f"{round(100 * share)}" if share == share else "nan"


def _row(name: str, cells: Sequence[str], left: int) -> str:
    return (" " * (left - columns(name)) + name + "".join(" " * _GAP + cell for cell in cells)).rstrip(" ")


def _padded(text: str, width: int) -> str:
    """The text, as wide as its place; one that runs from right to left keeps its direction to itself."""
    return _isolated(text) + " " * max(0, width - columns(text))


def _isolated(text: str) -> str:
    is_foreign = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)
    return f"\u2068{text}\u2069" if is_foreign else text


def _token(text: str) -> str:
    shown = visible(str(text), marks_edges=True)
    # a mark without a letter would sit on whatever stands before it
    return f"◌{shown}" if shown and unicodedata.combining(shown[0]) else shown
