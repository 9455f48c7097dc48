"""One result as a page: what was asked of one model, with its pictures, tables and notes. Before it: page.py.

The page is that of a run's report with a single section, so whatever holds there holds here: no request, every text escaped,
each picture reached by keyboard, its table beside it.
"""

import importlib.metadata
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np

from unembed import catalogue
from unembed.pictures.rows import shorten
from unembed.report.page import build
from unembed.report.place import check_page
from unembed.results import Result, to_plain
from unembed.visible import visible


def one_page(result: Result, *, lang: str, command: str, model: str | None = None) -> str:
    """The page as text. `command` is how it is made again, `model` the name that stands in its title.

    Values that are lists or arrays are for programs and left out; a table says the same.
    """
    words = catalogue.load(lang)
    what = words.find(f"section.{result.name}.title") or result.name
    title = what if model is None else words.text("page.title_one", what=what, name=shorten(visible(model), words))
    single = {
        name: value
        for name, value in result.values.items()
        if not np.ndim(value) and not isinstance(to_plain(value), list)
    }
    facts = {
        **{name: importlib.metadata.version(name) for name in ("unembed", "torch", "numpy")},
        "python": platform.python_version(),
    }
    sections = [(result.name, replace(result, values=single))]
    return build(title=title, sections=sections, lang=lang, facts=facts, command=command, lead="page.lead_one")


def write_one(result: Result, path: str | Path, *, lang: str, command: str, model: str | None = None) -> None:
    """Writes the page. Raises: RunError where a file that is no page of ours would be lost (place.py)."""
    check_page(path)
    page = one_page(result, lang=lang, command=command, model=model)
    Path(path).write_text(page, encoding="utf-8")
