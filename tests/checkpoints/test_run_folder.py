"""A run that is killed, or whose disk fills, at any moment goes on from a whole checkpoint (A29)."""

import os
import random
import resource
import shutil
import signal
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.faults import FaultyDisk, assert_holds, in_child, state_of, stray_names, was_killed
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.intact import open_checkpoint
from unembed.checkpoints.run.native import retained
from unembed.errors import CheckpointError, ResourceError, RunError, UnembedError

DESCRIPTION = {"spec": {"d_model": 64}, "seed": 1, "limit": float("inf"), "data": "한국어 \udc80.txt"}


@pytest.fixture
def template(tmp_path):
    """A run with whole checkpoints at steps 0 and 1, closed."""
    path = tmp_path / "template"
    with RunFolder.create(path, description=DESCRIPTION) as run:
        for step in (0, 1):
            run.append_metrics({"step": step, "loss_nats": 2.0 - step})
            run.save_checkpoint(step, **state_of(step))
    return path


@pytest.fixture
def fresh(template, tmp_path):
    """Gives a new copy of the template at each call."""
    numbers = iter(range(10_000))
    return lambda: shutil.copytree(template, tmp_path / f"copy-{next(numbers)}")


def calls_of(path, work) -> list[str]:
    """The disk's calls that one piece of work makes, the lock's cleaning included."""
    disk = FaultyDisk()
    with RunFolder.open(path, files=disk) as run:
        work(run)
    return disk.calls


def save(step, version=0):
    return lambda run: run.save_checkpoint(step, **state_of(step, version=version))


# a new step, and a step whose folder another state has already
SAVES = pytest.mark.parametrize(("step", "version"), [(2, 0), (1, 7)], ids=["new", "replaced"])


