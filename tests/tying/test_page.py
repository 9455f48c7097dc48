"""docs/tying.md does what it says: its first section to the last digit, and each block in order.

In a Python block `# > ` begins a line that the prints above it must have written, exactly. pages.py runs the rest.
"""

import io
import os
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from pages import blocks, faults

PAGE = (Path(__file__).parents[2] / "docs" / "tying.md").read_text(encoding="utf-8")
EXAMPLE = [block for block in blocks(PAGE) if block.language == "python"][:2]
LINE = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n"


def printed(lines, names):
    """What a block prints."""
    with redirect_stdout(io.StringIO()) as out:
        exec("\n".join(lines), names)
    return out.getvalue().splitlines()


def promised(lines):
    return [line.removeprefix("# > ") for line in lines if line.startswith("# > ")]


def test_the_worked_example_prints_what_it_promises():
    names = {}
    for block in EXAMPLE:
        assert printed(block.lines, names) == promised(block.lines) != []


def test_oracle_the_worked_example_is_that_of_the_documents():
    """h and logits as given: greedy picks "the"; 1 x 4 times 4 x 5 is 1 x 5; tying saves 20. By NumPy alone."""
    names = {}
    printed(EXAMPLE[0].lines, names)
    table, hidden = names["E"].detach().numpy(), names["h"].numpy()
    assert hidden.tolist() == [[0.9, -1.2, 0.4, 2.0]]
    assert np.einsum("bd,vd->bv", hidden, table).tolist()[0] == pytest.approx([3.1, 0.5, -0.8, 1.7, 0.2], abs=1e-12)
    assert table.size == 20
    lines = promised(EXAMPLE[0].lines)
    assert lines[0] == "[1, 4] x [4, 5] -> [1, 5]"
    assert lines[6] == "greedy: the"
    assert lines[-1].endswith("20 more numbers")


def test_every_block_says_whether_it_is_run():
    assert [block.line for block in blocks(PAGE) if not block.runs and "not run: " not in block.told] == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the page speaks to a POSIX shell")
def test_every_block_runs_and_shows_what_comes(tmp_path):
    (tmp_path / "my.txt").write_text(LINE * 200, encoding="utf-8")
    assert faults(PAGE, tmp_path) == []
