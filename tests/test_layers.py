"""Keeps the folders in the order in which data flows, and the few things that only one folder may do.

An import may only point down the table LAYERS; packages on one line do not know each other. What is read is the source
text, so that imports inside functions, under TYPE_CHECKING and in lazy tables ("unembed.cli.tour") count as well. Each
rule is also tried on a bad source, because a test that cannot fail keeps nothing. Next to read: test_docstrings.py.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "unembed"

# From the ground up. The first line of the design is three here: everything raises errors, and a picture is drawn from
# a result with the words of a catalogue.
LAYERS = (
    ("errors", "visible"),
    ("runtime", "catalogue", "results", "places", "arguments"),
    ("model_names",),
    ("pictures",),
    ("tokenizers", "model"),
    ("corpora", "objectives", "optim", "generation"),
    ("checkpoints",),
    ("counting",),
    ("training", "tying", "lenses", "geometry", "planning"),
    ("recipes", "verify", "views"),
    ("analyses",),
    ("report",),
    ("python", "cli"),
    ("__main__",),
)
# The same inside checkpoints/: from bytes on disk to any MODEL that a user may name.
CHECKPOINTS = (
    ("files",),
    ("beside",),
    ("formats",),
    ("run", "rules"),
    ("families",),
    ("foreign",),
    ("load",),
    ("convert", "inspect"),
)
# The one call upward: a Result shows itself in a notebook, and what shows it is made of results. It is imported when shown.
UPWARD = {("results", "unembed.catalogue"), ("results", "unembed.pictures.notebook")}
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}

# Counting and describing a model, and reading text, must answer at once: importing torch alone takes seconds.
TORCH_FREE = (
    "errors",
    "visible",
    "catalogue",
    "results",
    "tokenizers",
    "model.spec",
    "model.counts",
    "counting",
    "cli.main",
)

FILES = [path for path in sorted(SRC.rglob("*.py")) if path != SRC / "__init__.py"]


def module_of(path: Path) -> str:
    """`src/unembed/model/spec.py` -> `model.spec`; a package's `__init__.py` -> the package."""
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def lazy_name(value: object) -> str | None:
    """`unembed.lenses.trace` if a constant is "unembed.lenses.trace" or "unembed.lenses.trace:run", else None.

    The tap "unembed.table" and the tensor names of a head look like it, but name no package.
    """
    match = re.fullmatch(r"(unembed\.(\w+)(\.\w+)*)(:\w+)?", value) if isinstance(value, str) else None
    return match[1] if match and match[2] in LEVEL else None


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a source imports, by statement or by a name in a string."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    package = ["unembed", *module.split(".")][: None if is_package else -1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings and (name := lazy_name(node.value)):
            yield node.lineno, name


def direction_faults(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Every import of a source that points up or sideways, as `line: what is wrong`."""
    unit = module.split(".")[0]
    if unit not in LEVEL:
        return [f"1: {unit} stands in no layer; give it a line in LAYERS"]
    faults = []
    for line, name in imports(source, module, is_package=is_package):
        root, *rest = name.split(".")
        if root != "unembed" or rest == ["__version__"]:
            continue
        target = rest[0] if rest else ""
        if target == unit or (module, name) in UPWARD:
            continue
        if target not in LEVEL:
            faults.append(f"{line}: {unit} imports {name}, which is for users: import the module that defines it")
        elif LEVEL[target] >= LEVEL[unit]:
            way = "beside it" if LEVEL[target] == LEVEL[unit] else "above it"
            faults.append(f"{line}: {unit} imports {name}, which stands {way}")
    return faults


def checkpoints_faults(source: str, module: str) -> list[str]:
    """Every import of a source of checkpoints/ that points up or sideways in CHECKPOINTS, as `line: what is wrong`."""
    level = {unit: level for level, units in enumerate(CHECKPOINTS) for unit in units}
    unit = module.split(".")[1]
    if unit not in level:
        return [f"1: checkpoints/{unit} stands in no line of CHECKPOINTS; give it one"]
    faults = []
    for line, name in imports(source, module):
        target = (
            name.removeprefix("unembed.checkpoints.").split(".")[0] if name.startswith("unembed.checkpoints.") else unit
        )
        if target != unit and level[target] >= level[unit]:
            faults.append(f"{line}: {unit} imports {name}")
    return faults


def torch_faults(source: str, module: str) -> list[str]:
    """Every import of torch in a source that must do without."""
    return [
        f"{line}: {module} imports {name}" for line, name in imports(source, module) if name.split(".")[0] == "torch"
    ]


def output_faults(source: str) -> list[str]:
    """Every way to standard output that a source outside cli/ takes."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            faults.append(f"{node.lineno}: print(...)")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.__stdout__", "click.echo"}:
            faults.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and node.module in {"sys", "click"}:
            taken = {alias.name for alias in node.names} & {"stdout", "__stdout__", "echo"}
            faults.extend(f"{node.lineno}: from {node.module} import {name}" for name in sorted(taken))
    return faults


