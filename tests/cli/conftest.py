"""What the tests of the commands share: a text to learn, and a small run that learnt it."""

from pathlib import Path

import pytest

from commands import run

WORDS = "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer\n"
# A model of nanoGPT's shape on short windows: what matters here is what a command says, not how well it learns.
TINY = (
    "--recipe",
    "nanogpt-cpu",
    "--set",
    "context_length=16",
    "--set",
    "batch_size=4",
    "--set",
    "eval_every=3",
    "--steps",
    "6",
)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 84 * 40 characters."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(WORDS * 40, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """A finished run of six steps; nobody may change it."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    done = run("train", text_file, "--out", path, *TINY)
    assert done.code == 0, done
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the command is run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
