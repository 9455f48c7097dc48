"""Every module and everything public in it says what it is for.

What is public: a name without a leading underscore, at the top of a module or in a public class. Overloads and property
setters repeat another function's name and need no second text. Next to read: test_generated_docs.py.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "unembed"
FILES = sorted(SRC.rglob("*.py"))
Def = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Def]]:
    """Dotted name and node of each public function, class and method, also of those defined under an `if` or `try`."""
    for node in body:
        if isinstance(node, Def) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from public_definitions([*node.body, *node.orelse], prefix)


def undocumented(source: str) -> list[str]:
    """Line and name of everything public without a docstring, the module itself first."""
    tree = ast.parse(source)
    faults = [] if ast.get_docstring(tree) else ["1: the module"]
    for name, node in public_definitions(tree.body):
        decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
        if not decorators & {"overload", "setter", "deleter"} and not ast.get_docstring(node):
            faults.append(f"{node.lineno}: {name}")
    return faults


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_everything_public_is_documented(path):
    assert undocumented(path.read_text(encoding="utf-8")) == []


def test_seeded_omissions_are_caught():
    source = """
def f(): ...
def _g(): ...
class A:
    'Text.'
    def run(self): ...
    def __len__(self): ...
    @property
    def size(self):
        'Text.'
    @size.setter
    def size(self, value): ...
class _B:
    def run(self): ...
"""
    assert undocumented(source) == ["1: the module", "2: f", "6: A.run"]
