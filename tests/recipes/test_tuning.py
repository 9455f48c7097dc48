"""Tuning as a whole: it is written, scored, refused and taken up; a kill costs the steps since the last save, and no bit."""

import os
import signal
import time

import pytest
import torch

from oracles.specs import base, changed
from oracles.weights import draw
from small import small_model, tokens
from unembed.errors import Interrupted, NotFiniteError, RunError
from unembed.lenses.tuned_file import load_lens, training_path
from unembed.lenses.tuned_lens import settings_for
from unembed.recipes.tuning import Tuning, tune


def tuning(path, *, model=None, text=0, **numbers):
    model = small_model(changed(base(2)), dtype=torch.float32) if model is None else model
    settings = settings_for(model, **{"steps": 12, "rows": 32, "window": 8, "start_tokens": 500, **numbers})
    return Tuning(model, tokens(2000, seed=text), tokens(300, seed=7), settings, path / "lens")


class Killed(Exception):
    """Stands for a kill: nothing that is written afterwards counts."""


def test_a_lens_is_written_scored_and_can_be_read(tmp_path):
    heard = []
    one = tuning(tmp_path)
    found = tune(one, held_out_tokens=100, notice=lambda step, kl: heard.append((step, kl)))
    assert [step for step, _ in heard] == list(range(1, 13))
    assert found.values["written"] == str(tmp_path / "lens")
    assert found.values["held_out_tokens"] >= 100
    assert found.tables["layers"]["lens"].tolist() == ["logit"] * 3 + ["tuned"] * 3
    assert found.values["middle_kl_ratio"] < 0.5
    read = load_lens(tmp_path / "lens", one.model)
    assert read.about["settings"]["steps"] == 12
    assert read.about["middle_kl_ratio"] == found.values["middle_kl_ratio"]
    assert [path.name for path in tmp_path.iterdir()] == ["lens"]


@pytest.mark.parametrize("at", [1, 5, 12])
def test_a_killed_training_ends_with_the_bytes_of_one_that_was_not(tmp_path, at):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    tune(tuning(whole))

    def notice(step, kl_nats):
        if step == at:
            raise Killed

    with pytest.raises(Killed):
        tune(tuning(killed), notice=notice)
    assert training_path(killed / "lens").exists()
    said = []
    tune(tuning(killed), resume=True, say=said.append)
    assert said == [f"going on after step {at - 1} of 12"]
    assert (killed / "lens").read_bytes() == (whole / "lens").read_bytes()


def test_a_signal_saves_the_step_in_progress(tmp_path):
    def notice(step, kl_nats):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

    with pytest.raises(Interrupted, match="stopped by SIGTERM after step 3, which is saved"):
        tune(tuning(tmp_path, steps=60), notice=notice)
    said = []
    tune(tuning(tmp_path, steps=60), resume=True, say=said.append)
    assert said == ["going on after step 3 of 60"]


def test_what_is_in_the_way_is_refused_and_a_finished_one_is_reported(tmp_path):
    with pytest.raises(Killed):
        tune(tuning(tmp_path), notice=_kill)
    with pytest.raises(RunError, match=r"a training of this lens was begun. Go on with it by --resume"):
        tune(tuning(tmp_path))
    for other, says in (
        ({"steps": 13}, "this training was begun with steps 12, not 13"),
        ({"seed": 3}, "this training was begun with seed 0, not 3"),
        ({"text": 1}, "this training was begun on another text"),
    ):
        with pytest.raises(RunError, match=says):
            tune(tuning(tmp_path, **other), resume=True)
    done = tune(tuning(tmp_path), resume=True)
    with pytest.raises(RunError, match=r"is there already. Choose another file with --out"):
        tune(tuning(tmp_path))
    said = []
    again = tune(tuning(tmp_path), resume=True, say=said.append)
    assert said == ["the lens is finished already"]
    assert again.tables["layers"].to_dict() == done.tables["layers"].to_dict()
    with pytest.raises(RunError, match="this training was begun with steps 12, not 13"):
        tune(tuning(tmp_path, steps=13), resume=True)


def _kill(step, kl_nats):
    raise Killed


def test_resume_without_a_training_begins_one(tmp_path):
    tune(tuning(tmp_path), resume=True)
    assert (tmp_path / "lens").exists()


def test_a_model_whose_numbers_are_not_finite_is_not_tuned(tmp_path):
    model = small_model(dtype=torch.float32)
    with torch.no_grad():
        model.embed.table[3, 0] = torch.inf
    with pytest.raises(NotFiniteError, match="tune-lens"):
        tune(tuning(tmp_path, model=model))
    assert draw(base(), 0)  # the weights of the others were not touched
