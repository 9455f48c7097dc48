"""The README does what it says: each of its code blocks runs, in order, in an empty folder with a text `my.txt`.

pages.py says how a block is marked. The quick tests see that no block goes unmarked, and that the runner would notice.
"""

import os
from pathlib import Path

import pytest

from pages import Block, Command, blocks, commands_of, faults, missing

README = Path(__file__).parents[1] / "README.md"
# Enough for a recipe's windows and for a text of its own when there is no data folder.
LINE = "ROMEO: To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n"


def test_every_block_says_whether_it_is_run():
    unsaid = [block.line for block in blocks(README.read_text("utf-8")) if not block.runs and not reason(block)]
    assert unsaid == [], "put <!-- run -->, <!-- run, output --> or <!-- not run: reason --> above the fence"


def reason(block: Block) -> str:
    """Why a block is not run; "" when nobody says."""
    return block.told.partition("not run: ")[2]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the page speaks to a POSIX shell")
def test_every_block_runs_and_shows_what_comes(tmp_path):
    data = Path(os.environ.get("UNEMBED_TEST_DATA", "")) / "text" / "tinyshakespeare.txt"
    text = data.read_text(encoding="utf-8")[:200_000] if data.is_file() else LINE * 2_000
    (tmp_path / "my.txt").write_text(text, encoding="utf-8")
    assert faults(README.read_text(encoding="utf-8"), tmp_path) == []


PAGE = """
<!-- run, output -->
```console
$ echo step 3 of 9 && echo two
step 1 of 2
...
two
$ echo a \\
    b
a b
```

<!-- run -->
```python
x = 2
```

<!-- not run: it needs a network -->
```console
$ exit 9
```

```python
never
```

<!-- run -->
```python
assert x == 2
```
"""


def test_blocks_are_found_with_what_is_said_of_them():
    assert [(block.language, block.told) for block in blocks(PAGE)] == [
        ("console", "run, output"),
        ("python", "run"),
        ("console", "not run: it needs a network"),
        ("python", ""),
        ("python", "run"),
    ]
    assert [reason(block) for block in blocks(PAGE)] == ["", "", "it needs a network", "", ""]


def test_commands_are_told_from_their_output():
    assert commands_of(blocks(PAGE)[0]) == [
        Command("echo step 3 of 9 && echo two", ["step 1 of 2", "...", "two"]),
        Command("echo a \\\n    b", ["a b"]),
    ]
    with pytest.raises(ValueError, match="begins with a command"):
        commands_of(Block(1, "console", ["no command"], "run"))


@pytest.mark.skipif(os.name == "nt", reason="the page speaks to a POSIX shell")
def test_a_good_page_runs(tmp_path):
    assert faults(PAGE, tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="the page speaks to a POSIX shell")
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("echo two", "exit 3", "exit code 3"),
        ("\ntwo\n", "\nthree\n", "the page shows 'three'"),
        ("x == 2", "x == 3", "AssertionError"),
        ("x = 2", "y = 2", "NameError"),
        ("$ echo a", "$ unembed zzz; echo a", None),
        ("$ echo a", "$ unembed zzz && echo a", "no command is named 'zzz'"),
    ],
)
def test_seeded_fault_is_noticed(tmp_path, old, new, fault):
    found = faults(PAGE.replace(old, new, 1), tmp_path)
    if fault is None:
        assert len(found) == 1  # sh -e stops at the first failure
    else:
        assert any(fault in one for one in found), found


def test_shown_output_may_differ_in_numbers_and_leave_lines_out_but_not_change_order():
    came = "loss 1.234e-5\nval 2,000 nats\nend\n"
    assert missing(["loss 9.9e+3", "...", "end"], came) is None
    assert missing(["val -3 nats", ""], came) is None
    assert missing(["end", "loss 1"], came) == "loss 1"
    assert missing(["lost 1"], came) == "lost 1"
