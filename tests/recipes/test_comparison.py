"""The comparison of five ways to share a table: which runs it makes, how it chooses, goes on, and tells; on runs of two steps.

Next to read: test_start.py.
"""

import json
import shutil
from types import SimpleNamespace

import pytest

from commands import run
from unembed.errors import NotFiniteError, RunError, UsageError
from unembed.recipes import comparison
from unembed.recipes.comparison import RATES, SEEDS, WAYS, Run, compare_sharing, markdown
from unembed.recipes.shared_table import prepare

LINE = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n"
FEW = {"steps": 2, "batch_size": 2, "context_length": 16}
N_RUNS = len(WAYS) * (len(RATES) + len(SEEDS))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(
        "".join(f"{number}: {LINE}" for number in range(60)) + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )
    return path


class Fake:
    """Stands for `train`: a loss by way, rate and seed, and a list of what was asked for."""

    def __init__(self, loss):
        self.loss, self.asked = loss, []

    def __call__(self, data, *, recipe_name, out, settings, resume, **rest):
        assert (recipe_name, resume) == ("shared-table", True)
        self.asked.append((out.parent.name, settings["learning_rate"], settings["seed"]))
        found = self.loss(*self.asked[-1])
        if found is None:
            raise NotFiniteError("step 1: loss nan")
        return SimpleNamespace(val_loss_nats=found, val_bits_per_byte=found, parameters=7)


def faked(monkeypatch, loss):
    fake = Fake(loss)
    monkeypatch.setattr(comparison, "train", fake)
    monkeypatch.setattr(comparison, "_likeness", lambda paths, way: dict.fromkeys(NAMES, 0.5))
    return fake


NAMES = [f"{measure}{end}" for measure in comparison.MEASURES for end in ("", "_by_chance")]


def test_the_rate_is_chosen_on_a_seed_that_is_not_reported(text, tmp_path, monkeypatch):
    """Seed 0 likes the middle rate; the others would like another, and are not asked."""
    fake = faked(
        monkeypatch, lambda way, rate, seed: 2.0 + abs(rate - RATES[1] if seed == 0 else rate - RATES[2]) + seed
    )
    table = compare_sharing([text], out=tmp_path / "out").tables["comparison"]
    assert set(table["learning_rate"]) == {RATES[1]}
    assert not table["rate_at_edge"].any()
    asked = set(fake.asked)
    assert len(fake.asked) == len(asked) == N_RUNS == 30
    for way in WAYS:
        assert {(rate, seed) for one, rate, seed in asked if one == way} == {
            *((rate, 0) for rate in RATES),
            *((RATES[1], seed) for seed in SEEDS),
        }
    away = RATES[2] - RATES[1]
    assert table["mean"] == pytest.approx([4.0 + away] * 5)
    assert table["deviation"] == pytest.approx([1.0] * 5)  # of seeds 1, 2, 3: n - 1
    assert table["lowest"] == pytest.approx([3.0 + away] * 5)
    assert table["highest"] == pytest.approx([5.0 + away] * 5)


def test_differences_are_taken_seed_by_seed(text, tmp_path, monkeypatch):
    """Seeds differ by whole nats, ways by tenths: a pair of the same seed shows the tenths."""
    ways = list(WAYS)
    faked(monkeypatch, lambda way, rate, seed: 10.0 * seed + ways.index(way) / 10 + rate)
    table = compare_sharing([text], out=tmp_path / "out").tables["comparison"]
    assert table["minus_tied"] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert table["minus_tied_deviation"] == pytest.approx([0] * 5, abs=1e-12)
    assert table["rate_at_edge"].all()


def test_a_rate_that_diverges_is_never_the_best_and_a_way_without_any_is_told(text, tmp_path, monkeypatch):
    def loss(way, rate, seed):
        return (
            None if (way, rate) == ("tied", RATES[0]) or way == "mapped" or (way, seed) == ("untied", 2) else 1.0 + rate
        )

    faked(monkeypatch, loss)
    result = compare_sharing([text], out=tmp_path / "out")
    rows = {row["sharing"]: row for row in result.tables["comparison"].rows()}
    assert rows["tied"]["learning_rate"] == RATES[1]
    assert (rows["untied"]["diverged"], rows["untied"]["mean"]) == (1, 1.0 + RATES[0])
    assert (rows["mapped"]["diverged"], rows["mapped"]["mean"], rows["mapped"]["parameters"]) == (3, None, None)
    assert "| `mapped` | 0.003, at the edge | - | - | - to - | - | - |" in markdown(result)


