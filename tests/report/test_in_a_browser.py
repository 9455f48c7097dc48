"""The report in a real browser: all is drawn, nothing is asked for, in both schemes and at both widths.

The checks by axe-core are made where its script is: UNEMBED_AXE names `axe.min.js` of the npm package.
"""

import itertools
import json
import os
from pathlib import Path

import pytest

import example_results as example
from browser import Browser, require
from oracles.hostile_strings import hostile_strings, unseen
from unembed.catalogue import LANGUAGES
from unembed.report import build
from unembed.results import Result, Table
from unembed.views.inside import LENS_TOKENS

HOSTILE = ("</script><b>x</b>", '"><b>x</b>', "' onload='alert(1)", "<img src=x onerror=alert(1)>", "\u202eabc", "a\nb")
CHARTS = {"chart-1", "chart-2", "chart-3", "chart-4", "chart-5", "chart-6"}


@pytest.fixture(scope="module")
def browser():
    require()
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    require()
    return tmp_path_factory.mktemp("reports")


def written(folder: Path, lang: str) -> Path:
    path = folder / f"{lang}.html"
    if not path.exists():
        sections = example.sections(lang)
        sections[1] = ("samples", example.samples(lang, extra=HOSTILE))
        made = build(title="Un título", sections=sections, lang=lang, facts=example.FACTS, command=example.COMMAND)
        path.write_text(made, encoding="utf-8")
    return path


def assert_whole(facts):
    assert facts.console_errors == ()
    assert facts.requests == ()
    assert facts.dialogs == ()
    assert set(facts.charts) == CHARTS
    assert facts.svg_count == len(CHARTS)
    assert min(facts.charts.values()) >= 8, facts.charts
    assert facts.scroll_width <= facts.client_width


@pytest.mark.slow
def test_five_hundred_hostile_texts_do_nothing(browser, folder):
    """Each of them as token, guess, name on the map, sample, value, note, fact, title and command of one page."""
    texts = hostile_strings()
    kinds = "[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))].sort().join()"
    handlers = (
        "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()).filter((n) => /^on/.test(n)).length"
    )
    usual = browser.open(written(folder, "en"))
    expected = set(usual.run(kinds).split(","))
    usual.close()
    sections = [
        ("samples", example.samples("en", extra=texts)),
        *((f"lens {i}", example.lens("en", tokens=texts[i : i + 40])) for i in range(0, 500, 40)),
        ("token_map", example.token_map("en", names=texts)),
        (texts[4], Result(name=texts[5], values=dict(itertools.pairwise(texts)), notes=texts)),
    ]
    made = build(title=texts[3], sections=sections, lang="en", facts=dict(itertools.pairwise(texts)), command=texts[11])
    path = folder / "hostile.html"
    path.write_text(made, encoding="utf-8")
    page = browser.open(path)
    facts = page.facts()
    assert (facts.console_errors, facts.requests, facts.dialogs) == ((), (), ())
    assert set(page.run(kinds).split(",")) <= expected
    assert page.run(handlers) == 0
    assert page.run("document.scripts.length") == 3
    assert facts.svg_count == len(facts.charts) == 15
    assert unseen(facts.text) <= {"U+0009"}, "what stands between two cells"
    page.close()


def test_all_is_drawn_and_nothing_is_asked_for(browser, folder):
    page = browser.open(written(folder, "en"))
    assert_whole(page.facts())
    facts = page.facts()
    assert facts.charts["chart-3"] == 2 * 55  # a cell and a text for each of 11 tokens and 5 layers
    assert page.run("document.querySelectorAll('b, img').length") == 0
    page.close()


def test_the_policy_refuses_what_a_script_would_ask_for(browser, folder):
    page = browser.open(written(folder, "en"))
    assert page.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    ran = page.run(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.ran = 1';"
        " document.body.append(script); return window.ran; })()"
    )
    assert ran is None
    assert any("Content Security Policy" in error for error in page.facts().console_errors)
    page.close()


def test_the_scheme_and_the_width_may_change_while_it_is_open(browser, folder):
    page = browser.open(written(folder, "en"), width=1400)
    ink = "getComputedStyle(document.querySelector('#chart-3 .mark-text.role-axis-label text')).fill"
    width = "document.querySelector('#chart-1 svg').clientWidth"
    light, wide = page.run(ink), page.run(width)
    there = f"document.querySelectorAll('.chart > svg').length === {len(CHARTS)}"
    page.set_scheme(True)
    page.until(f"{there} && {ink} !== '{light}'")
    page.set_width(360)
    page.until(f"{there} && {width} < {wide / 2}")
    page.settle()
    assert_whole(page.facts())
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.until(f"{there} && {ink} === '{light}'")  # paper is white in any scheme
    page.close()


