"""A process that is killed stops all, with one clear sentence, and the run goes on from its last checkpoint.

The oracle is a run of two processes that nobody killed: what is killed and taken up again ends with its bytes.
"""

import json
import signal

import numpy as np
import pytest

import unembed
from commands import run
from parallel.ranks import Death, Ranks
from unembed.checkpoints.run.folder import RunFolder

STEPS, EVERY = 6, 2
LOST = 4  # the exit code of a process that lost another one
TEXT = "El perro que corre por la calle no tiene hambre. La gata duerme.\n" * 40


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with Ranks(tmp_path_factory.mktemp("ranks")) as started:
        yield started


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def arguments(text, out, *, kind="fsdp", steps=STEPS):
    settings = {
        "batch_size": 4,
        "accumulate": 2,
        "context_length": 8,
        "eval_every": 2,
        "sample_every": 3,
        "checkpoint_every": EVERY,
        "training.log_every": 1,
        "training.keep_every": 1,
        "dropout": 0.1,
        "parallel": kind,
    }
    words = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    recipe = ["--recipe", "nanogpt-cpu", "--threads", "1", "--format", "json", "--steps", str(steps)]
    return ["train", text, "--out", out, "--resume", *recipe, *words]


@pytest.fixture(scope="module")
def straight(ranks, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "run"
    assert ranks.run(2, *arguments(text, out)) == [0, 0], ranks.err(0)
    assert json.loads(ranks.out(0))["step"] == STEPS
    assert ranks.out(1) == ranks.err(1) == ""  # one process speaks
    return out


def lines(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def assert_same(out, straight):
    """Tensors of every checkpoint to the bit, metrics and samples; nothing half-written is left."""
    ours, theirs = (RunFolder.open(path).checkpoints() for path in (out, straight))
    assert [one.step for one in ours] == [one.step for one in theirs] == list(range(0, STEPS + 1, EVERY))
    for own, other in zip(ours, theirs, strict=True):
        for found, expected in ((own.weights(), other.weights()), (own.optimizer(), other.optimizer())):
            assert set(found) == set(expected)
            assert all(np.array_equal(found[name].numpy(), expected[name].numpy()) for name in found), own.path
    assert lines(out) == lines(straight)
    assert (out / "samples.jsonl").read_text() == (straight / "samples.jsonl").read_text()
    assert [path.name for path in (out / "checkpoints").glob(".*")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [
        Death(1, "backward", 7),  # two a step: in the fourth
        Death(0, "backward", 8),  # who keeps the store by which all meet
        Death(1, "collective", 13),
        Death(1, "half a save", 5),  # two a save: after the first part of that of step 4
        Death(0, "before the rename", 3),
    ],
    ids=lambda death: f"process {death.rank}, {death.where}",
)
def test_one_killed_stops_all_and_the_run_goes_on(ranks, text, straight, tmp_path, death):
    out, saved = tmp_path / "run", EVERY
    statuses = ranks.run(2, *arguments(text, out), death=death)
    assert statuses[death.rank] == -signal.SIGKILL
    other = 1 - death.rank
    assert statuses[other] == LOST, ranks.err(other)
    told = ranks.err(other)
    assert "Traceback" not in told
    assert f"process {other} of 2 has lost another one" in told
    assert "Saved is step" in told
    assert f"torchrun --nproc-per-node 2 -m unembed train --out {out} --resume" in told
    assert told.count("has lost another one") == 1
    newest, messages = RunFolder.open(out).latest()
    assert (newest.step, messages) == (saved, [])
    assert ranks.run(2, *arguments(text, out)) == [0, 0], ranks.err(0)
    assert f"going on after step {saved}" in ranks.err(0)
    assert_same(out, straight)


@pytest.mark.slow
def test_a_signal_to_one_process_lets_all_end_their_step_and_save(ranks, text, straight, tmp_path):
    out = tmp_path / "run"
    assert ranks.run(2, *arguments(text, out, steps=STEPS), death=Death(1, "terminated", 7)) == [130, 130]
    told = ranks.err(0) + ranks.err(1)
    assert "after step 4, which is saved." in told
    assert f"Go on with: torchrun --nproc-per-node 2 -m unembed train --out {out} --resume" in told
    assert told.count("which is saved") == 1
    assert RunFolder.open(out).latest()[0].step == 4
    assert ranks.run(2, *arguments(text, out)) == [0, 0], ranks.err(0)
    assert_same(out, straight)


@pytest.mark.slow
def test_one_two_and_one_processes_see_the_data_of_one(ranks, text, tmp_path):
    """1 -> 2 -> 1: each part goes on from the parts of the other, with the data that one process would have seen."""
    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    no_dropout = ["--set", "dropout=0"]
    assert ranks.run(1, *arguments(text, alone, kind="none"), *no_dropout) == [0], ranks.err(0)
    for n, kind, steps in [(1, "none", 2), (2, "fsdp", 4), (1, "none", 6)]:
        statuses = ranks.run(n, *arguments(text, mixed, kind=kind, steps=steps), *no_dropout)
        assert statuses == [0] * n, ranks.err(0)
    assert [one.is_sharded for one in RunFolder.open(mixed).checkpoints()] == [False, False, True, False]
    ours, theirs = lines(mixed), lines(alone)
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert (own["step"], own["split"], own["tokens"]) == (other["step"], other["split"], other["tokens"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["sample", "RUN", "--greedy", "--tokens", "2"],
        ["inspect", "RUN"],
        ["tie", "RUN"],
        ["convert", "RUN", "PLACE", "--to", "native"],
        ["lens", "RUN", "La gata"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_reads_parts_as_one_model(straight, tmp_path, words):
    done = run(*[{"RUN": straight, "PLACE": tmp_path / "one"}.get(word, word) for word in words], "--format", "json")
    assert done.code == 0, done.err
    found = done.json
    if words[0] == "convert":
        assert (found["parameters"], found["tied"]) == (791_424, True)
        ours, theirs = unembed.load(tmp_path / "one"), RunFolder.open(straight).latest()[0].weights()
        assert all(np.array_equal(p.detach().numpy(), theirs[name].numpy()) for name, p in ours.named_parameters())
    if words[0] == "inspect":
        assert found["problems"] == []
        assert {"name": "embed.table", "dtype": "F32", "shape": [22, 128]} in found["tensors"]
    if words[0] == "tie":
        assert found["verdict"] == "Tied: the file holds one table, embed.table."


@pytest.mark.slow
def test_exact_resume_claims_nothing_of_several_processes(straight):
    found = {claim["name"]: claim for claim in run("verify", straight, "--format", "json").json["claims"]}
    assert found["exact resume"]["status"] == "skipped"
    assert found["exact resume"]["detail"].startswith("2 processes trained there")
    assert "failed" not in {claim["status"] for claim in found.values()}