def test_a_run_comes_back_as_it_was_saved(template):
    run = RunFolder.open(template)
    assert run.description == DESCRIPTION
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [0, 1]
    newest, messages = run.latest()
    assert messages == []
    assert_holds(newest, state_of(1))
    assert_holds(open_checkpoint(template / "checkpoints" / "step-000000"), state_of(0))
    assert sorted(path.name for path in newest.path.iterdir()) == [
        "MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip


def test_a_save_flushes_before_it_renames_and_after(fresh):
    calls = calls_of(fresh(), save(2))
    in_place = calls.index("rename")
    assert calls.count("create") == 4
    assert calls[:in_place].count("sync") == 5  # the metrics and four files
    assert calls.index("sync") < calls.index("create")
    assert calls[in_place - 1 : in_place + 2] == ["sync_folder", "rename", "sync_folder"]


@SAVES
@pytest.mark.parametrize(
    ("fault", "stays"),
    [
        ("ENOSPC", True),
        ("EIO", False),
        ("short", False),
        pytest.param("short", True, marks=pytest.mark.slow),
        pytest.param("ENOSPC", False, marks=pytest.mark.slow),
        pytest.param("EIO", True, marks=pytest.mark.slow),
        pytest.param("EDQUOT", True, marks=pytest.mark.slow),
    ],
)
def test_every_call_of_a_save_may_fail(fresh, step, version, fault, stays):
    calls = calls_of(fresh(), save(step, version))
    assert {"create", "write", "sync", "close", "rename", "sync_folder"} <= set(calls)
    n_failures = 0
    for at in range(len(calls)):
        path = fresh()
        disk = FaultyDisk(at=at, fault=fault, stays=stays)
        error = None
        with RunFolder.open(path, files=disk) as run:
            try:
                save(step, version)(run)
            except UnembedError as caught:
                error = caught
        if error is not None:
            n_failures += 1
            assert isinstance(error, ResourceError if fault in {"ENOSPC", "EDQUOT"} else CheckpointError | RunError)
            assert error.exit_code == (4 if fault in {"ENOSPC", "EDQUOT"} else 3)
            expected = {"ENOSPC": "No space left", "EDQUOT": "quota exceeded", "EIO": "Input/output error"}[fault]
            assert expected in str(error)
            assert " failed: " in str(error)
        run = RunFolder.open(path)
        run.lock()
        newest, messages = run.latest()
        assert messages == []
        if error is None:
            assert_holds(newest, state_of(step, version=version))
        elif newest.step == step and newest.state["version"] == version:  # the last flush failed: whole, and said so
            assert "a power cut may undo it" in str(error)
        else:
            assert_holds(newest, state_of(1))
            assert ("was not saved" in str(error)) or ("metrics.jsonl" in str(error))
        assert stray_names(path / "checkpoints") == []
        run.close()
    assert n_failures == 0 if fault == "short" else n_failures >= 20


@SAVES
@pytest.mark.parametrize("fault", [pytest.param("kill", marks=pytest.mark.slow), "torn"])
def test_a_kill_at_every_call_of_a_save(fresh, step, version, fault):
    calls = calls_of(fresh(), save(step, version))
    for at in range(len(calls)):
        if fault == "torn" and calls[at] not in {"write", "rename"}:
            continue  # nothing to tear: as "kill"
        path = fresh()
        disk = FaultyDisk(at=at, fault=fault)
        assert was_killed(in_child(lambda: save(step, version)(RunFolder.open(path, files=disk))))  # noqa: B023
        reader, _ = RunFolder.open(path).latest()
        assert reader is not None
        with RunFolder.open(path) as run:
            run.lock()
            newest, messages = run.latest()
            assert messages == []
            old = newest.step == 1 and newest.state["version"] == 0
            assert_holds(newest, state_of(1) if old else state_of(step, version=version))
            assert stray_names(path / "checkpoints") == []
            save(3)(run)
            assert run.latest()[0].step == 3


def kill_at_random_moments(folder, n_kills, seed):
    """Saves in a loop in a child, kills it from outside, and holds what is left against what it said it had saved."""
    draw = random.Random(seed)
    RunFolder.create(folder, description={}).close()
    saved = -1
    for _ in range(n_kills):
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            run = RunFolder.open(folder)
            step = saved
            while True:
                step += 1
                save(step)(run)
                run.prune(keep=retained(range(step + 1)))
                os.write(writing, b"%d\n" % step)
        os.close(writing)
        with open(reading, "rb") as lines:
            first = lines.readline()
            time.sleep(draw.uniform(0, 0.08))
            os.kill(pid, signal.SIGKILL)
            assert was_killed(os.waitpid(pid, 0)[1])
            told = int((lines.read().split() or [first])[-1])
        run = RunFolder.open(folder)
        newest, messages = run.latest()
        assert messages == []
        assert newest.step in (told, told + 1)
        assert_holds(newest, state_of(newest.step))
        run.lock()
        assert stray_names(folder / "checkpoints") == []
        run.close()
        saved = newest.step
    assert saved >= n_kills - 1


def test_killed_from_outside_at_random_moments(tmp_path):
    kill_at_random_moments(tmp_path / "run", n_kills=5, seed=0)


@pytest.mark.slow
def test_killed_from_outside_at_twenty_random_moments(tmp_path):
    kill_at_random_moments(tmp_path / "run", n_kills=20, seed=1)


def test_a_limit_on_file_size_is_a_full_disk(fresh):
    path = fresh()
    large = state_of(2)
    large["weights"]["head.table"] = torch.zeros(100, 100)

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        with pytest.raises(
            ResourceError, match=r"model\.safetensors after 20,000 bytes failed: File too large"
        ) as caught:
            RunFolder.open(path).save_checkpoint(2, **large)
        os._exit(caught.value.exit_code)

    assert os.waitstatus_to_exitcode(in_child(work)) == 4
    newest, messages = RunFolder.open(path).latest()
    assert (newest.step, messages) == (1, [])


def test_an_exception_within_a_save_leaves_nothing(template):
    class Stopped(BaseException):
        pass

    class Disk(FaultyDisk):
        def sync(self, handle):
            raise Stopped

    run = RunFolder.open(template, files=Disk())
    (template / "metrics.jsonl").unlink()
    with pytest.raises(Stopped):
        save(2)(run)
    assert sorted(path.name for path in (template / "checkpoints").iterdir()) == ["step-000000", "step-000001"]


def test_nothing_unfinished_is_taken_for_a_checkpoint(template):
    checkpoints = template / "checkpoints"
    for name in (".saving-step-000009", ".removing-step-000009", "step-9", "step-000009.bak", "notes"):
        shutil.copytree(checkpoints / "step-000001", checkpoints / name)
    (template / ".report.html.saving-999999999").write_text("half")
    (template / f".report.html.saving-{os.getpid()}").write_text("another one at work")
    run = RunFolder.open(template)
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [0, 1]
    run.lock()
    assert stray_names(checkpoints) == []
    assert stray_names(template) == [f".report.html.saving-{os.getpid()}"]
    assert (checkpoints / "notes").is_dir()


def test_a_replacement_that_never_came_is_undone(template):
    checkpoints = template / "checkpoints"
    (checkpoints / "step-000001").rename(checkpoints / ".replaced-step-000001")
    run = RunFolder.open(template)
    assert run.latest()[0].step == 0
    run.lock()
    assert_holds(run.latest()[0], state_of(1))


DAMAGE = {
    "cut": (lambda folder: os.truncate(folder / "model.safetensors", 100), r"model\.safetensors has 100 bytes; its manif"),
    "flipped": (lambda folder: flip(folder / "optimizer.safetensors", 150), r"optimizer\.safetensors is not what was sav"),
    "absent": (lambda folder: (folder / "state.json").unlink(), r"state\.json is missing"),
    "no manifest": (lambda folder: (folder / "MANIFEST.json").unlink(), "it has no manifest"),
    "manifest cut": (lambda folder: os.truncate(folder / "MANIFEST.json", 20), "is not the JSON that was written there"),
    "manifest empty": (lambda folder: os.truncate(folder / "MANIFEST.json", 0), "is not the JSON that was written there"),
    "manifest list": (lambda folder: (folder / "MANIFEST.json").write_text("[]"), "holds a list, not an object"),
    "manifest nested": (lambda folder: (folder / "MANIFEST.json").write_text("[" * 60_000), "nested too deeply"),
    "manifest huge": (lambda folder: (folder / "MANIFEST.json").write_text(" " * 70_000), "larger than the 65,536 bytes"),
    "other step": (lambda folder: change(folder / "MANIFEST.json", '"step": 1', '"step": 7'), "is that of step 7"),
    "other format": (lambda folder: change(folder / "MANIFEST.json", "point-1", "point-9"), "is of the format 'unembed-ch"),
    "other files": (lambda folder: change(folder / "MANIFEST.json", "state.json", "../x"), "does not list model.safetens"),
    "no sum": (lambda folder: change(folder / "MANIFEST.json", "sha256", "md5"), "has no size and sum in the manifest"),
}  # fmt: skip


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("damage", DAMAGE)
def test_falling_back_says_so_and_why(template, damage):
    spoil, reason = DAMAGE[damage]
    run = RunFolder.open(template)
    assert run.latest()[0].step == 1  # remembered as verified, and still noticed below
    spoil(template / "checkpoints" / "step-000001")
    newest, messages = run.latest()
    assert newest.step == 0
    assert len(messages) == 2
    assert messages[0].startswith("step-000001 is passed over: ")
    assert messages[1] == "going back to step-000000"
    with pytest.raises(CheckpointError, match=f"step-000001: .*{reason}"):
        open_checkpoint(template / "checkpoints" / "step-000001")
    save(1)(run)
    assert_holds(run.latest()[0], state_of(1))
    run.close()


def test_no_complete_checkpoint(template, tmp_path):
    for step in (0, 1):
        (template / "checkpoints" / f"step-00000{step}" / "state.json").unlink()
    newest, messages = RunFolder.open(template).latest()
    assert newest is None
    assert messages[-1] == "none of the checkpoints is complete"
    assert RunFolder.create(tmp_path / "new", description={}).latest() == (None, [])


def test_steps_are_sorted_as_numbers(tmp_path):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        for step in (1_000_000, 999_999, 5):
            save(step)(run)
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [5, 999_999, 1_000_000]
        assert run.latest()[0].path.name == "step-1000000"


def test_pruning_keeps_what_it_is_told_and_the_last_whole_one(template):
    with RunFolder.open(template) as run:
        for step in (2, 3, 4):
            save(step)(run)
        (template / "checkpoints" / "step-000004" / "state.json").unlink()
        run.prune(keep=[1])
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [1, 3]
        run.prune(keep=[])
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [3]
        assert (template / "checkpoints" / "step-000004").is_dir()


@pytest.mark.parametrize("at", range(3))
def test_a_kill_while_pruning_leaves_no_half_checkpoint(template, at):
    disk = FaultyDisk(at=at, fault="kill")
    assert was_killed(in_child(lambda: RunFolder.open(template, files=disk).prune(keep=[])))
    run = RunFolder.open(template)
    assert run.latest()[0].step == 1
    assert run.latest()[1] == []
    assert all(isinstance(run._examine(folder), type(run.latest()[0])) for folder in run._folders())


def test_retention_worked_example():
    assert sorted(retained(range(0, 2100, 100), best=700, keep_every=500)) == [0, 500, 700, 1000, 1500, 1900, 2000]
    assert retained([], best=3) == set()
    assert retained([7], best=3, keep_every=2) == {7}


@given(st.sets(st.integers(0, 500)), st.none() | st.integers(0, 500), st.none() | st.integers(1, 60))
def test_property_retention(steps, best, keep_every):
    kept = retained(steps, best=best, keep_every=keep_every)
    assert kept <= steps
    for step in steps:
        is_due = keep_every is not None and step % keep_every == 0
        is_last = sum(other > step for other in steps) < 2
        assert (step in kept) == (step in (0, best) or is_due or is_last)


def test_a_run_is_not_started_over_another(template, tmp_path):
    with pytest.raises(RunError, match=r"holds a run already\. Go on with it by --resume, or choose another"):
        RunFolder.create(template, description={})
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty, and holds no run\. Choose another folder"):
        RunFolder.create(tmp_path / "letters", description={})
    with pytest.raises(RunError, match="is a file"):
        RunFolder.create(tmp_path / "letters" / "a.txt", description={})
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["a.txt"]
    with pytest.raises(RunError, match=r"is no run \(it has no run.json\)"):
        RunFolder.open(tmp_path / "letters")
    assert RunFolder.exists(template)
    assert not RunFolder.exists(tmp_path / "letters")


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", pytest.param("kill", marks=pytest.mark.slow), "torn"])
def test_a_start_that_failed_can_be_started_again(tmp_path, fault):
    disk = FaultyDisk()
    RunFolder.create(tmp_path / "count", description=DESCRIPTION, files=disk).close()
    for at in range(len(disk.calls)):
        path = tmp_path / f"run-{at}"
        files = FaultyDisk(at=at, fault=fault)
        if fault == "torn" and disk.calls[at] != "write":
            continue
        if fault in {"kill", "torn"}:
            assert was_killed(in_child(lambda: RunFolder.create(path, description=DESCRIPTION, files=files)))  # noqa: B023
        else:
            with pytest.raises(ResourceError if fault == "ENOSPC" else RunError, match="failed: "):
                RunFolder.create(path, description=DESCRIPTION, files=files)
        if RunFolder.exists(path):  # what failed came after run.json was in its place
            assert RunFolder.open(path).description == DESCRIPTION
        else:
            RunFolder.create(path, description=DESCRIPTION).close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not the JSON that was written there"),
        ('{"run_format": 1, "a": NaN}', "NaN is not JSON"),
        ('{"run_format": 1, "a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"run_format": 2}', "is not of format 1"),
        ("[1]", "is not of format 1"),
    ],
)
def test_a_damaged_run_file_is_named(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match=rf"run\.json: .*{message}"):
        RunFolder.open(tmp_path)


