"""An interrupted convert leaves nothing beside its destination, and no message names the hidden path that it writes at."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints import beside
from unembed.checkpoints.beside import leftovers, written_beside
from unembed.checkpoints.convert import write_model
from unembed.errors import CheckpointError, ResourceError, RunError

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
    block__mlp__activation="gelu_tanh",
)
PROGRAM = """
import signal, sys, time
from pathlib import Path
# as a shell starts a program in front; whoever runs the tests may ignore both (nohup, a job in the background)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from unembed.checkpoints.beside import written_beside
from unembed.checkpoints.files import saving_name
with written_beside(Path(sys.argv[1])) as temporary:
    temporary.mkdir()
    (temporary / "weights").write_bytes(b"x")
    saving_name(temporary).write_bytes(b"x")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_a_signal_leaves_nothing_or_what_the_next_to_write_there_removes(name, tmp_path):
    place, number = tmp_path / "out", getattr(signal, name)
    arguments = [sys.executable, "-c", PROGRAM, str(place)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout.readline() == "writing\n"
            there = sorted(tmp_path.iterdir())
            assert len(there) == 2
            assert leftovers(tmp_path) == []  # its process runs
            process.send_signal(number)
            assert process.wait(20) == -number
        finally:
            process.kill()
    assert leftovers(tmp_path) == sorted(tmp_path.iterdir()) == (there if name == "SIGKILL" else [])
    with written_beside(place) as temporary:
        temporary.mkdir()
    assert list(tmp_path.iterdir()) == [place]


def test_names_that_are_not_ours_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "is_alive", lambda pid: False)
    ours, other = beside._machine(), "0" * 8
    names = [
        f".writing-7-{other}-00000000",  # another machine's, where process 7 may run
        f".writing-7-{ours}-00000000.txt",
        f"writing-7-{ours}-00000000",
        f".writing-x-{ours}-00000000",
        f".writing-7-{ours}-0",
        ".writing-7",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    mine = tmp_path / f".writing-7-{ours}-00000000"
    mine.mkdir()
    assert leftovers(tmp_path) == [mine]


def test_a_handler_of_somebody_else_and_an_ignored_signal_stay(tmp_path):
    before = {number: signal.getsignal(number) for number in beside.SIGNALS}
    seen = []
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with written_beside(tmp_path / "out") as temporary:
            temporary.mkdir()
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
        assert seen == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize("to", ["hf", "native", "gguf"])
def test_messages_name_the_destination(to, tmp_path, monkeypatch):
    def full(layer, handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unembed.checkpoints.files.Disk.write", full)
    with pytest.raises(ResourceError, match=rf"{tmp_path}/out.* failed: No space left") as caught:
        write_model(small_model(GPT2, dtype=torch.float32), tmp_path / "out", to=to, source="m")
    assert ".writing" not in str(caught.value)
    assert ".saving" not in str(caught.value).replace("/.run.json.saving", "").replace("/.saving-step", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["hf", "native", "gguf"])
def test_a_place_where_nothing_can_be_made_is_named(to):
    with pytest.raises((CheckpointError, RunError), match=r"/proc/out.* failed: ") as caught:
        write_model(small_model(GPT2, dtype=torch.float32), Path("/proc/out"), to=to, source="m")
    assert ".writing" not in str(caught.value)
