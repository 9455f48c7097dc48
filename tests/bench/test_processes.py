"""Contenders in processes of their own do the steps that they are told to, and end."""

import sys
from pathlib import Path

import pytest

from processes import Worker, take_turns_apart

pytestmark = pytest.mark.slow  # each child imports torch
CHILD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "bench")!r})
from processes import serve
name, n = sys.argv[2], 0
def step():
    global n
    n += 1
    return float(n)
serve(step)
"""


def test_each_does_its_warm_up_and_its_rounds_and_ends(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    counts = {"n_rounds": 3, "steps_per_round": 4, "n_warmup": 2}
    timing, ends = take_turns_apart(str(script), ["a", "b"], ["--threads", "1"], **counts)
    assert {name: len(seconds) for name, seconds in timing.seconds.items()} == {"a": 3, "b": 3}
    # the loss of this child is the number of its steps: warm-up and three rounds
    assert {name: end["last_loss_nats"] for name, end in ends.items()} == {"a": 14.0, "b": 14.0}
    assert all(end["peak_bytes"] > 1_000_000 for end in ends.values())


def test_a_worker_is_gone_after_its_end(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    worker = Worker(str(script), "a", [])
    assert worker.steps(1) >= 0
    worker.end()
    assert worker.process.returncode == 0
    assert sys.executable in worker.process.args
