"""docs/add/family.md quotes the files that it tells about, and keeps its promise of a family in under 150 lines."""

import re
from pathlib import Path

import pytest

from parity import BY_NAME
from unembed.checkpoints.families import FAMILIES

ROOT = Path(__file__).parents[1]
DOC = (ROOT / "docs" / "add" / "family.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^From `([^`]+)`:\n\n```python\n(.*?)^```", DOC, flags=re.DOTALL | re.MULTILINE)
FAMILY_FILE, PARITY_FILE = "src/unembed/checkpoints/families/stablelm.py", "tests/parity/stablelm.py"


def test_every_block_of_code_is_quoted_from_a_file():
    assert DOC.count("```python") == len(QUOTED) == 5


@pytest.mark.parametrize(("path", "code"), QUOTED, ids=lambda one: one.splitlines()[0][:40])
def test_quoted_code_stands_in_its_file(path, code):
    assert code in (ROOT / path).read_text(encoding="utf-8")


def test_the_whole_family_is_shown():
    """All but the head of each file: docstring and imports."""
    for path, first in ((FAMILY_FILE, "def read("), (PARITY_FILE, "BASE = ")):
        text = (ROOT / path).read_text(encoding="utf-8")
        shown = "".join(code for file, code in QUOTED if file == path)
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text[text.index(first) :])


def test_a_family_takes_under_150_lines():
    lines = sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in (FAMILY_FILE, PARITY_FILE))
    assert lines < 150


def test_it_is_registered_by_one_line_in_each_of_two_tuples():
    assert "stablelm" in [family.name for family in FAMILIES]
    assert "stablelm" in BY_NAME
    for path, line in (
        ("src/unembed/checkpoints/families/__init__.py", "    stablelm.FAMILY,\n"),
        ("tests/parity/__init__.py", "    stablelm.PARITY,\n"),
    ):
        assert (ROOT / path).read_text(encoding="utf-8").count(line) == 1


def test_every_family_of_transformers_is_held_against_it():
    assert set(BY_NAME) == {family.name for family in FAMILIES if family.model_types}


def test_files_and_methods_that_it_names_exist():
    from unembed.checkpoints.rules.accounting import ConfigReader

    for name in ("integer", "number", "flag", "one_of", "layers", "integer_or_null", "number_or_null", "only"):
        assert f"`{name}" in DOC
        assert hasattr(ConfigReader, name)
    for name in set(re.findall(r"`(?:tests/parity/)?(test_\w+\.py)`", DOC)):
        assert (ROOT / "tests" / "parity" / name).is_file(), name
    for name in set(re.findall(r"`((?:families|checkpoints|model)/[\w/]+\.py)`", DOC)):
        folder = "checkpoints/" + name if name.startswith("families") else name
        assert (ROOT / "src" / "unembed" / folder).is_file(), name
