"""A run that is killed again and again, mostly while it saves, ends as the run that nobody touched, to the last bit (A29).

The kills are SIGKILL from outside, at moments that a seeded generator chooses: when an unfinished file or folder is seen,
at once or a little later; after some lines of the log; or any time after the start. What is done here in a minute with
ten kills is done with a hundred by `make test-long`.
"""

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import spawn
from forked import Forks
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import OPTIMIZER, WEIGHTS

TEXT = "El perro que corre por la calle no tiene hambre. La gata duerme.\n" * 40
SETTINGS = {
    "steps": 120,
    "batch_size": 2,
    "accumulate": 2,
    "dropout": 0.2,
    "context_length": 8,
    "eval_every": 10,
    "checkpoint_every": 3,
    "training.log_every": 1,
}
# How a moment is chosen, and how often: what is waited for is the beginning of an unfinished name.
MOMENTS = {".saving-": 6, ".removing-": 2, "beside": 1, "lines": 2, "clock": 2}
LONGEST_DELAY = 0.08  # seconds; a save takes about this long


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def straight(text, tmp_path_factory) -> Path:
    """The run that nobody killed, by an interpreter of its own."""
    out = tmp_path_factory.mktemp("straight") / "run"
    done = spawn(*arguments(text, out))
    assert (done.code, done.json["step"]) == (0, SETTINGS["steps"]), done.err
    return out


def arguments(text: Path, out: Path) -> list[str]:
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    words = ["train", str(text), "--recipe", "nanogpt-cpu", "--out", str(out), "--resume", "--threads", "1"]
    return [*words, "--format", "json", *settings]


def metrics(out: Path) -> list[dict]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same(out: Path, straight: Path) -> None:
    """All checkpoints of both by the same names and bytes, metrics but for seconds, and no half-written thing left."""
    ours, theirs = (RunFolder.open(path).checkpoints() for path in (out, straight))
    assert [checkpoint.step for checkpoint in ours] == [checkpoint.step for checkpoint in theirs]
    for own, other in zip(ours, theirs, strict=True):
        for name in (WEIGHTS, OPTIMIZER):
            assert (own.path / name).read_bytes() == (other.path / name).read_bytes(), (own.path, name)
    assert metrics(out) == metrics(straight)
    assert unfinished(out) == []


def unfinished(out: Path) -> list[str]:
    """Names of the run and of its checkpoints that begin with a dot, but for the lock."""
    folders = [folder for folder in (out, out / "checkpoints") if folder.is_dir()]
    return sorted(path.name for folder in folders for path in folder.glob(".*") if path.name != ".lock")


def is_due(kind: str, out: Path, draw: random.Random) -> Callable[[], bool]:
    """The question that is asked until it is time to kill."""
    if kind == "lines":
        goal = n_lines(out) + draw.randrange(1, 12)
        return lambda: n_lines(out) > goal
    if kind == "clock":
        until = time.monotonic() + draw.uniform(0, 1.0)
        return lambda: time.monotonic() > until
    if kind == "beside":  # what a start or a resume writes: the shards, run.json, the shortened log
        return lambda: any(not name.startswith((".saving-", ".removing-")) for name in unfinished(out))
    return lambda: any(name.startswith(kind) for name in unfinished(out))


def n_lines(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_readable(out: Path, before: int) -> int:
    """What a kill leaves is read without being mended: a whole checkpoint no older than the one before; gives its step."""
    if not RunFolder.exists(out):
        assert before == -1
        return -1
    run = RunFolder.open(out)
    newest, messages = run.latest()
    assert messages == []
    assert all(isinstance(record["step"], int) for record in run.metrics())
    found = -1 if newest is None else newest.step
    assert found >= before, "a checkpoint was lost"
    return found


def kill_and_resume(n_kills: int, text: Path, straight: Path, folder: Path, seed: int) -> Counter[str]:
    """Kills runs until there were n_kills, begins another whenever one is finished; counts what the kills left behind."""
    draw, left = random.Random(seed), Counter[str]()
    n_runs, saved, out = 0, -1, folder / "run-0"
    with Forks(folder) as forks:
        while left["kills"] < n_kills:
            kind = draw.choices(list(MOMENTS), list(MOMENTS.values()))[0]
            due = is_due(kind, out, draw)
            forks.start(*arguments(text, out))
            while not forks.has_ended() and not due():
                time.sleep(0.0005)
            time.sleep(draw.choice((0.0, draw.uniform(0, LONGEST_DELAY))))
            if (status := forks.kill()) == 0:
                assert json.loads(forks.out.read_text())["step"] == SETTINGS["steps"]
                assert_same(out, straight)
                shutil.rmtree(out)
                n_runs, saved = n_runs + 1, -1
                out = folder / f"run-{n_runs}"
                continue
            assert status == -9, f"it ended by itself with {status}: {forks.err.read_text()}"
            left["kills"] += 1
            left.update(kinds_of(unfinished(out)))
            saved = assert_readable(out, saved)
    done = spawn(*arguments(text, out))
    assert done.code == 0, done.err
    assert done.json["step"] == SETTINGS["steps"]
    assert_same(out, straight)
    left["runs"] = n_runs + 1
    return left


def kinds_of(names: list[str]) -> set[str]:
    """What is half done, by the beginning of its name: a save, a removal, or a file or folder beside the checkpoints."""
    if not names:
        return {"nothing half done"}
    return {next((kind for kind in (".saving-", ".removing-") if name.startswith(kind)), "beside") for name in names}


@pytest.mark.slow
def test_killed_ten_times_and_resumed_equals_the_unbroken_run(text, straight, tmp_path):
    left = kill_and_resume(10, text, straight, tmp_path, seed=4)
    assert left["kills"] == 10
    # where ten kills fall is chance; that most of a hundred fall into a save is held by the long test
    assert left[".saving-"] + left[".removing-"] + left["beside"] >= 1, left


@pytest.mark.long
def test_killed_a_hundred_times_and_resumed_equals_the_unbroken_run(text, straight, tmp_path):
    left = kill_and_resume(100, text, straight, tmp_path, seed=5)
    print(f"what the kills left behind: {dict(left)}")  # shown by `pytest -s`
    assert left["kills"] == 100
    assert left[".saving-"] >= 40, left
    assert left[".removing-"] >= 3, left
