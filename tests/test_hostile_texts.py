"""Five hundred hostile texts outside the report: notebook, SVG, CSV, terminal, model card. The report has tests of its own."""

import base64
import csv
import io
import itertools
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import example_results as example
from commands import environment, screens
from oracles.hostile_strings import hostile_strings, tallest_pile, unseen
from test_notebook import TAGS, Elements
from unembed.checkpoints.convert import model_card
from unembed.cli.render import write_result
from unembed.pictures import draw, to_svg
from unembed.pictures.notebook import view
from unembed.results import Result, Table
from unembed.visible import MOST_MARKS, visible

TEXTS = hostile_strings()
SVG = "{http://www.w3.org/2000/svg}"
SVG_TAGS = {"svg", "defs", "style", "g", "path", "text", "rect", "line", "linearGradient", "stop", "clipPath", "title"}


def shows_nothing_unseen(text):
    return unseen(text) == set() and tallest_pile(text) <= MOST_MARKS


def table():
    return Result(name="t", tables={"t": Table(columns={"text": list(TEXTS), TEXTS[3]: range(len(TEXTS))})})


@pytest.mark.slow
def test_pictures_hold_them_as_text():
    for start in range(0, len(TEXTS), 50):
        result = example.lens("en", tokens=TEXTS[start : start + 50])
        svg = to_svg(draw(result.pictures[0], result.tables, lang="en"))
        assert {node.tag.removeprefix(SVG) for node in ET.fromstring(svg).iter()} <= SVG_TAGS
        assert shows_nothing_unseen(svg)
        assert not [name for node in ET.fromstring(svg).iter() for name in node.attrib if name.startswith("on")]


@pytest.mark.slow
def test_the_notebook_holds_them_as_text():
    values, columns = dict(itertools.pairwise(TEXTS)), {text: [text] for text in TEXTS}
    tables = {"words": Table(columns={"text": list(TEXTS)}), "wide": Table(columns=columns)}
    everywhere = Result(name=TEXTS[4], values=values, tables=tables, notes=TEXTS)
    for shown in (view(everywhere, "ko"), view(example.token_map("en", names=TEXTS), "es")):
        page = Elements(shown)
        assert {tag for tag, _ in page.found} <= TAGS
        assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
        assert shows_nothing_unseen(shown)
        for image in page.all("img"):
            assert shows_nothing_unseen(base64.b64decode(image["src"].partition(",")[2]).decode())
    assert all(visible(text, marks_edges=True)[:80] in Elements(view(everywhere, "en")).text for text in TEXTS[:60])


def test_csv_has_no_formula_and_no_control_but_line_ends():
    with screens() as (out, _):
        write_result(table(), "csv")
    rows = list(csv.reader(io.StringIO(out.text, newline="")))
    assert len(rows) == 1 + len(TEXTS)
    cells = [row[0] for row in rows[1:]]
    assert set(unseen("".join(cells))) <= {"U+000D", "U+0009"}
    for text, cell in zip(TEXTS, cells, strict=True):
        if text[0] in "=+-@" and cell[:1] != "'":
            float(cell)  # a number is no formula


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl", "csv"])
def test_no_control_character_reaches_a_terminal(output_format):
    """A real one: a pseudo-terminal, whose own line ends are the only controls that may come."""
    script = (
        "from unembed.cli.render import write_result, say\n"
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from oracles.hostile_strings import hostile_strings as h\n"
        "from unembed.results import Result, Table\n"
        "t = [x for x in h() if len(x) < 4000]\n"
        "table = Table(columns={'text': t, t[3]: t})\n"
        "write_result(Result(name='t', values=dict(zip(t, t[1:])), tables={'t': table}), sys.argv[1])\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script, output_format, os.path.dirname(__file__)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(NO_COLOR="1", TERM="xterm", PYTHONIOENCODING="utf-8"),
    )
    os.close(theirs)
    came = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed, as Linux says it
            break
        if not piece:
            break
        came += piece
    os.close(ours)
    assert process.wait(60) == 0, came[-2000:]
    text = came.decode("utf-8").replace("\r\n", "\n")
    assert len(text) > 10_000
    assert unseen(text) == set()


def test_a_model_card_keeps_its_form(monkeypatch):
    from small import small_model

    usual = model_card(small_model(), "GPT2LMHeadModel", "model")
    for text in TEXTS:
        card = model_card(small_model(), "GPT2LMHeadModel", text)
        assert card.count("\n") == usual.count("\n")
        assert shows_nothing_unseen(card)
        assert not re.search(r"(?<!\\)[<>`]", card.splitlines()[4])
