"""`unembed tour`: the keys, the three next commands, the report; and, at full length, what the model must have learnt."""

import json
import shlex
from functools import partial

import pytest

from commands import run, spawn
from unembed.catalogue import LANGUAGES
from unembed.errors import RunError

KEYS = ["run", "report", "val_loss_nats", "entropy_floor_nats", "seconds", "samples"]
# The contract lets keys be added; this one is the mark of the exam.
ADDED = {"agreements_right"}


def next_commands(err):
    """The commands that the tour's last lines propose."""
    lines = err.partition("Three next commands:\n")[2].splitlines()
    return [line.strip() for line in lines if line.startswith("  unembed ")]


@pytest.fixture
def short(monkeypatch):
    """The tour on a twentieth of its text, with an exam of 30 questions."""
    from unembed.recipes import tour
    from unembed.views import inside, truth

    monkeypatch.setattr(tour, "N_WORDS", 20_000)
    monkeypatch.setattr(inside, "score_agreements", partial(inside.score_agreements, n=30))
    monkeypatch.setattr(truth, "lens_truth", partial(truth.lens_truth, n_questions=30))


@pytest.mark.parametrize(
    "lang", ["es", pytest.param("en", marks=pytest.mark.slow), pytest.param("ko", marks=pytest.mark.slow)]
)
def test_short_tour_gives_the_keys_a_report_and_what_to_do_next(here, short, lang):
    done = run("tour", "--steps", "2", "--lang", lang, "--format", "json")
    assert done.code == 0, done
    found = done.json
    assert [key for key in found if key in KEYS] == KEYS
    assert set(found) - set(KEYS) == ADDED
    assert found["run"] == str(here / "runs" / "tour")
    assert found["report"] == str(here / "runs" / "tour" / "report.html")
    assert found["val_loss_nats"] > found["entropy_floor_nats"] > 0
    assert 0 <= found["agreements_right"] <= 1
    assert len(found["samples"]) == 3
    assert all(isinstance(text, str) and text for text in found["samples"])
    page = (here / "runs" / "tour" / "report.html").read_text(encoding="utf-8")
    assert f'<html lang="{lang}"' in page
    assert 'id="agreement"' in page
    description = json.loads((here / "runs" / "tour" / "run.json").read_text(encoding="utf-8"))
    assert description["data"]["grammar"]["language"] == lang
    assert description["command"] == f"unembed tour --steps 2 --lang {lang} --format json"
    asked = [shlex.split(line) for line in next_commands(done.err)]
    assert [words[1] for words in asked] == ["sample", "count", "train"]
    assert run(*asked[1][1:]).out.startswith("parameters               103,680\n")


def test_a_second_tour_says_up_front_where_it_goes(here, monkeypatch):
    def stop(**given):
        raise RunError(f"began in {given['out']}")

    monkeypatch.setattr("unembed.recipes.start.train", stop)
    first = run("tour")
    assert "began in runs/tour" in first.err
    assert "is there already" not in first.err
    (here / "runs" / "tour").mkdir(parents=True)
    second = run("tour")
    assert second.err.splitlines()[0] == "runs/tour is there already and stays as it is; this tour goes to runs/tour-2"
    assert "began in runs/tour-2" in second.err
    assert "is there already" not in run("tour", "--out", "runs/other").err


def test_the_tour_takes_no_data_and_an_existing_folder_is_left_alone(here):
    assert run("tour", "book.txt").code == 2
    (here / "run").mkdir()
    (here / "run" / "run.json").write_text("{}")
    done = run("tour", "--out", "run")
    assert done.code == 3
    assert "holds a run already" in done.err
    assert (here / "run" / "run.json").read_text() == "{}"


@pytest.mark.slow
@pytest.mark.parametrize("lang", LANGUAGES)
def test_full_tour_reaches_the_floor_and_passes_the_exam(tmp_path, lang):
    done = spawn("tour", "--lang", lang, "--format", "json", cwd=tmp_path)
    assert done.code == 0, done
    found = done.json
    assert found["entropy_floor_nats"] < found["val_loss_nats"] <= 1.05 * found["entropy_floor_nats"]
    assert found["agreements_right"] >= 0.99
    assert (tmp_path / "runs" / "tour" / "report.html").stat().st_size < 2 * 2**20
    assert len(next_commands(done.err)) == 3
    again = spawn("sample", *shlex.split(next_commands(done.err)[0])[2:], cwd=tmp_path)
    assert again.code == 0
    assert len(again.out.split()) > 30