def test_descriptions_that_json_would_change_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"the run's description cannot be stored: \$\.a: the key 3 is no string"):
        RunFolder.create(tmp_path / "run", description={"a": {3: 4}})
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match="may not hold the key 'run_format'"):
        RunFolder.create(tmp_path / "run", description={"run_format": 3})


def test_a_description_can_be_replaced(template):
    with RunFolder.open(template) as run:
        run.write_description({"steps": 2000})
        assert run.description == {"steps": 2000}
    assert RunFolder.open(template).description == {"steps": 2000}


def test_texts_are_written_beside_a_training_process(template):
    with RunFolder.open(template) as training:
        training.lock()
        reporter = RunFolder.open(template)
        reporter.write_text("report.html", "<p>안녕</p>\r\n")
        assert (template / "report.html").read_bytes() == "<p>안녕</p>\r\n".encode()
        for name in ("../report.html", "run.json", "metrics.jsonl", ".lock", "checkpoints", "a/b", ""):
            with pytest.raises(RunError, match="is not the plain name of a file"):
                reporter.write_text(name, "")


def test_a_text_that_does_not_fit_leaves_the_old_one(template):
    RunFolder.open(template).write_text("README.md", "old")
    disk = FaultyDisk()
    RunFolder.open(template, files=disk).write_text("README.md", "old")
    for at in range(disk.calls.index("rename") + 1):
        with pytest.raises(ResourceError, match=r"README\.md keeps its old contents"):
            RunFolder.open(template, files=FaultyDisk(at=at, fault="ENOSPC")).write_text("README.md", "new")
        assert (template / "README.md").read_text() == "old"
    assert stray_names(template) == []


