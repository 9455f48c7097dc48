"""A long lens in a real browser: one window at a time, the others by button and by key, told, and nothing asked for."""

import pytest

import example_results as example
from browser import Browser, require
from unembed.pictures import MOST_ROWS
from unembed.report.one import one_page

pytestmark = pytest.mark.slow
TOKENS = (*(f"t{i}" for i in range(66)), "</script><b>x</b>", "\u202eabc", "שלום", "e" + "\u0301" * 9)


@pytest.fixture(scope="module")
def browser():
    require()
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MOST_ROWS, "grid", 300)
        made = one_page(example.lens("en", tokens=TOKENS), lang="en", command="unembed lens m t", model="m")
    path = tmp_path_factory.mktemp("pages") / "lens.html"
    path.write_text(made, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, path):
    page = browser.open(path)
    page.until("document.querySelectorAll('#chart-1 > svg').length === 1")
    yield page
    page.close()


def press(page, key):
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    return page.run("document.querySelector('.said').textContent")


LABEL = "document.querySelector('#chart-1-windows span').textContent"


def test_one_window_is_drawn_and_buttons_turn_to_the_others(opened):
    facts = opened.facts()
    assert facts.charts["chart-1"] == 2 * 32 * 5
    assert (facts.console_errors, facts.requests, facts.dialogs) == ((), (), ())
    assert facts.scroll_width <= facts.client_width
    assert opened.run(LABEL) == "Position 0–31; Layer 0–4 (part 1 of 3)"
    opened.run("document.querySelector('#chart-1-windows .before').click()")
    opened.run("document.querySelector('#chart-1-windows .after').click()")
    opened.run("document.querySelector('#chart-1-windows .after').click()")
    opened.until(f"{LABEL} === 'Position 64–69; Layer 0–4 (part 3 of 3)'")
    opened.settle()
    assert "t64" in opened.run("document.querySelector('#chart-1').textContent")
    assert opened.facts().svg_count == 1


def test_page_keys_turn_and_arrow_keys_go_on_in_the_new_window(opened):
    opened.run("document.getElementById('chart-1').focus()")
    for _ in range(2):
        press(opened, "PageDown")
    opened.until(f"{LABEL}.endsWith('(part 3 of 3)')")
    opened.settle()
    assert "Page Up and Page Down" in opened.run("document.getElementById('chart-1').getAttribute('aria-label')")
    press(opened, "PageDown")
    assert opened.run(LABEL).endswith("(part 3 of 3)"), "the last one holds"
    press(opened, "Home")
    assert "Token: t64" in press(opened, "ArrowUp")
    told = ""
    for _ in range(40):
        told = press(opened, "ArrowRight")
    assert "Token: e\u0301" in told
    assert opened.run("document.querySelectorAll('b, img').length") == 0
    assert opened.facts().console_errors == ()
    press(opened, "PageUp")
    opened.until(f"{LABEL}.endsWith('(part 2 of 3)')")


def test_the_dark_scheme_draws_the_window_that_is_shown(opened):
    opened.run("document.querySelector('#chart-1-windows .after').click()")
    opened.until(f"{LABEL}.endsWith('(part 2 of 3)')")
    ink = "getComputedStyle(document.querySelector('#chart-1 .mark-text.role-axis-label text')).fill"
    light = opened.run(ink)
    opened.set_scheme(True)
    opened.until(f"document.querySelectorAll('#chart-1 > svg').length === 1 && {ink} !== '{light}'")
    assert "t32" in opened.run("document.querySelector('#chart-1').textContent")
    opened.set_scheme(False)
