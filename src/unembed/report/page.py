"""Puts the results of a run into one HTML file that needs nothing else: no server, no network, no folder beside it.

The page holds its style, its data, the drawing library (once) and the script that draws. A content policy in its head
forbids every request and every script but those two, whatever a token's text may try. Before it: parts.py, the pieces of
a section; style.css and draw.js stand beside this file.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from unembed import catalogue
from unembed.catalogue import Words
from unembed.pictures import PALETTES, choice, theme
from unembed.pictures.markup import Html, element, escaped, join, script_json
from unembed.report.drawings import Drawings
from unembed.report.parts import figures, notes, tiles
from unembed.report.tables import tables
from unembed.results import Result, to_plain

# Of the bundle's three names only this one works by itself: its `vega` and `vegaLite` are null.
GENERATOR = str(element("meta", name="generator", content="unembed"))
_BUNDLE = "window.vegaEmbed = vegaEmbed;"


def build(
    *,
    title: str,
    sections: Sequence[tuple[str, Result]],
    lang: str,
    facts: Mapping[str, Any],
    command: str,
    lead: str = "page.lead",
) -> str:
    """The whole page as text, to be written as UTF-8.

    Each section is a name and a Result: the catalogue's `section.<name>.title` and `.text`, the values, pictures and
    tables of the result, and its notes. A name that no catalogue knows goes by itself. The last section says how to make
    the page again: `command` and `facts` (versions and data, by their names in the catalogue; a value is written as the
    language writes it, and `choice.<name>.<value>` is its word where there is one). `lead` is the catalogue's key of what
    the page says first.
    Raises: UsageError if there is no such language.
    """
    words = catalogue.load(lang)
    drawings = Drawings()
    named = _with_ids(sections)
    bodies = [_section(key, name, result, words, drawings) for key, name, result in named]
    bodies.append(_reproduce(command, facts, words))
    links = [(key, _title(name, words)) for key, name, _ in named] + [("reproduce", _title("reproduce", words))]
    verdict = _verdict([result.values for _, result in sections], words)
    header = element(
        "header",
        element("p", "unembed", class_="brand"),
        element("h1", title),
        *(element("p", sentence, class_="verdict") for sentence in verdict),
        element("p", words.text(lead), class_="lead"),
        element("noscript", element("p", words.text("page.no_script"), class_="note")) if drawings.is_used else Html(),
        class_="hero",
    )
    items = [element("li", element("a", text, href=f"#{key}")) for key, text in links]
    nav = element(
        "nav", element("h2", words.text("page.contents")), element("ol", *items), aria_label=words.text("page.contents")
    )
    main = element("main", *bodies, id="content", tabindex=-1)
    skip = element("a", words.text("page.skip"), href="#content", class_="skip")
    footer = element("footer", element("p", words.text("page.footer")))
    scripts = _scripts(drawings, words) if drawings.is_used else []
    body = element("body", skip, header, element("div", nav, main, class_="columns"), footer, *scripts)
    page = element("html", _head(title, scripts), body, lang=lang)
    return f"<!doctype html>\n{page}\n"


def _section(key: str, name: str, result: Result, words: Words, drawings: Drawings) -> Html:
    text = words.find(f"section.{name}.text")
    parts = [
        element("h2", _title(name, words), id=f"{key}-title"),
        *([element("p", text, class_="text")] if text else []),
        tiles(result.values, words),
        *figures(result, words, drawings),
        *tables(result, words),
        notes(result.notes, words),
    ]
    return element("section", join(parts), id=key, aria_labelledby=f"{key}-title")


def _reproduce(command: str, facts: Mapping[str, Any], words: Words) -> Html:
    rows = [
        element("div", element("dt", words.find(f"fact.{name}") or name), element("dd", choice(name, fact, words)))
        for name, fact in facts.items()
    ]
    parts = [
        element("h2", _title("reproduce", words), id="reproduce-title"),
        element("p", words.text("section.reproduce.text"), class_="text"),
        element("h3", words.text("page.command")),
        element(
            "pre",
            element("code", escaped(command, keeps_lines=True)),
            tabindex=0,
            role="group",
            aria_label=words.text("page.command"),
        ),
    ]
    if rows:
        parts += [element("h3", words.text("page.facts")), element("dl", *rows, class_="facts")]
    return element("section", join(parts), id="reproduce", aria_labelledby="reproduce-title")


def _verdict(found: Sequence[Mapping[str, Any]], words: Words) -> list[str]:
    """How far above the floor the run has come, where a result holds both numbers; and when that was, if it was cut short."""
    told: list[str] = []
    for values in found:
        loss, floor = (to_plain(values.get(name)) for name in ("val_loss_nats", "entropy_floor_nats"))
        if not told and isinstance(loss, int | float) and isinstance(floor, int | float) and floor > 0:
            excess = loss / floor - 1
            side = "below" if excess < 0 else "above"
            told.append(words.text(f"page.verdict_{side}", percent=words.percent(abs(excess))))
        step, done, planned = (to_plain(values.get(name)) for name in ("val_step", "steps", "steps_planned"))
        if isinstance(step, int) and isinstance(done, int) and isinstance(planned, int) and done < planned:
            told.append(words.text("page.verdict_unfinished", step=step, steps=planned))
    return told


def _title(name: str, words: Words) -> str:
    return words.find(f"section.{name}.title") or name


def _with_ids(sections: Sequence[tuple[str, Result]]) -> list[tuple[str, str, Result]]:
    taken = {"content", "reproduce", "pictures"}
    named = []
    for index, (name, result) in enumerate(sections):
        key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "section"
        key = f"{key}-{index + 1}" if key in taken or key.startswith("chart-") else key
        taken.add(key)
        named.append((key, name, result))
    return named


def _head(title: str, scripts: Sequence[Html]) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="unembed"),
        element("title", title),
        # Without an icon of its own a browser would ask the server for one.
        element("link", rel="icon", href="data:,"),
        element("style", Html(_style())),
    )


def _scripts(drawings: Drawings, words: Words) -> list[Html]:
    data = {
        "themes": {"light": theme("light", words.lang), "dark": theme("dark", words.lang)},
        "charts": drawings.specs,
        "windows": drawings.windows,
        "not_drawn": words.text("page.not_drawn"),
        "keys": words.text("page.keys"),
        "window_keys": words.text("page.window_keys"),
    }
    return [
        element("script", script_json(data), type="application/json", id="pictures"),
        element("script", Html(_bundle())),
        element("script", Html(_asset("draw.js"))),
    ]


def _policy(scripts: Sequence[Html]) -> str:
    """Nothing is fetched, and only the scripts written here run. Vega makes functions from text: 'unsafe-eval'."""
    contents = [script.partition(">")[2].removesuffix("</script>") for script in scripts]
    sums = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in contents[1:]]
    allowed = " ".join([*(f"'sha256-{digest}'" for digest in sums), "'unsafe-eval'"]) if sums else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _style() -> str:
    def variables(scheme: str) -> str:
        colors = {name: value for name, value in PALETTES[scheme].items() if isinstance(value, str)}
        weak, strong = PALETTES[scheme]["ramp"]
        return "".join(f"--{name}:{value};" for name, value in {**colors, "weak": weak, "strong": strong}.items())

    light, dark = variables("light"), variables("dark")
    schemes = (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n@media print{{:root{{{light}}}}}\n"
    )
    return schemes + _asset("style.css")


def _bundle() -> str:
    import vl_convert

    # Browsers read a carriage return as a line feed, which would change the sum that the policy names.
    script: str = vl_convert.javascript_bundle(snippet=_BUNDLE).replace("\r\n", "\n").replace("\r", "\n")
    if re.search(r"</script|<!--", script, flags=re.IGNORECASE):
        raise AssertionError("the drawing library contains what ends a script element")
    return script


def _asset(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")
