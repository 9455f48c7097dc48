"""docs/lens.md: every block says whether it is run, and those that are run as they stand."""

from pathlib import Path

from pages import blocks

PAGE = (Path(__file__).parents[2] / "docs" / "lens.md").read_text(encoding="utf-8")


def test_every_block_says_whether_it_is_run():
    assert [block.line for block in blocks(PAGE) if not block.runs and "not run: " not in block.told] == []


def test_every_python_block_that_is_run_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    run = [block for block in blocks(PAGE) if block.language == "python" and block.runs]
    assert run
    for block in run:
        exec("\n".join(block.lines), names)
    assert capsys.readouterr().out.startswith("[")
