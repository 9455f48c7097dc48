"""Writing a run's report: every analysis that applies, one page, one file in the run's folder.

The next file to read is page.py, which lays the page out.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from unembed import catalogue
from unembed.analyses import ANALYSES, RunView
from unembed.report.page import build
from unembed.results import Result

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
    sections = list((analyse(view) if results is None else results).items())
    description = view.folder.description
    facts = {
        **{name: str(version) for name, version in description.get("versions", {}).items()},
        "data": _data(description.get("data", {})),
        "seed": str(description["config"]["seed"]),
    }
    title = catalogue.text("page.title", language, name=view.folder.path.resolve().name)
    page = build(title=title, sections=sections, lang=language, facts=facts, command=description.get("command", ""))
    if out is None:
        view.folder.write_text(REPORT, page)
        return view.folder.path / REPORT
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _data(data: dict[str, object]) -> str:
    """What the run read, in one line: names and numbers, nested ones after the name that holds them."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            parts.append(f"{key} ({_data(value)})")
        else:
            parts.append(f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return ", ".join(parts)