def test_no_name_of_a_legend_is_cut_off(browser, folder):
    page = browser.open(written(folder, "es"), width=360)
    cut = page.run(
        "[...document.querySelectorAll('.chart .role-legend-label text')].filter((name) =>"
        " name.getBoundingClientRect().right > name.closest('svg').getBoundingClientRect().right + 1).length"
    )
    assert cut == 0
    page.close()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_lens_of_a_report_is_cut_nowhere_on_a_wide_page(browser, folder, lang):
    result = example.lens(lang, tokens=tuple("abcdefghijkl"[:LENS_TOKENS]))
    made = build(title="t", sections=[("lens", result)], lang=lang, facts={}, command="c")
    path = folder / f"lens-{lang}.html"
    path.write_text(made, encoding="utf-8")
    page = browser.open(path, width=1200)
    box = "document.querySelector('.sideways')"
    assert page.run(f"{box}.scrollWidth - {box}.clientWidth") <= 0
    page.close()


def test_a_wide_table_fits_on_paper(browser, folder):
    """Paper does not scroll: seven columns with long heads stay within an A4 page's 680 pixels."""
    names = (
        "Times to be guessed",
        "Norm, looked up",
        "Norm, scored with",
        "Share of looking up",
        "Cosine",
        "Times read",
    )
    columns = {"Token": ["yesterday"], **{name: [0.123] for name in names}}
    sections = [("mine", Result(name="mine", tables={"mine": Table(columns=columns)}))]
    path = folder / "paper.html"
    path.write_text(build(title="t", sections=sections, lang="en", facts={}, command="c"), encoding="utf-8")
    page = browser.open(path, width=680)
    wider = "document.querySelector('table').getBoundingClientRect().right > document.body.clientWidth"
    assert page.run(wider)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.until(f"!({wider})")
    page.close()


def test_pointing_at_a_mark_tells_its_row_as_text(browser, folder):
    page = browser.open(written(folder, "en"))
    page.run("document.querySelector('#chart-3').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.settle()  # a scroll that comes later would take the tip away
    box = page.run(
        "(() => { const r = document.querySelector('#chart-3 .mark-rect path').getBoundingClientRect();"
        " return [r.left + r.width / 2, r.top + r.height / 2]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.settle()
    told = page.run("document.querySelector('.tip:not([hidden])').innerText")
    assert "First five guesses" in told
    assert "Layer" in told
    page.close()


def test_everything_can_be_reached_by_keyboard(browser, folder):
    page = browser.open(written(folder, "en"))
    n = page.run("document.querySelectorAll('a, summary, [tabindex=\"0\"]').length")
    seen = set()
    for _ in range(n + 2):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        seen.add(page.run("(document.activeElement.className || document.activeElement.tagName) + ''"))
    assert {"skip", "A", "SUMMARY", "scroll"} <= seen
    page.close()


def press(page, key):
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
    return page.run("document.querySelector('.said').textContent")


def test_arrow_keys_go_from_cell_to_cell_and_tell_each(browser, folder):
    """The grid's five layers stand under each other, eleven tokens beside each other; what is told is the table's row."""
    page = browser.open(written(folder, "en"), width=360)
    page.run("document.getElementById('chart-3').focus()")
    first = press(page, "Home")
    row = example.lens("en").tables["lens"].rows()[0]
    assert f"Token: {row['token']}" in first
    assert f"Layer: {row['layer']}" in first
    assert "Layer: 1" in press(page, "ArrowUp")
    assert "Layer: 2" in press(page, "ArrowUp")
    right = press(page, "ArrowRight")
    assert "Layer: 2" in right
    assert f"Token: {example.TOKENS['en'][1]}" in right
    for _ in range(20):
        last = press(page, "ArrowRight")
    assert "Layer: 2" in last, "the edge holds"
    assert f"Token: {example.TOKENS['en'][-1]}" in last
    seen = page.run(
        "(() => { const m = document.querySelector('#chart-3 .at').getBoundingClientRect();"
        " const b = document.querySelector('#chart-3').closest('.sideways').getBoundingClientRect();"
        " return m.right <= b.right + 1 && m.left >= b.left - 1 && !document.querySelector('.tip').hidden; })()"
    )
    assert seen, "the cell is scrolled to, and its tip is open"
    press(page, "Escape")
    assert page.run("document.querySelectorAll('.at').length") == 0
    assert page.facts().console_errors == ()
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_language_scheme_and_width(browser, folder, lang, width, dark):
    page = browser.open(written(folder, lang), width=width, dark=dark)
    assert_whole(page.facts())
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_axe_finds_no_serious_fault(browser, folder, lang, width, dark):
    script = os.environ.get("UNEMBED_AXE")
    if not script:
        pytest.skip("UNEMBED_AXE is not set: it names axe.min.js (npm install axe-core)")
    page = browser.open(written(folder, lang), width=width, dark=dark)
    page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    page.run(Path(script).read_text(encoding="utf-8") + "\n;0")
    found = page.run("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
    told = [
        (f["impact"], f["id"], [n["target"] for n in f["nodes"]][:3], f["nodes"][0]["failureSummary"]) for f in found
    ]
    assert [fault for fault in told if fault[0] in ("serious", "critical")] == [], json.dumps(told, indent=1)
    page.close()
