"""What a person sees of a run: the line and its numbers, the sample now and then, and what comes at a signal."""

import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import command, environment, run, screens, spawn
from small import run_config, tokens, trainer_of
from unembed.cli import progress
from unembed.cli.progress import FEWER_THREADS, PEAK_EXPLAINED, Progress, _duration, stopping
from unembed.model.product import measure_flops
from unembed.planning.flops import flops
from unembed.recipes.outcome import outcome
from unembed.training.config import with_settings

SMALL = ("--recipe", "nanogpt-cpu", "--set", "context_length=8", "--set", "batch_size=2", "--set", "eval_every=2")


def shown(trainer, records, *, is_terminal=False, quiet=False, monkeypatch=None):
    with screens(is_terminal=is_terminal) as (out, err):
        watching = Progress(quiet=quiet)
        for record in records:
            watching(trainer, record)
    assert out.text == ""
    return err.text


def record(step, split="train", **more):
    return {"step": step, "split": split, "loss_nats": 2.5, **more}


@pytest.fixture
def peak(monkeypatch):
    """A machine of a known peak, which counts how often it is measured."""
    asked = []

    def measured(device):
        asked.append(device)
        return 1e9

    monkeypatch.setattr(progress, "measure_flops", measured)
    return asked


def at(trainer, step, tokens, seconds):
    trainer.step_number, trainer.tokens, trainer.seconds = step, tokens, seconds
    return trainer


def test_the_line_holds_speed_share_of_the_peak_and_time_left(peak, monkeypatch):
    """36 tokens a step; 3,600 tokens in 2 seconds are 1,800 a second, and what is left of 1,000 steps takes 18 s."""
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    trainer = trainer_of(run_config(steps=1000))
    with screens() as (_, err):
        watching = Progress(quiet=False)
        watching(at(trainer, 0, 0, 0.0), record(0, "val"))
        watching(at(trainer, 100, 3600, 2.0), record(100))
    share = 1800 * flops(trainer.config.model).training / 1e9
    assert err.text.splitlines() == [
        "step    0/1000 · val 2.5000 nats",
        PEAK_EXPLAINED,
        f"step  100/1000 · loss 2.5000 · val 2.5000 nats (step 0) · 1,800 tokens/s · {share:.0%} of peak · 18 s left",
    ]
    assert 0.001 < share < 1


def test_the_last_line_tells_the_speed_that_the_summary_tells(peak):
    """The first record comes after 4 slow seconds: 9,000 tokens in 5 seconds more are 1,800 a second, of all 1,000."""
    trainer = trainer_of(run_config(steps=1000))
    with screens() as (_, err):
        watching = Progress(quiet=False)
        watching(at(trainer, 1, 0, 4.0), record(1))
        watching(at(trainer, 1000, 9000, 9.0), record(1000, "val"))
    assert " · 1,000 tokens/s · " in err.text.splitlines()[-1]
    assert outcome(trainer, Path("run")).tokens_per_second == 1000.0