def hook_faults(source: str, module: str) -> list[str]:
    """Module hooks anywhere; hooks on a tensor's gradient outside tying/."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"register_\w*hook", node.attr):
            on_tensor = node.attr in {"register_hook", "register_post_accumulate_grad_hook"}
            if not (on_tensor and module.split(".")[0] == "tying"):
                faults.append(f"{node.lineno}: {node.attr}")
    return faults


def test_there_are_sources_to_check():
    assert SRC / "errors.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down(path):
    source = path.read_text(encoding="utf-8")
    assert direction_faults(source, module_of(path), is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).startswith("checkpoints.")], ids=module_of)
def test_imports_inside_checkpoints_point_down(path):
    assert checkpoints_faults(path.read_text(encoding="utf-8"), module_of(path)) == []


def test_seeded_wrong_direction_inside_checkpoints_is_caught():
    source = "from unembed.checkpoints.run import native\nfrom unembed.checkpoints.files import DISK"
    assert checkpoints_faults(source, "checkpoints.formats.safetensors") == [
        "1: formats imports unembed.checkpoints.run.native"
    ]
    assert checkpoints_faults(source, "checkpoints.foreign.huggingface") == []
    assert checkpoints_faults(source, "checkpoints.rules.names") == ["1: rules imports unembed.checkpoints.run.native"]
    (fault,) = checkpoints_faults("", "checkpoints.helpers")
    assert fault.startswith("1: checkpoints/helpers stands in no line")


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).split(".")[0] != "cli"], ids=module_of)
def test_only_cli_writes_to_standard_output(path):
    assert output_faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_nothing_hooks_modules_and_only_tying_hooks_gradients(path):
    assert hook_faults(path.read_text(encoding="utf-8"), module_of(path)) == []


def is_torch_free(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in TORCH_FREE)


@pytest.mark.parametrize("path", [p for p in FILES if is_torch_free(module_of(p))], ids=module_of)
def test_torch_free_sources_name_no_torch(path):
    assert torch_faults(path.read_text(encoding="utf-8"), module_of(path)) == []


def test_torch_free_modules_load_no_torch_through_others():
    modules = ["unembed", *(f"unembed.{module_of(p)}" for p in FILES if is_torch_free(module_of(p)))]
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{name} loads torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        (
            "model.block",
            "import unembed.training.loop",
            "1: model imports unembed.training.loop, which stands above it",
        ),
        (
            "model.block",
            "from unembed.tokenizers import base",
            "1: model imports unembed.tokenizers.base, which",
        ),
        ("optim.adamw", "def f():\n    from unembed import cli", "2: optim imports unembed.cli, which stands above it"),
        (
            "model.block",
            "from ..lenses.trace import Trace",
            "1: model imports unembed.lenses.trace.Trace, which",
        ),
        ("model.block", "from .. import results, report", "1: model imports unembed.report, which stands above it"),
        ("results", "TABLE = {'lens': 'unembed.lenses.trace:run'}", "1: results imports unembed.lenses.trace, which"),
        ("corpora.text", "from unembed import load", "1: corpora imports unembed.load, which is for users"),
        (
            "errors",
            "from unembed.results import Result",
            "1: errors imports unembed.results.Result, which",
        ),
        ("helpers", "", "1: helpers stands in no layer"),
    ],
)
def test_seeded_wrong_direction_is_caught(module, source, fault):
    (found,) = direction_faults(source, module)
    assert found.startswith(fault)


def test_package_init_resolves_relative_imports_from_itself():
    assert direction_faults("from .block import Block", "model", is_package=True) == []
    assert direction_faults("from ..report import page", "model", is_package=True) == [
        "1: model imports unembed.report.page, which stands above it"
    ]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("model.block", "import torch\nfrom .attention import Attention\nfrom ..errors import SpecError"),
        ("pictures", "from unembed.catalogue import text\nfrom unembed.results import Picture"),
        ("cli.tour", "def run():\n    from unembed.training import loop\n    from unembed import __version__"),
        ("model.taps", "TAPS = ('embed.table', 'unembed.table')"),
        ("model.block", '"""unembed.training is above; a docstring may say so."""'),
    ],
)
def test_right_direction_passes(module, source):
    assert direction_faults(source, module) == []


def test_seeded_output_hooks_and_torch_are_caught():
    assert output_faults("import sys\nprint('x')\nsys.stdout.write('y')") == ["2: print(...)", "3: sys.stdout"]
    assert output_faults("from sys import stdout, stderr") == ["1: from sys import stdout"]
    assert output_faults('"""\n>>> print(1)\n"""\nlogger.info("print")') == []
    assert hook_faults("layer.register_forward_hook(f)", "tying.gradients") == ["1: register_forward_hook"]
    assert hook_faults("table.register_hook(f)", "tying.gradients") == []
    assert hook_faults("table.register_hook(f)", "training.loop") == ["1: register_hook"]
    assert torch_faults("def f():\n    from torch import nn", "model.spec") == ["2: model.spec imports torch.nn"]
