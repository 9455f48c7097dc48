"""`--html`: one question of one model as a page, beside what the command writes anyway."""

import html
import json
import re
import shutil

import pytest

from commands import run
from unembed import catalogue
from unembed.report import page as page_module

QUESTIONS = {
    "lens": ("lens", "{run}", "to be or"),
    "attribution": ("attribute", "{run}", "to be or"),
    "attention": ("attention", "{run}", "to be or"),
    "patching": ("patch", "{run}", "to be", "to no", "--metric", "probability"),
    "stream": ("stream", "{run}", "to be or"),
    "count": ("count", "gpt2"),
    "tie": ("tie", "{run}"),
    "inspect": ("inspect", "{run}"),
    "tokenize": ("tokenize", "{run}", "to be or"),
    "compare": ("tokenize", "--compare", "{text}", "--vocab-size", "300"),
}
WITH_PAGES = (
    "attention",
    "attribute",
    "calibration",
    "compare-sharing",
    "count",
    "flow",
    "inspect",
    "lens",
    "patch",
    "plan",
    "stream",
    "tie",
    "tokenize",
    "truth",
    "tune-lens",
    "verify",
)


@pytest.fixture(scope="module", autouse=True)
def stub():
    """The drawing library takes seconds to be put together; no browser opens these pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "_bundle", lambda: "window.vegaEmbed = null;")
        yield


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_result_is_also_a_page_and_what_is_printed_stays_the_same(name, here, trained, text_file):
    question = [word.format(run=trained, text=text_file) for word in QUESTIONS[name]]
    plain = run(*question)
    done = run(*question, "--html", "a.html")
    assert (done.code, done.out) == (0, plain.out), done
    page = (here / "a.html").read_text(encoding="utf-8")
    words = catalogue.load("en")
    for key in (f"section.{name}.title", f"section.{name}.text", "page.lead_one"):
        assert html.escape(words.text(key)) in page, key
    assert f'<section id="{name}"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "unembed " + question[0] in page
    assert "<table>" in page or 'class="tiles"' in page


def test_whatever_the_format_the_page_holds_the_whole_and_speaks_the_language(here, trained):
    done = run("lens", trained, "to be", "--format", "csv", "--lang", "ko", "--html", "a.html")
    assert done.code == 0, done
    assert done.out.startswith("layer,position,")
    page = (here / "a.html").read_text(encoding="utf-8")
    assert '<html lang="ko">' in page
    assert catalogue.text("section.lens.title", "ko") + ": " in page
    charts = json.loads(re.search(r'id="pictures">(.*?)</script>', page)[1])["charts"]
    (rows,) = (
        charts["chart-1"]["datasets"].values()
        if "datasets" in charts["chart-1"]
        else [charts["chart-1"]["data"]["values"]]
    )
    assert {row["position"] for row in rows} == set(range(5))
    assert catalogue.text("note.lens_is_a_clue", "ko") in page


def test_a_page_of_ours_is_replaced_and_another_file_is_not(here):
    (here / "mine.html").write_text("<!doctype html>mine")
    refused = run("count", "gpt2", "--html", "mine.html")
    assert refused.code == 3
    assert "is no report of unembed" in refused.err
    assert refused.out == ""
    assert (here / "mine.html").read_text() == "<!doctype html>mine"
    assert run("count", "gpt2", "--html", "a.html").code == 0
    assert run("count", "gpt2-medium", "--html", "a.html").code == 0
    assert "gpt2-medium" in (here / "a.html").read_text(encoding="utf-8")


def test_the_page_of_a_broken_file_tells_its_problems_and_the_code_stays(here, trained):
    shutil.copytree(trained, here / "broken")
    (here / "broken" / "tokenizer.json").unlink()
    done = run("inspect", "broken", "--format", "json", "--html", "a.html", "--lang", "es")
    assert done.code == 3
    page = (here / "a.html").read_text(encoding="utf-8")
    assert catalogue.text("table.problems", "es") in page
    assert html.escape(done.json["problems"][0]) in page


def test_hostile_names_on_the_command_line_stand_there_escaped(here, trained):
    name = "<b>\u202e to\u0301"
    shutil.copytree(trained, here / name)
    done = run("stream", name, "to be", "--html", "a.html", "-q")
    assert done.code == 0, done
    page = (here / "a.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "\u202e" not in page
    assert page.count("&lt;b&gt;") >= 3, "in title, heading and command"


@pytest.mark.parametrize("name", WITH_PAGES)
def test_every_analysis_has_the_option(name):
    assert "--html FILE" in run(name, "--help").out
