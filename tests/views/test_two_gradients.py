"""What is told of a run's two gradients is what it noted, or what its checkpoints give; all of it is drawn."""

import json
import shutil

import numpy as np
import pytest
import torch

from unembed import catalogue
from unembed.pictures import draw
from unembed.recipes import start
from unembed.tying import split_gradient
from unembed.views import progress, tying
from unembed.views.run import RunView


def held_out(view):
    length = view.spec.context_length
    return [
        torch.from_numpy(a) for a in next(view.shards.val.windows(length, max(1, progress.GRADIENT_TOKENS // length)))
    ]


@pytest.fixture(scope="module")
def noting_run(text_run, tmp_path_factory):
    """The run on a text with its gradients noted at every second step; the text is that of the other."""
    out = tmp_path_factory.mktemp("noting") / "run"
    settings = {"context_length": 16, "batch_size": 4, "eval_every": 3, "steps": 6, "tying.gradient_every": 2}
    start.train([text_run.parent / "words.txt"], recipe_name="nanogpt-cpu", out=out, settings=settings)
    return out


def test_without_notes_each_kept_checkpoint_is_measured(text_view):
    found = tying.two_gradients(text_view)
    steps = [checkpoint.step for checkpoint in text_view.checkpoints]
    rows = found.tables["two_gradients"].rows()
    assert [row["step"] for row in rows] == steps * 2
    for index, step in enumerate(steps):
        expected = split_gradient(text_view.model(index), *held_out(text_view)).values
        by_part = {row["part"]: row for row in rows if row["step"] == step}
        assert by_part["lookup"]["norm"] == expected["lookup_norm"]
        assert by_part["projection"]["norm"] == expected["projection_norm"]
        assert by_part["lookup"]["share"] == expected["lookup_share"]
        assert by_part["lookup"]["share"] + by_part["projection"]["share"] == pytest.approx(1, rel=1e-15)
        assert found.tables["two_gradients_together"]["cosine"][index] == expected["cosine"]
    assert found.notes == ("gradients_are_measured",)
    assert found.values["last_cosine"] == expected["cosine"]


def test_notes_are_shown_as_they_stand_and_broken_ones_passed_over(noting_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(noting_run, run)
    lines = (run / "tying.jsonl").read_text(encoding="utf-8").splitlines()
    noted = [json.loads(line) for line in lines]
    broken = {"step": 3, "lookup_norm": None, "projection_norm": "long"}
    (run / "tying.jsonl").write_text("\n".join([lines[0], json.dumps(broken), *lines[1:]]) + "\n", encoding="utf-8")
    found = tying.two_gradients(RunView.open(run))
    together = found.tables["two_gradients_together"]
    assert together["step"].tolist() == [2, 4, 6]
    for name in ("cosine", "update_norm", "update_lookup_share"):
        assert together[name].tolist() == [record[name] for record in noted]
    norms = found.tables["two_gradients"]["norm"].tolist()
    assert norms == [record[f"{part}_norm"] for part in ("lookup", "projection") for record in noted]
    assert found.notes == ("gradients_are_noted",)
    view = RunView.open(run)
    expected = split_gradient(view.model(), *held_out(view))
    assert (
        found.tables["by_frequency"]["lookup_share"].tolist()
        == expected.tables["by_frequency"]["lookup_share"].tolist()
    )
    strongest = found.tables["strongest_rows"]
    longest = np.sort(expected.tables["rows"]["sum_norm"])[::-1][: strongest.n_rows]
    sums = expected.tables["rows"]["sum_norm"]
    texts = expected.tables["rows"]["token"]
    assert [sums[texts.tolist().index(token)] for token in strongest["token"]] == longest.tolist()


def test_a_run_without_its_data_shows_what_it_noted_and_one_with_neither_has_no_section(noting_run, text_run, tmp_path):
    for name, source in (("noting", noting_run), ("text", text_run)):
        shutil.copytree(source, tmp_path / name)
        shutil.rmtree(tmp_path / name / "data")
    assert not tying.can_be_split(RunView.open(tmp_path / "text"))
    view = RunView.open(tmp_path / "noting")
    assert tying.can_be_split(view)
    assert set(tying.two_gradients(view).tables) == {"two_gradients", "two_gradients_together"}


def test_every_picture_is_drawn_in_every_language(noting_run):
    found = tying.two_gradients(RunView.open(noting_run))
    assert [picture.key for picture in found.pictures] == [
        "two_gradients_share",
        "two_gradients_norm",
        "two_gradients_cosine",
        "share_by_frequency",
    ]
    for lang in catalogue.LANGUAGES:
        words = catalogue.load(lang)
        for picture in found.pictures:
            assert words.find(f"picture.{picture.key}"), picture.key
            assert draw(picture, found.tables, lang=lang)
