"""`unembed report`: one file, where and in which language it was asked for."""

import shutil

import pytest

from commands import run
from unembed.report import write


@pytest.fixture
def brief(monkeypatch):
    """The two analyses that run no model: what is written where does not hang on the rest."""
    kept = tuple(analysis for analysis in write.ANALYSES if analysis.name in ("loss", "parameters"))
    assert len(kept) == 2
    monkeypatch.setattr(write, "ANALYSES", kept)


@pytest.mark.slow
def test_report_of_a_run_on_a_text_has_every_section(here, trained):
    own = here / "own"
    shutil.copytree(trained, own)
    done = run("report", own, "--format", "json")
    assert done.code == 0, done
    page = (own / "report.html").read_text(encoding="utf-8")
    of_grammars = ("agreement", "truth")
    sections = [analysis.name.replace("_", "-") for analysis in write.ANALYSES if analysis.name not in of_grammars]
    assert [name for name in sections if f'<section id="{name}"' not in page] == []
    assert "agreement-title" not in page
    assert len(page.encode()) < 2 * 2**20


def test_report_goes_into_the_run_and_its_path_is_told(here, trained, brief):
    own = here / "own"
    shutil.copytree(trained, own)
    done = run("report", own, "--format", "json")
    assert done.code == 0, done
    assert done.json == {"report": str(own / "report.html")}
    page = (own / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Where its numbers are" in page
    assert "unembed train" in page


@pytest.mark.parametrize("lang", ["ko", pytest.param("es", marks=pytest.mark.slow)])
def test_language_is_chosen_by_option_or_environment(here, trained, brief, lang, monkeypatch):
    done = run("report", trained, "--lang", lang, "-o", "by-option.html", "--quiet")
    assert (done.code, done.err) == (0, "")
    monkeypatch.setenv("LANG", f"{lang}_XX.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_MESSAGES", raising=False)
    assert run("report", trained, "-o", "by-environment.html").code == 0
    pages = [here / "by-option.html", here / "by-environment.html"]
    assert f'<html lang="{lang}"' in pages[0].read_text(encoding="utf-8")
    assert pages[0].read_bytes() == pages[1].read_bytes()


@pytest.mark.slow
def test_a_folder_in_the_place_of_the_page_is_refused(here, trained, brief):
    done = run("report", trained, "-o", here)
    assert done.code == 3
    assert "is a folder, expected a file" in done.err


def test_a_run_without_a_checkpoint_has_nothing_to_report(here, trained):
    (here / "run").mkdir()
    (here / "run" / "run.json").write_bytes((trained / "run.json").read_bytes())
    done = run("report", "run")
    assert done.code == 3
    assert "has no complete checkpoint, so there is nothing to look at" in done.err


@pytest.mark.parametrize("text", ['{"run_format": 1}', "<!doctype html>\n<title>somebody else's page</title>"])
def test_a_file_that_is_no_report_is_left_as_it_is(here, trained, brief, text):
    other = here / "run.json"
    other.write_text(text)
    done = run("report", trained, "-o", other)
    assert (done.code, other.read_text()) == (3, text)
    assert "is there already, and is no report of unembed" in done.err


def test_a_report_is_replaced_by_a_report_and_an_empty_file_too(here, trained, brief):
    page = here / "page.html"
    page.touch()
    assert run("report", trained, "-o", page).code == 0
    first = page.read_bytes()
    assert run("report", trained, "-o", page, "--lang", "es").code == 0
    assert page.read_bytes() != first


def test_folders_on_the_way_to_a_report_are_not_made(here, trained, brief):
    done = run("report", trained, "-o", "deep/er/page.html")
    assert done.code == 3
    assert "the folder deep/er is not there" in done.err
    assert list(here.iterdir()) == []