def test_another_comparison_is_not_mixed_in(text, tmp_path, monkeypatch):
    faked(monkeypatch, lambda way, rate, seed: 1.0)
    out = tmp_path / "out"
    compare_sharing([text], out=out, settings={"steps": 2})
    compare_sharing([text], out=out, settings={"steps": 2})
    for more in ({"settings": {"steps": 3}}, {"settings": {"steps": 2}, "vocabulary": 320}):
        with pytest.raises(RunError, match="another comparison was begun here: other data, vocabulary or settings"):
            compare_sharing([text], out=out, **more)
    text.write_text("other text")
    with pytest.raises(RunError, match="another comparison was begun here"):
        compare_sharing([text], out=out, settings={"steps": 2})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="there is something already, and it is no comparison"):
        compare_sharing([text], out=tmp_path / "full")


@pytest.mark.parametrize("name", ["seed", "learning_rate", "sharing", "tied", "tying.lookup_gradient_scale"])
def test_what_is_compared_cannot_be_set(name, text, tmp_path):
    with pytest.raises(UsageError, match=f"compare-sharing: {name} is what is compared"):
        compare_sharing([text], out=tmp_path / "out", settings={name: 1})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wanted", ["letters", 3, True, 70_000])
def test_vocabularies_that_cannot_be(wanted, text, tmp_path):
    with pytest.raises(
        UsageError, match=r"setting vocabulary is .*; it must be 'characters', or a whole number of BPE"
    ):
        compare_sharing([text], out=tmp_path / "out", vocabulary=wanted)


def test_the_recipe_makes_either_vocabulary(text):
    from unembed.corpora.reading import Reading

    letters, merged = (prepare([str(text)], Reading(), more) for more in ({}, {"vocabulary": 330}))
    assert letters.tokenizer.kind == "characters"
    assert 256 < merged.tokenizer.vocab_size <= 330  # a small text has fewer pairs to merge
    for one in (letters, merged):
        assert one.config.model.embedding.vocab_size == one.tokenizer.vocab_size
        assert (one.config.model.embedding.d_model, one.config.model.n_layers, one.config.training.steps) == (
            64,
            4,
            500,
        )


@pytest.mark.slow  # thirty runs
def test_thirty_real_runs_go_on_where_they_were(text, tmp_path):
    """The whole command; then one run is lost, and another has lost its last checkpoint: the same comes out."""
    out = tmp_path / "out"
    line = ["compare-sharing", text, "--out", out, "--vocabulary", "320", "--format", "json", "--steps", "2"]
    line += ["--set", "batch_size=2", "--set", "context_length=16"]
    first = run(*line)
    assert first.code == 0, first.err
    assert first.json["comparison"]["sharing"] == list(WAYS)
    assert len(first.json["runs"]["run"]) == N_RUNS
    assert "30 of 30: pseudo_inverse" in first.err
    page = (out / "comparison.md").read_text()
    assert page.count("\n") == 2 + len(WAYS)
    shutil.rmtree(out / "mapped" / f"rate-{RATES[0]:g}-seed-0")
    shutil.rmtree(out / "untied" / f"rate-{RATES[1]:g}-seed-0" / "checkpoints" / "step-000002")
    again = run(*line)
    assert again.json == first.json
    assert (out / "comparison.md").read_text() == page
    # every run is an ordinary one
    (path,) = (out / "pseudo_inverse").glob("rate-*-seed-3")
    description = json.loads((path / "run.json").read_text())
    assert description["config"]["model"]["head"]["type"] == "pseudo_inverse"
    assert run("tie", path, "--format", "json").json["kind"] == "through_inverse"
    (path,) = (out / "scaled_lookup").glob("rate-*-seed-3")
    training = json.loads((path / "run.json").read_text())["config"]["training"]
    assert training["tying"]["lookup_gradient_scale"] == comparison.LOOKUP_SCALE


def test_a_run_that_is_read_again_is_the_run(tmp_path, text):
    done = comparison._run(tmp_path, [text], "mapped", 1e-2, 1, FEW, 1, lambda name: None)
    assert isinstance(done, Run)
    again = comparison._run(tmp_path, [text], "mapped", 1e-2, 1, FEW, 1, lambda name: None)
    assert again == done
    assert done.val_loss_nats > 0


def test_a_text_with_too_few_characters_is_refused_before_the_first_run(tmp_path, monkeypatch):
    """The pseudo-inverse runs would be refused after all those of four other ways."""
    fake = faked(monkeypatch, lambda *_: 1.0)
    few = tmp_path / "few.txt"
    few.write_text("to be or not to be\n" * 200)
    told = (
        "the text gives a vocabulary of 8 and the model is 64 wide, but a pseudo-inverse head needs at least as many "
        "tokens as the model is wide; nothing was begun. Give --vocabulary 320, or more text"
    )
    with pytest.raises(UsageError, match=told):
        compare_sharing([few], out=tmp_path / "out")
    assert (fake.asked, (tmp_path / "out").exists()) == ([], False)
    compare_sharing([few], out=tmp_path / "out", vocabulary=320)
    assert len(fake.asked) == N_RUNS
