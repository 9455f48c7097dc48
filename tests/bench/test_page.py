"""The page of benchmarks: scripts are run, their claims that fail stay visible, and no section outlives its script."""

from pathlib import Path

import pytest

import page

HOLDS = '"""Something is fast.\n\nThe claim: 2 times.\n\n    python bench/good.py\n"""\nprint("good 2.5, holds")\n'
FAILS = '"""Something is small."""\nimport sys\nprint("small 0.9, FAILS", sys.argv[1:])\nsys.exit(1)\n'
STOPS = '"""Something breaks."""\nprint("half a table")\nraise RuntimeError("no memory")\n'


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, source in (("good", HOLDS), ("small", FAILS), ("broken", STOPS), ("common", "raise SystemExit(9)")):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(page, "BENCH", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["page.py", *words])
    return page.main()


def test_what_scripts_print_is_kept_even_where_a_claim_fails_and_a_crash_is_not(bench, monkeypatch, capsys):
    assert call(monkeypatch) == 1
    found = page.sections(page.PAGE.read_text(encoding="utf-8"))
    assert found.keys() == {"good", "small"}
    assert (
        "Something is fast.\n\nThe claim: 2 times.\n\n```text\n$ python bench/good.py\ngood 2.5, holds\n```"
        in found["good"]
    )
    assert "small 0.9, FAILS []" in found["small"]
    assert "Not yet run: `broken`." in page.PAGE.read_text(encoding="utf-8")
    assert "broken, small" in capsys.readouterr().err


def test_one_script_is_run_again_with_options_and_the_others_stay(bench, monkeypatch):
    call(monkeypatch, "good", "small")
    before = page.sections(page.PAGE.read_text(encoding="utf-8"))
    (bench / "good.py").write_text(HOLDS.replace("2.5", "3.5"), encoding="utf-8")
    assert call(monkeypatch, "good", "--", "--rounds", "2") == 0
    after = page.sections(page.PAGE.read_text(encoding="utf-8"))
    assert after["small"] == before["small"]
    assert "$ python bench/good.py --rounds 2\ngood 3.5, holds" in after["good"]
    (bench / "small.py").unlink()
    call(monkeypatch, "good")
    assert page.sections(page.PAGE.read_text(encoding="utf-8")).keys() == {"good"}


def test_a_name_that_is_no_script_is_refused_before_anything_runs(bench, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, "good", "fast")
    assert "no such benchmark: fast; there are broken, good, small" in capsys.readouterr().err
    assert not page.PAGE.exists()


def test_the_page_in_docs_speaks_of_the_scripts_that_there_are():
    found = page.sections(page.PAGE.read_text(encoding="utf-8"))
    assert found, "docs/benchmarks.md has no section; run `make bench`"
    for name, text in found.items():
        assert text.startswith(page.about(page.scripts()[name])), (
            f"{name}: run the script again, its docstring has changed"
        )
    assert page.written(found) == page.PAGE.read_text(encoding="utf-8")
