"""Writing a run's report: every analysis that applies, one page, one file in the run's folder.

The next file to read is page.py, which lays the page out.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unembed import catalogue
from unembed.analyses import ANALYSES
from unembed.errors import RunError
from unembed.places import check_output
from unembed.report.page import build
from unembed.report.place import check_page
from unembed.results import Result
from unembed.views.run import RunView

REPORT = "report.html"


def analyse(view: RunView) -> dict[str, Result]:
    """Every analysis that applies to a run, by name, in the order of the page."""
    return {analysis.name: analysis.make(view) for analysis in ANALYSES if analysis.applies(view)}


def write_report(
    run: str | Path,
    out: str | Path | None = None,
    *,
    lang: str | None = None,
    results: Mapping[str, Result] | None = None,
) -> Path:
    """Writes the page and returns its path: `out`, or report.html in the run; `results` spares analysing a second time.

    Raises: RunError, UsageError.
    """
    view = RunView.open(run)
    language = catalogue.choose(lang, os.environ)
    if out is None:
        check_output(view.folder.path / REPORT, RunError)
    else:
        check_page(out)
    sections = list((analyse(view) if results is None else results).items())
    description = view.folder.description
    config = description.get("config", {})
    facts = {
        **{name: str(version) for name, version in description.get("versions", {}).items()},
        "recipe": config.get("recipe"),
        "seed": str(config.get("seed")),
        **dict(_flat(description.get("data", {}))),
    }
    title = catalogue.text("page.title", language, name=view.folder.path.resolve().name)
    page = build(title=title, sections=sections, lang=language, facts=facts, command=command_of(description))
    if out is None:
        view.folder.write_text(REPORT, page)
        return view.folder.path / REPORT
    path = Path(out)
    path.write_text(page, encoding="utf-8")
    return path


def command_of(description: Mapping[str, Any]) -> str:
    """The command that made a run, quoted for a shell: the one noted in run.json, or one with the same effect.

    A run begun from Python has noted none; its recipe, its settings and the names of its files say the same.
    """
    noted = description.get("command")
    if isinstance(noted, str) and noted:
        return noted
    recipe, data = description.get("config", {}).get("recipe"), description.get("data", {})
    sources = [str(source) for source in data.get("sources", [])]
    settings = [("--set", f"{name}={value}") for name, value in description.get("settings", {}).items()]
    words = ["unembed", "train", *sources, "--recipe", str(recipe), *(word for pair in settings for word in pair)]
    return shlex.join(words)


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What the run read: nested names joined by dots, such as `grammar.language`. The files have a section of their own."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "files":
            # a seed is a name, not an amount: no groups of three
            yield prefix + name, str(value) if name == "seed" else value
