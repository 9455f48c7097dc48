"""Disks that are really full, too small, read-only or broken: what was saved loads, and the message says what failed.

The injected faults of test_run_folder.py walk through every call of a save; here the operating system itself refuses, on a
disk in memory of a few hundred kilobytes. Mounting one needs root, so these tests skip elsewhere, and say so. The last
part names each kind of injected failure by its words.
"""

import contextlib
import errno
import os
import random
import shutil
import subprocess

import numpy as np
import pytest
import torch

from checkpoints.faults import FaultyDisk, assert_holds, in_child, state_of, stray_names
from small import run_config, trainer_of
from unembed.checkpoints.files import Disk
from unembed.checkpoints.load import load
from unembed.checkpoints.run import lock
from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.errors import CheckpointError, ResourceError, RunError

ENOUGH = 8 << 20


def mount(folder, *options: str) -> None:
    subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path):
    """Makes a disk in memory of a size, in bytes, that can be changed by calling again; gives its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def of_size(n_bytes: int):
        if not os.path.ismount(folder):
            try:
                mount(folder, "-t", "tmpfs", "-o", f"size={n_bytes}", "unembed-test")
            except (OSError, subprocess.CalledProcessError):
                pytest.skip("mounting a disk in memory needs root")
        else:
            mount(folder, "-o", f"remount,rw,size={n_bytes}")
        return folder

    yield of_size
    if os.path.ismount(folder):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder) -> None:
    """Leaves no byte on a disk."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def bits_of_last(run: RunFolder) -> dict:
    return {name: tensor.clone() for name, tensor in run.latest()[0].weights().items()}


# --- a disk of a few hundred kilobytes ------------------------------------------------------------------------


def test_training_on_a_disk_that_fills_stops_and_goes_on_when_there_is_space(disk, tmp_path):
    """The checkpoint of step 4 does not fit. Step 2 is whole; with more space the run ends as one that never stopped."""
    config = run_config(steps=8, checkpoint_every=2, eval_every=8)
    with RunFolder.create(tmp_path / "straight", description={}) as run:
        trainer_of(config, run=run).run()
        straight = bits_of_last(run)
        size = sum(path.stat().st_size for path in run.latest()[0].path.iterdir())
    folder = disk(int(2.2 * size) + (64 << 10))
    with RunFolder.create(folder / "run", description={}) as run:
        with pytest.raises(
            ResourceError,
            match=r"(writing|creating|making) .*\.saving-step-00000[46].* failed: No space left on device\. step-00000[46] was"
            " not saved; the checkpoints before it are untouched",
        ) as caught:
            trainer_of(config, run=run).run()
        assert caught.value.exit_code == 4
    assert stray_names(folder / "run" / "checkpoints") == []
    disk(ENOUGH)
    with RunFolder.open(folder / "run") as run:
        newest, messages = run.latest()
        assert messages == []
        assert newest.step in (2, 4)
        run.truncate_logs(newest.step)
        trainer = trainer_of(config, run=run)
        trainer.resume(newest.weights(), newest.optimizer(), newest.state, "here")
        trainer.run()
        ended = bits_of_last(run)
    assert ended.keys() == straight.keys()
    assert all(torch.equal(ended[name], straight[name]) for name in straight)


def test_a_log_that_cannot_grow_stops_the_run_and_keeps_whole_lines(disk):
    folder = disk(ENOUGH)
    with RunFolder.create(folder / "run", description={}) as run:
        trainer = trainer_of(run_config(steps=4000, checkpoint_every=4000, eval_every=4000), run=run)
        trainer.observers = (lambda trainer, record: fill(folder) if record["step"] == 3 else None,)
        with pytest.raises(
            ResourceError,
            match=r"appending to .*metrics\.jsonl failed: No space left on device\. The record of step \d+ is not in the",
        ) as caught:
            trainer.run()
        assert caught.value.exit_code == 4
        lost = trainer.step_number
        records = run.metrics()
        assert [r["step"] for r in records if r["split"] == "train"] == list(range(1, lost))
        assert run.latest()[0].step == 0
        (folder / "filler").unlink()
        run.append_metrics({"step": lost})
        assert run.metrics() == [*records, {"step": lost}]


def test_nothing_of_a_start_is_left_on_a_disk_that_is_too_small_for_the_ids(disk):
    folder = disk(64 << 10)
    with pytest.raises(OSError, match="No space left on device"):
        write_shards(folder / "data", 400_000)
    assert list(folder.iterdir()) == []
    disk(ENOUGH)
    write_shards(folder / "data", 400_000)
    assert len(TokenShards.open(folder / "data").train) == 400_000


def write_shards(folder, n_tokens: int) -> None:
    with ShardWriter(folder, vocab_size=9, tokenizer="f") as writer:
        for _ in range(0, n_tokens, 4000):
            writer.append("train", np.zeros(4000, dtype=np.int64))


