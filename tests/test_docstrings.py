"""Every module and everything public in it says what it is for; and the file that a module sends its reader to is there.

What is public: a name without a leading underscore, at the top of a module or in a public class. Overloads and property
setters repeat another function's name and need no second text; what a Protocol asks for is said there, once, and not
again by each class that has it (a Protocol's properties are its fields, and its class says what they hold). Next to
read: test_generated_docs.py.
"""

import ast
import re
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


def is_protocol(node: Def) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases)


def protocol_members(source: str) -> set[str]:
    """Names that some Protocol of this source asks for."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and is_protocol(node)]
    return {name for node in classes for name, _ in public_definitions(node.body)}


def undocumented(source: str, said_by_protocols: frozenset[str] = frozenset()) -> list[str]:
    """Line and name of everything public without a docstring, the module itself first."""
    tree = ast.parse(source)
    faults = [] if ast.get_docstring(tree) else ["1: the module"]
    definitions = dict(public_definitions(tree.body))
    for name, node in definitions.items():
        owner, _, own_name = name.rpartition(".")
        decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
        in_protocol = bool(owner) and is_protocol(definitions[owner])
        is_excused = ("property" in decorators) if in_protocol else bool(owner) and own_name in said_by_protocols
        if not (is_excused or decorators & {"overload", "setter", "deleter"} or ast.get_docstring(node)):
            faults.append(f"{node.lineno}: {name}")
    return faults


def lost_guides(docstring: str, folder: Path) -> list[str]:
    """Each file that a docstring sends its reader to, from its own folder or from src/unembed, and that is not there."""
    sends = r"(?:next to read|file to read is|next|before it|after it):?\s+((?:\.\./)*(?:\w+/)*\w+\.py)\b"
    named = [match[1] for match in re.finditer(sends, docstring, flags=re.IGNORECASE)]
    return [name for name in named if not ((folder / name).is_file() or (SRC / name).is_file())]


@pytest.fixture(scope="module")
def said_by_protocols() -> frozenset[str]:
    return frozenset().union(*(protocol_members(path.read_text(encoding="utf-8")) for path in FILES))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_everything_public_is_documented(path, said_by_protocols):
    assert undocumented(path.read_text(encoding="utf-8"), said_by_protocols) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_the_next_file_to_read_is_there(path):
    assert lost_guides(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "", path.parent) == []


def test_seeded_lost_guides_are_caught():
    folder = SRC / "checkpoints"
    assert lost_guides("Text. Next to read: gone.py. Before it:\n../gone.py, which", folder) == [
        "gone.py",
        "../gone.py",
    ]
    assert lost_guides("The next file to read is run/gone.py.", folder) == ["run/gone.py"]
    assert lost_guides("Next to read: ../training/loop.py. Before it: files.py, training/loop.py.", folder) == []


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


def test_a_protocol_speaks_for_its_implementers_and_only_for_them():
    source = """'Module.'
class Coder(Protocol):
    'Text.'
    @property
    def kind(self): ...
    def encode(self): ...
class Words:
    'Text.'
    def encode(self): ...
    def train(self): ...
def encode(): ...
"""
    assert protocol_members(source) == {"kind", "encode"}
    found = undocumented(source, frozenset(protocol_members(source)))
    assert found == ["6: Coder.encode", "10: Words.train", "11: encode"]
