"""Two small runs to look at: one on a grammar, one on a text; nobody may change them."""

from functools import partial
from pathlib import Path

import pytest

from unembed.recipes import start, tour
from unembed.views import inside, truth
from unembed.views.run import RunView

TEXT = "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer\n" * 40


@pytest.fixture(scope="session")
def grammar_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of the tour in Korean, on a twentieth of its text, with a checkpoint on the way."""
    path = tmp_path_factory.mktemp("runs") / "tour"
    settings = {"language": "ko", "steps": 4, "training.log_every": 1, "eval_every": 2, "checkpoint_every": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tour, "N_WORDS", 20_000)
        start.train(recipe_name="tour", out=path, settings=settings, command="unembed tour --out 'my tour'")
    return path


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on a text of 84 * 40 characters, begun from Python: no command is noted."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "words.txt").write_text(TEXT, encoding="utf-8")
    settings = {"context_length": 16, "batch_size": 4, "eval_every": 3, "steps": 6, "training.log_every": 2}
    start.train([folder / "words.txt"], recipe_name="nanogpt-cpu", out=folder / "run", settings=settings)
    return folder / "run"


@pytest.fixture
def brief_exam(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exam in grammar of 20 questions."""
    monkeypatch.setattr(inside, "score_agreements", partial(inside.score_agreements, n=20))
    monkeypatch.setattr(truth, "lens_truth", partial(truth.lens_truth, n_questions=20))


@pytest.fixture
def grammar_view(grammar_run: Path) -> RunView:
    """The run on a grammar, opened anew."""
    return RunView.open(grammar_run)


@pytest.fixture
def text_view(text_run: Path) -> RunView:
    """The run on a text, opened anew."""
    return RunView.open(text_run)
