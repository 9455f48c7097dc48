"""docs/walk.md says what is so: each file, function, tensor and shape of it, in the order in which the code does them.

The page is prose with facts in it; these are what this test reads, and all else is free:

- a code block ```python with the line `ids = [7, 12, ...]`: what is put through a mini-gpt to see the shapes;
- a code block without a language that draws `src/unembed/`, a folder or file a line, indented, with a remark after it: its
  order is the order of the house;
- Markdown tables with the columns `step`, `file`, `function`, `tensor`, `shape`. A step begins with its number, counted
  through the whole page from 1. File (below src/unembed) and function (`name` or `Class.name`) stand in code spans. Tensor
  is the full name of a tap, or empty, and shape its size, `[1, 5, 64]`. The function named must have returned the
  tensor, or be running when the tap is called; taps come in the order of the rows;
- code spans anywhere that look like a file, or like `Class.method`, must exist; bracketed sizes in prose must be the size
  of some tap.

`faults` gives all that is wrong with a page, so that the test can be tried on pages that are wrong.
"""

import ast
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
import torch

from unembed.model.init import Gpt2Init, build
from unembed.model.presets import preset
from unembed.model.taps import tap_names

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "unembed"
PAGE = ROOT / "docs" / "walk.md"
COLUMNS = ["step", "file", "function", "tensor", "shape"]


class Step(NamedTuple):
    """One row of a table, cell by cell, code spans opened."""

    step: str
    file: str
    function: str
    tensor: str
    shape: str


class Seen(NamedTuple):
    """A tap that was called: its size, and whose work it is, as (file, qualified name)."""

    shape: list[int]
    whose: frozenset[tuple[str, str]]


class Watch:
    """A tap that notes the size of a tensor, which functions are at work, and which of them has returned this tensor.

    Its `profile` is handed to `sys.setprofile`, which calls it at each return.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self._prefix = ""
        self._returned: list[tuple[torch.Tensor, tuple[str, str]]] = []

    def profile(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if event == "return" and code.co_filename.startswith(str(SRC)) and isinstance(value, torch.Tensor):
            self._returned.append((value, (code.co_filename, code.co_qualname)))

    def __call__(self, name: str, value: torch.Tensor, /) -> torch.Tensor:
        whose = {place for tensor, place in self._returned if tensor is value}
        frame = sys._getframe(1)
        while frame is not None:
            whose.add((frame.f_code.co_filename, frame.f_code.co_qualname))
            frame = frame.f_back
        self.seen[self._prefix + name] = Seen(list(value.shape), frozenset(whose))
        return value

    def inside(self, layer: int, /) -> "Watch":
        inner = Watch()
        inner.seen, inner._returned, inner._prefix = self.seen, self._returned, f"blocks.{layer}."
        return inner


@cache
def watch(ids: tuple[int, ...]) -> dict[str, Seen]:
    """Every tap of one forward of mini-gpt, in the order of the calls."""
    model = build(preset("mini-gpt").spec, Gpt2Init(std=0.02), seed=0)
    tap = Watch()
    with torch.no_grad():
        before = sys.getprofile()
        sys.setprofile(tap.profile)
        try:
            model(torch.tensor([list(ids)]), tap=tap, attention="explicit")
        finally:
            sys.setprofile(before)
    assert list(tap.seen) == tap_names(model.spec)
    return tap.seen


def steps(text: str) -> list[Step]:
    """All rows of the tables whose header is that of a walk."""
    rows, is_walk = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_walk = False
            continue
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if cells == COLUMNS:
            is_walk = True
        elif is_walk and not set("".join(cells)) <= set("-: "):
            rows.append(Step(*(cells + [""] * 5)[:5]))
    return rows


def drawing(text: str) -> list[str]:
    """The folders and files of the drawn house, in its order: `tokenizers`, `objectives.py`, ..."""
    match = re.search(r"^```\nsrc/unembed/\n(.*?)^```", text, flags=re.M | re.S)
    lines = match[1].splitlines() if match else []
    return [line.split()[0].rstrip("/") for line in lines if line.startswith("  ") and not line.startswith("   ")]


@cache
def defined(path: Path) -> set[str]:
    """Names of a file's functions, classes and methods (`Class.method`)."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def is_its_work(seen: Seen, step: Step) -> bool:
    """Whether the function that a row names returned its tensor, or was running when the tap was called."""
    return any(Path(file) == SRC / step.file and name == step.function for file, name in seen.whose)


def faults(text: str) -> list[str]:
    """Everything on a page that is not so."""
    found = re.search(r"^ids = \[([\d, ]+)\]$", text, flags=re.M)
    if found is None:
        return ["no line `ids = [...]`"]
    seen = watch(tuple(int(number) for number in found[1].split(",")))
    rows, house = steps(text), drawing(text)
    return [*_row_faults(rows, seen), *_order_faults(rows, house, list(seen)), *_prose_faults(text, seen)]