def test_a_full_disk_refuses_a_new_run_and_says_so(disk):
    folder = disk(ENOUGH)
    fill(folder)
    with pytest.raises(ResourceError, match=r"failed: No space left on device\. .*Make space there, or choose another"):
        RunFolder.create(folder / "run", description={"text": "x" * 9000})
    (folder / "filler").unlink()
    RunFolder.create(folder / "run", description={}).close()


# --- a disk that becomes read-only ----------------------------------------------------------------------------


def test_a_run_on_a_read_only_disk_is_read_and_not_trained(disk):
    folder = disk(ENOUGH)
    path = folder / "run"
    with RunFolder.create(path, description={}) as run:
        run.append_metrics({"step": 1})
        run.save_checkpoint(1, **state_of(1))
    mount(folder, "-o", "remount,ro")
    run = RunFolder.open(path)
    assert_holds(run.latest()[0], state_of(1))
    assert run.metrics() == [{"step": 1}]
    for work in (run.lock, lambda: run.append_metrics({"step": 2}), lambda: run.save_checkpoint(2, **state_of(2))):
        with pytest.raises(RunError, match=r"run: cannot be written to: Read-only file system\. Choose another folder"):
            work()
    with pytest.raises(
        RunError, match=r"creating .*README\.md.* failed: Read-only file system\. README\.md was not written"
    ):
        run.write_text("README.md", "text")
    with pytest.raises(RunError, match=r"new: cannot be written, for .*disk may not be changed"):
        RunFolder.create(folder / "new", description={})


@pytest.mark.parametrize("code", ["EROFS", "EIO", "EACCES"])
def test_a_disk_that_breaks_while_training_leaves_the_last_checkpoint(tmp_path, code):
    """From some call on nothing can be written, as when the system remounts a broken disk read-only."""
    config = run_config(steps=4, checkpoint_every=1, eval_every=50)
    sound = FaultyDisk()
    with RunFolder.create(tmp_path / "sound", description={}, files=sound) as run:
        trainer_of(config, run=run).run()
    in_place = [at for at, call in enumerate(sound.calls) if call == "rename"]  # run.json, then a checkpoint each
    for at in (in_place[2] - 5, in_place[2], in_place[2] + 1, in_place[2] + 3):
        path = tmp_path / f"run-{at}"
        disk = FaultyDisk(at=at, fault=code, stays=True)
        with RunFolder.create(path, description={}, files=disk) as run:
            trainer = trainer_of(config, run=run)
            said = rf"failed: {os.strerror(getattr(errno, code))}\. .*Check that disk and its"
            with pytest.raises((RunError, CheckpointError), match=said):
                trainer.run()
        newest, messages = RunFolder.open(path).latest()
        assert messages == []
        assert newest.step == (0 if at <= in_place[2] else 1)


# --- a limit on the size of files -----------------------------------------------------------------------------


def test_a_limit_on_file_size_stops_the_command_with_exit_code_4(tmp_path, text_of_a_run):
    """The weights fit under the limit, the optimizer's file does not: the run stops at its second checkpoint."""
    resource = pytest.importorskip("resource", reason="the system has no limits on the size of files")
    from commands import run as command

    path, words = tmp_path / "run", ["--recipe", "nanogpt-cpu", "--set", "context_length=8", "--set", "batch_size=2"]
    words += ["--set", "checkpoint_every=2", "--set", "eval_every=9", "--steps", "4", "--quiet", "--out", str(path)]

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
        done = command("train", text_of_a_run, *words)
        (tmp_path / "said").write_text(done.err)
        os._exit(done.code)

    assert os.waitstatus_to_exitcode(in_child(work)) == 4
    said = (tmp_path / "said").read_text()
    assert "optimizer.safetensors after 4,194,304 bytes failed: File too large. step-000002 was not saved" in said
    assert len(said.splitlines()) <= 6
    assert RunFolder.open(path).latest()[0].step == 0
    assert load(path).spec.context_length == 8
    done = command("train", text_of_a_run, *words, "--resume")
    assert done.code == 0, done
    assert RunFolder.open(path).latest()[0].step == 4


@pytest.fixture
def text_of_a_run(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 20)
    return path


# --- injected: each kind of failure by its words --------------------------------------------------------------

SAID = {
    "create": r"creating .*\.saving-step-000002/model\.safetensors failed",
    "write": r"writing .*\.saving-step-000002/model\.safetensors after 0 bytes failed",
    "close": r"closing .*metrics\.jsonl|closing .*\.saving-step-000002/model\.safetensors failed|flushing .*metrics\.jsonl",
    "rename": r"moving \.saving-step-000002 to .*step-000002 failed",
    "make_folder": r"making .*checkpoints failed: Input/output error\. The checkpoint was not saved",
}