def test_one_process_trains_into_a_run(template):
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        run = RunFolder.open(template)
        run.lock()
        os.write(writing, b".")
        time.sleep(600)
    os.read(reading, 1)
    for work in (
        save(2),
        lambda run: run.append_metrics({"step": 2}),
        lambda run: run.append_sample({"step": 1, "text": ""}),
        lambda run: run.truncate_logs(0),
        lambda run: run.prune(keep=[]),
        lambda run: run.write_description({}),
    ):
        with pytest.raises(RunError, match=rf"process {pid} on .* is training into this run\. Wait until it ends"):
            work(RunFolder.open(template))
    assert RunFolder.open(template).latest()[0].step == 1  # reading needs no lock
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with RunFolder.open(template) as run:
        save(2)(run)
        assert run.latest()[0].step == 2


def test_a_worker_that_outlives_a_killed_trainer_holds_no_lock(template):
    reading, writing = os.pipe()
    if (trainer := os.fork()) == 0:
        run = RunFolder.open(template)
        run.lock()
        if os.fork() == 0:
            os.write(writing, b"%d\n" % os.getpid())
            time.sleep(600)
        time.sleep(600)
    worker = int(os.read(reading, 20))
    with pytest.raises(RunError, match=f"process {trainer} on"):
        RunFolder.open(template).lock()
    os.kill(trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    try:
        with RunFolder.open(template) as run:
            run.lock()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_closing_gives_the_lock_back(template):
    first, second = RunFolder.open(template), RunFolder.open(template)
    with first:
        first.lock()
        first.lock()
        with pytest.raises(RunError, match="is training into this run"):
            second.lock()
    second.lock()
    second.close()
    second.close()
    forgotten = RunFolder.open(template)
    forgotten.lock()
    del forgotten
    first.lock()
    first.close()