def _row_faults(rows: list[Step], seen: dict[str, Seen]) -> list[str]:
    wrong = []
    for number, step in enumerate(rows, start=1):
        path = SRC / step.file
        if not step.step.startswith(f"{number}. "):
            wrong.append(f"step {number} is called {step.step!r}")
        if not path.is_file():
            wrong.append(f"step {number}: no file {step.file}")
            continue
        if step.function not in defined(path):
            wrong.append(f"step {number}: {step.file} has no {step.function}")
        if bool(step.tensor) != bool(step.shape):
            wrong.append(f"step {number}: a tensor and a shape go together")
        elif step.tensor and step.tensor not in seen:
            wrong.append(f"step {number}: no tap is called {step.tensor}")
        elif step.tensor:
            if step.shape != str(seen[step.tensor].shape):
                wrong.append(f"step {number}: {step.tensor} is {seen[step.tensor].shape}, not {step.shape}")
            if not is_its_work(seen[step.tensor], step):
                wrong.append(f"step {number}: {step.tensor} is not the work of {step.function}")
    return wrong


def _order_faults(rows: list[Step], house: list[str], taps: list[str]) -> list[str]:
    wrong = [f"the drawing has {name}, which is not there" for name in house if not (SRC / name).exists()]
    visited = list(dict.fromkeys(step.file.split("/")[0] for step in rows))
    if visited != house:
        wrong.append(f"the steps visit {visited}, the drawing shows {house}")
    for earlier, later in pairwise(rows):
        units = [step.file.split("/")[0] for step in (earlier, later)]
        if all(unit in house for unit in units) and house.index(units[0]) > house.index(units[1]):
            wrong.append(f"{later.step!r} goes back from {units[0]} to {units[1]}")
    named = [taps.index(step.tensor) for step in rows if step.tensor in taps]
    if named != sorted(set(named)):
        wrong.append("the tensors are not in the order of the calls")
    return wrong


def _prose_faults(text: str, seen: dict[str, Seen]) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", prose)
    names = {name for path in sorted(SRC.rglob("*.py")) for name in defined(path)}
    wrong = [
        f"no file {span}"
        for span in spans
        if re.fullmatch(r"[\w/]+\.(py|md|json)", span) and not any((base / span).exists() for base in (SRC, ROOT))
    ]
    wrong += [
        f"nothing is called {span}" for span in spans if re.fullmatch(r"[A-Z]\w+\.\w+", span) and span not in names
    ]
    shapes = {str(one.shape) for one in seen.values()}
    lines = "\n".join(line for line in prose.splitlines() if not line.startswith("|"))
    return wrong + [f"no tap is {shape}" for shape in re.findall(r"\[\d+(?:, \d+)+\]", lines) if shape not in shapes]


def test_everything_on_the_page_is_so():
    assert faults(PAGE.read_text(encoding="utf-8")) == []


def test_the_page_walks_the_whole_way():
    rows = steps(PAGE.read_text(encoding="utf-8"))
    assert len(rows) >= 20
    assert {"embed", "logits"} <= {step.tensor for step in rows}
    assert len(drawing(PAGE.read_text(encoding="utf-8"))) >= 10


GOOD = """
```python
ids = [1, 2, 3]
```

```
src/unembed/
  model/          ids -> scores
  lenses/         what each layer would say
```

| step | file | function | tensor | shape |
|---|---|---|---|---|
| 1. A row | `model/embed.py` | `Embed.forward` | `embed` | [1, 3, 64] |
| 2. A view | `model/masks.py` | `visibility` | | |
| 3. Scores | `model/head.py` | `Head.forward` | `logits` | [1, 3, 64] |
| 4. A lens | `lenses/logit_lens.py` | `logit_lens` | | |

`Transformer.forward` in `model/transformer.py` uses a table of [64, 64].
"""


def test_a_good_page_has_no_faults():
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("ids = [1, 2, 3]", "numbers", "no line `ids = [...]`"),
        ("ids = [1, 2, 3]", "ids = [1, 2, 3, 4]", "embed is [1, 4, 64], not [1, 3, 64]"),
        ("[1, 3, 64] |\n| 2", "[1, 64, 3] |\n| 2", "embed is [1, 3, 64], not [1, 64, 3]"),
        ("3. Scores", "4. Scores", "step 3 is called '4. Scores'"),
        ("`model/masks.py`", "`model/mask.py`", "no file model/mask.py"),
        ("`visibility`", "`visible`", "model/masks.py has no visible"),
        ("`Embed.forward`", "`forward`", "model/embed.py has no forward"),
        ("`logits`", "`scores`", "no tap is called scores"),
        ("`embed` |", "`blocks.0.q` |", "blocks.0.q is not the work of Embed.forward"),
        ("`embed` |", "`logits` |", "the tensors are not in the order of the calls"),
        ("| [1, 3, 64] |\n| 2", "| |\n| 2", "a tensor and a shape go together"),
        ("  lenses/ ", "  lens/ ", "the drawing has lens, which is not there"),
        ("  lenses/ ", "  lens/ ", "the steps visit ['model', 'lenses'], the drawing shows ['model', 'lens']"),
        ("| 4. A lens", "| 4. Back | `lenses/logit_lens.py` | `logit_lens` | | |\n| 5. A lens", None),
        (
            "`visibility` |",
            "`visibility` | | |\n| 3. x | `lenses/tables.py` | `top_table` |",
            "goes back from lenses to model",
        ),
        ("`Transformer.forward`", "`Transformer.backward`", "nothing is called Transformer.backward"),
        ("`model/transformer.py`", "`model/transformers.py`", "no file model/transformers.py"),
        ("[64, 64]", "[64, 65]", "no tap is [64, 65]"),
    ],
)
def test_seeded_fault_is_found(old, new, fault):
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1))
    if fault is None:
        assert found == []
    else:
        assert any(fault in one for one in found), found