@pytest.mark.parametrize("call", SAID)
def test_each_call_that_fails_is_named(tmp_path, call):
    path = tmp_path / "run"
    with RunFolder.create(path, description={}) as run:
        run.append_metrics({"step": 1})
        run.save_checkpoint(1, **state_of(1))
    calls = calls_of_a_save(shutil.copytree(path, tmp_path / "counted"))
    with (
        RunFolder.open(path, files=FaultyDisk(at=calls.index(call), fault="EIO")) as run,
        pytest.raises((CheckpointError, RunError), match=SAID[call]) as caught,
    ):
        run.save_checkpoint(2, **state_of(2))
    assert caught.value.exit_code == 3
    assert_holds(RunFolder.open(path).latest()[0], state_of(1))


def test_a_flush_that_fails_is_a_save_that_failed(tmp_path):
    """What fsync refuses may be gone from memory too, so no later flush can vouch for it: the checkpoint is given up."""
    path = tmp_path / "run"
    with RunFolder.create(path, description={}) as run:
        run.append_metrics({"step": 1})
        run.save_checkpoint(1, **state_of(1))
    calls = calls_of_a_save(shutil.copytree(path, tmp_path / "counted"))
    syncs = [at for at, call in enumerate(calls) if call in {"sync", "sync_folder"}]
    assert [calls[at] for at in syncs] == ["sync"] * 5 + ["sync_folder"] * 2
    said = [
        r"flushing .*metrics\.jsonl to the disk failed: .*Its last lines may be lost in a power cut",
        *(
            rf"flushing .*{name} to the disk failed: Input/output error\. step-000002 was not saved"
            for name in (r"model\.safetensors", r"optimizer\.safetensors", r"state\.json", r"MANIFEST\.json")
        ),
        r"flushing .*\.saving-step-000002 to the disk failed: .*step-000002 was not saved",
        r"flushing .*checkpoints to the disk failed: .*step-000002 is saved, but a power cut may undo it",
    ]
    for at, message in zip(syncs, said, strict=True):
        copy = shutil.copytree(path, tmp_path / f"copy-{at}")
        with (
            RunFolder.open(copy, files=FaultyDisk(at=at, fault="EIO")) as run,
            pytest.raises((CheckpointError, RunError), match=message),
        ):
            run.save_checkpoint(2, **state_of(2))
        newest, messages = RunFolder.open(copy).latest()
        assert messages == []
        assert_holds(newest, state_of(2 if at == syncs[-1] else 1))
        with RunFolder.open(copy) as run:
            run.save_checkpoint(3, **state_of(3))
            assert_holds(run.latest()[0], state_of(3))


class FullAfter(Disk):
    """A disk with room for so many more bytes: a write takes what still fits, the next one is refused."""

    def __init__(self, n_bytes: int) -> None:
        self.room = n_bytes

    def write(self, handle, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = super().write(handle, data[: self.room])
        self.room -= taken
        return taken


def test_no_space_at_any_byte_leaves_the_old_state_and_says_so(tmp_path):
    """A29b: at 40 random bytes of a save that replaces another, and at its first and last."""
    path = tmp_path / "run"
    with RunFolder.create(path, description={}) as run:
        run.save_checkpoint(1, **state_of(1))
        size = sum(file.stat().st_size for file in run.save_checkpoint(2, **state_of(2)).iterdir())
    moments = [0, size - 1, *random.Random(3).sample(range(1, size - 1), 40)]
    for moment in moments:
        with (
            RunFolder.open(path, files=FullAfter(moment)) as run,
            pytest.raises(ResourceError, match=r"No space left on device\. step-000002 was not saved") as caught,
        ):
            run.save_checkpoint(2, **state_of(2, version=7))
        assert caught.value.exit_code == 4
        assert_holds(RunFolder.open(path).latest()[0], state_of(2))
        assert stray_names(path / "checkpoints") == []
    with RunFolder.open(path, files=FullAfter(size + 100)) as run:
        run.save_checkpoint(2, **state_of(2, version=7))
    assert_holds(RunFolder.open(path).latest()[0], state_of(2, version=7))


def calls_of_a_save(path) -> list[str]:
    disk = FaultyDisk()
    with RunFolder.open(path, files=disk) as run:
        run.save_checkpoint(2, **state_of(2))
    return disk.calls


# --- a lock whose file is gone --------------------------------------------------------------------------------


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    """A start that came to nothing removes its run, the lock's file too. Who waited at that file must not hold it."""
    flock, removed = lock.fcntl.flock, []

    def removing_first(handle, how):
        if not removed:
            removed.append(handle)
            (tmp_path / lock.NAME).unlink()
        flock(handle, how)

    monkeypatch.setattr(lock.fcntl, "flock", removing_first)
    held = lock.RunLock.take(tmp_path)
    assert removed
    with pytest.raises(RunError, match="is training into this run"):
        lock.RunLock.take(tmp_path)
    held.release()

    def always_removing(handle, how):
        (tmp_path / lock.NAME).unlink()

    monkeypatch.setattr(lock.fcntl, "flock", always_removing)
    with pytest.raises(RunError, match="another process makes and removes this run again and again"):
        lock.RunLock.take(tmp_path)
