"""Starts of several processes that cannot be: each is answered by one sentence, before text is read or a folder made."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import torch

from commands import run
from small import run_config, tokens, trainer_of
from unembed.errors import PeerLostError, RunError, UsageError
from unembed.model.init import build
from unembed.optim.make import optimizer_of
from unembed.recipes.together import after_a_loss, open_shared
from unembed.runtime import has_bfloat16
from unembed.training import parallel, processes
from unembed.training.loop import Trainer
from unembed.training.parallel import Parallel, check_batch, check_shares
from unembed.training.processes import Processes, joined, read_place

WHOLE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs train on a text, with some variables of torchrun's."""
    (tmp_path / "text.txt").write_text("The cat is under the table.\n" * 50)
    monkeypatch.chdir(tmp_path)

    def given(variables, *words, out="run"):
        for name in processes.VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        place = [] if out is None else ["--out", out]
        return run("train", "text.txt", "--recipe", "nanogpt-cpu", *place, *words)

    return given


@pytest.mark.parametrize(
    ("variables", "words", "says"),
    [
        ({"RANK": "0"}, [], "RANK is set, but not WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT."),
        ({"WORLD_SIZE": "1"}, [], "WORLD_SIZE is set, but not RANK."),
        (
            {**WHOLE, "MASTER_PORT": ""},
            [],
            "RANK and WORLD_SIZE and LOCAL_RANK and MASTER_ADDR are set, but not MASTER_PORT.",
        ),
        ({**WHOLE, "RANK": "0", "WORLD_SIZE": "two"}, [], "WORLD_SIZE='two', LOCAL_RANK='0'"),
        ({**WHOLE, "LOCAL_RANK": "2"}, [], "LOCAL_RANK 2 of LOCAL_WORLD_SIZE 2; ranks count from 0 and stay below"),
        ({}, ["parallel=ddp"], "parallel is ddp, but this is one process that nobody started beside others."),
        (
            WHOLE,
            [],
            "2 processes were started, and parallel is none: each would train the same. Give --set parallel=ddp",
        ),
        (WHOLE, ["parallel=none"], "2 processes were started, and parallel is none"),
        (
            WHOLE,
            ["parallel=fsdp", "batch_size=5"],
            "batch_size is 5, and 2 processes cannot share it evenly; a batch is shared by rows, so that the run sees what one "
            "process would. Try batch_size=4 or 6, or another number of processes",
        ),
        (WHOLE, ["parallel=fsdp", "batch_size=1"], "Try batch_size=2, or another number of processes"),
    ],
)
def test_what_is_said(command, variables, words, says):
    done = command(variables, *(part for word in words for part in ("--set", word)))
    assert says in done.err
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert not Path("run").exists()


def test_processes_that_train_together_are_told_one_folder(command):
    done = command(WHOLE, out=None)
    assert done.code == 2
    assert "several processes that train together need --out: the folder that is to be the run of all" in done.err


@pytest.mark.parametrize("words", [["--stepz", "3"], ["--steps", "0"], ["--recipe", "large"]])
def test_of_one_wrong_command_line_the_first_process_alone_speaks(command, words):
    first, second = (command({**WHOLE, "RANK": rank, "LOCAL_RANK": rank}, *words) for rank in "01")
    assert (first.code, second.code) == (2, 2)
    assert first.err
    assert second.err == ""


def test_nobody_comes(monkeypatch):
    monkeypatch.setattr(processes, "MEET_WITHIN", timedelta(seconds=1))
    for name, value in (there := {**WHOLE, "RANK": "1", "LOCAL_RANK": "1", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(
            PeerLostError, match=r"process 1 of 2 could not meet the others at 127\.0\.0\.1:1: .*Were all started"
        ),
        joined(there, "cpu"),
    ):
        pass
    assert PeerLostError("").exit_code == 4


def test_one_process_needs_none_of_it():
    assert read_place({}) is None
    with joined({}, "cpu") as alone:
        assert (alone.n, alone.is_first, alone.is_launched, alone.program) == (1, True, False, "unembed")
        assert alone.sums(1.5, 2) == [1.5, 2]
        assert alone.first(lambda: "word") == "word"
        assert alone.gathered([1]) == [[1]]


def test_a_disk_that_not_all_see(tmp_path):
    with pytest.raises(
        RunError, match=r"process 1 of 2 does not see the run that process 0 has there\. All machines must share"
    ):
        open_shared(tmp_path / "run", Processes(1, 2, store=object()))
    told = after_a_loss(tmp_path, Processes(0, 16, n_local=8, store=object()).program)
    assert "Go on with: torchrun --nnodes 2 --nproc-per-node 8 -m unembed train --out" in told


def test_what_cannot_be_shared_out():
    check_batch(6, 3)
    config = run_config(batch_size=4, parallel="fsdp")
    muon = optimizer_of("muon", config.training.optimizer)
    with pytest.raises(UsageError, match="optimizer muon steps whole matrices, of which a process has only some rows"):
        check_shares(msgspec.structs.replace(config.training, optimizer=muon), 2)
    with pytest.raises(UsageError, match="batch_size is 3, and 2 processes cannot share it evenly"):
        trainer_of(run_config(), parallel=Parallel("ddp", Processes(0, 2, store=object())))


def test_half_precision_is_refused_where_the_hardware_has_none(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "flags : sse avx2 avx512f")
    assert has_bfloat16("cpu") == "this processor has no instructions for it"
    with pytest.raises(UsageError, match="precision is bfloat16, but this processor has no instructions for it"):
        Parallel(precision="bfloat16")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "flags : sse avx512_bf16")
    assert has_bfloat16("cpu") is True
    assert has_bfloat16("mps") == "mps is not known to have instructions for it"


def test_half_precision_is_that_of_products_alone(monkeypatch):
    monkeypatch.setattr(parallel, "has_bfloat16", lambda device: True)
    config = run_config(batch_size=4, precision="bfloat16")
    model = build(config.model, config.init, seed=config.seed)
    half = Trainer(model, config, tokens(400), tokens(60, seed=1), parallel=Parallel(precision="bfloat16"))
    exact = trainer_of(run_config(batch_size=4))
    (loss, _), (expected, _) = half.step(), exact.step()
    assert loss != expected
    assert loss == pytest.approx(expected, rel=2e-2)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert half.evaluate() != exact.evaluate()