def test_tokens_a_second_are_those_of_all_processes_and_the_share_is_of_all_their_peaks(peak, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    trainer = trainer_of(run_config(steps=1000))
    trainer.processes = SimpleNamespace(n=2)
    with screens() as (_, err):
        watching = Progress(quiet=False)
        watching(at(trainer, 0, 0, 0.0), record(0, "val"))
        watching(at(trainer, 100, 360_000, 2.0), record(100))
    share = 180_000 * flops(trainer.config.model).training / 2e9
    assert f" · 180,000 tokens/s by 2 processes · {share:.0%} of peak · " in err.text
    assert share > 0.05


def test_the_peak_is_measured_once_and_only_for_a_line_that_is_shown(peak, monkeypatch):
    trainer = at(trainer_of(run_config(steps=1000)), 100, 3600, 2.0)
    before = at(trainer_of(run_config(steps=1000)), 0, 0, 0.0)
    with screens():
        silent = Progress(quiet=True)
        for one in (before, trainer, trainer):
            silent(one, record(one.step_number))
    assert peak == []
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    with screens():
        watching = Progress(quiet=False)
        for one in (before, trainer, trainer, trainer):
            watching(one, record(one.step_number))
    assert peak == ["cpu"]


def test_a_run_that_stops_early_has_no_time_left(peak):
    config = with_settings(run_config(steps=1000, eval_every=1), {"early_stop": 1})
    trainer = trainer_of(config)
    trainer.validation = trainer.validation.after(0, 1.0)
    with screens() as (_, err):
        watching = Progress(quiet=False)
        watching(at(trainer, 0, 0, 0.0), record(0, "val"))
        trainer.validation = trainer.validation.after(10, 1.0)
        watching(at(trainer, 10, 360, 1.0), record(10, "val"))
    assert err.text.splitlines()[-1].endswith(" · 0 s left")


def test_a_sample_is_one_safe_line_and_not_too_many(peak):
    trainer = trainer_of(run_config())
    sample = {"step": 4, "split": "sample", "text": "To be\n\x1b[2J or " + "x" * 200}
    told = shown(trainer, [sample, {**sample, "step": 5}])
    (line,) = told.splitlines()
    assert line.startswith("step 4 writes: To be\\n\\x1b[2J or xxx")
    assert line.endswith("x…")
    assert len(line) == len("step 4 writes: ") + 100
    assert shown(trainer, [sample], quiet=True) == ""
    assert shown(trainer, [sample], is_terminal=True).startswith("\r\x1b[2Kstep 4 writes")


def test_durations():
    found = [_duration(s) for s in (0, 0.4, 59.6, 60, 3599, 3600, 86_399, 86_400, 1e6)]
    assert found == [
        "0 s", "0 s", "1 min 0 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "23 h 59 min", "1 d 0 h", "11 d 13 h",
    ]  # fmt: skip


def test_the_measured_peak_is_that_of_real_products():
    """No product of the same size done by hand is faster than the peak by more than the clock's own noise."""
    import torch

    peak = measure_flops(seconds=0.05)
    matrix = torch.full((1024, 1024), 1 / 1024)
    began = time.perf_counter()
    matrix @ matrix
    assert 1e8 < peak < 1e14
    assert 2 * 1024**3 / (time.perf_counter() - began) < 3 * peak


def test_samples_reach_the_screen_and_the_folder(tmp_path, text_file):
    done = run("train", text_file, "--out", tmp_path / "run", *SMALL, "--steps", "2")
    assert done.code == 0, done
    assert "step 0 writes: " in done.err
    assert (tmp_path / "run" / "samples.jsonl").read_text().count("\n") == 2
    assert "% of peak" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "quiet"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_is_answered_at_once_and_the_last_line_is_the_command_that_goes_on(tmp_path, text_file, number, quiet):
    out = tmp_path / "a run"
    words = [*SMALL, "--steps", "100000", *(["--quiet"] if quiet else [])]
    process = subprocess.Popen(
        command("train", text_file, "--out", out, *words),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while process.poll() is None and not (out / "metrics.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(number)
    told, err = (stream.decode() for stream in process.communicate(timeout=300))
    assert (process.returncode, told) == (130, ""), err
    assert (f"{stopping(number.name)}\n" in err) is not quiet
    last = err.splitlines()[-1]
    assert last == f"Go on with: unembed train --out '{out}' --resume"
    words = shlex.split(last.partition(": ")[2])
    # one step is less than what is done, so the run is reported and nothing is trained
    again = spawn(*words[1:], "--steps", "1", "--format", "json")
    assert again.code == 0, again
    assert again.json["step"] >= 1
    assert again.json["val_step"] <= again.json["step"]


def test_the_line_holds_bits_per_byte_where_the_held_out_part_is_text(peak):
    """60 tokens that spell 120 bytes: 2.5 nats a token are 2.5 / ln 2 / 2 bits a byte."""
    trainer = trainer_of(run_config(steps=1000), val=replace(tokens(60, seed=1), n_bytes=120))
    with screens() as (_, err):
        Progress(quiet=False)(at(trainer, 0, 0, 0.0), record(0, "val"))
    assert err.text == "step    0/1000 · val 2.5000 nats, 1.803 bits/byte\n"


@pytest.mark.parametrize(("threads", "n_hints"), [(2, 1), (1, 0)])
def test_a_share_that_stays_low_hints_once_at_fewer_threads(threads, n_hints, peak, monkeypatch):
    """One token a second of a machine of 1e9 operations a second is next to nothing of it."""
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "set_threads", lambda n: threads)
    trainer = trainer_of(run_config(steps=1000))
    with screens() as (_, err):
        watching = Progress(quiet=False)
        for step in range(0, 60, 4):
            watching(at(trainer, step, step, float(step)), record(step))
            assert FEWER_THREADS not in err.text or step >= 12
    assert err.text.count(FEWER_THREADS) == n_hints


def test_a_share_that_is_high_enough_hints_at_nothing(peak, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "set_threads", lambda n: 2)
    trainer = trainer_of(run_config(steps=1000))
    fast = int(0.2 * 1e9 / flops(trainer.config.model).training)
    with screens() as (_, err):
        watching = Progress(quiet=False)
        for step in range(0, 60, 4):
            watching(at(trainer, step, step * fast, float(step)), record(step))
    assert FEWER_THREADS not in err.text
