"""`unembed.calibration`, `gradient_flow`, `truth` and `tune_lens`: what the commands print, and what a notebook gets wrong."""

from pathlib import Path

import pytest
import torch

import unembed
from commands import run
from unembed.errors import CheckpointError, CorpusError, InputError, RunError, UsageError
from unembed.model.transformer import Transformer
from unembed.tokenizers.characters import CharacterTokenizer

SMALL = {"context_length": 16, "batch_size": 2, "eval_every": 2, "steps": 2}
QUICK = {"steps": 2, "rows": 16, "start_tokens": 100, "held_out_tokens": 40}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    # what is held out is another sentence, so that numbers of the wrong part show
    path.write_text("to be or not to be, that is the question\n" * 50 + "no trout is bitten, the boat is quiet\n" * 10)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    unembed.train(text, recipe="nanogpt-cpu", out=path, **SMALL)
    return path


@pytest.fixture(scope="module")
def model(trained) -> Transformer:
    return unembed.load(trained)


@pytest.fixture(scope="module")
def grammatical(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "grammar"
    unembed.train(recipe="tour", out=path, steps=1, batch_size=2, eval_every=1)
    return path


@pytest.fixture(scope="module")
def bare() -> Transformer:
    return unembed.load("mini-gpt")


def options_of(settings) -> list[str]:
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def test_calibration_is_the_command_on_a_run_and_on_a_text(trained, model, text):
    found = unembed.calibration(model, trained, tokens=60)
    assert found.to_dict() == run("calibration", trained, "--tokens", "60", "--format", "json").json
    assert found.values["held_out_tokens"] == 64  # four whole windows of 16
    of_text = unembed.calibration(model, [text], tokens=60)
    assert of_text.to_dict() == run("calibration", trained, text, "--tokens", "60", "--format", "json").json


def test_gradient_flow_is_the_command_and_leaves_the_model_as_it_was(trained, model, text):
    before = [parameter.clone() for parameter in model.parameters()]
    found = unembed.gradient_flow(model, str(trained))
    assert found.to_dict() == run("flow", trained, "--format", "json").json
    assert unembed.gradient_flow(model, text).values["loss_nats"] > 0
    assert all(torch.equal(one, now) for one, now in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_before_is_measured_as_its_checkpoint_is(trained):
    first = unembed.load(trained, step=0)
    place = trained / "checkpoints" / "step-000000"
    assert unembed.gradient_flow(first, trained).to_dict() == run("flow", place, "--format", "json").json


def test_tune_lens_is_the_command_and_is_read_through(trained, model, tmp_path):
    mine, theirs = tmp_path / "mine.safetensors", tmp_path / "theirs.safetensors"
    found = unembed.tune_lens(model, trained, out=mine, **QUICK).to_dict()
    printed = run("tune-lens", trained, "--out", theirs, *options_of(QUICK), "--format", "json").json
    assert mine.read_bytes() == theirs.read_bytes()
    assert {name: found[name] for name in found if name not in ("written", "seconds")} == {
        name: printed[name] for name in printed if name not in ("written", "seconds")
    }
    assert found["written"] == str(mine)
    both = unembed.calibration(model, trained, tuned=mine, tokens=60)
    shown = run("calibration", trained, "--tuned", theirs, "--tokens", "60", "--format", "json").json
    assert both.to_dict() == shown
    assert set(both.tables["layers"]["lens"]) == {"logit", "tuned"}
    assert unembed.lens(model, "to be", tuned=mine).values["tokens"] == list("to be")
    again = unembed.tune_lens(model, trained, out=mine, resume=True, **QUICK)
    assert (again.values["seconds"], again.values["steps"]) == (0.0, 2)
    with pytest.raises(RunError, match="is there already"):
        unembed.tune_lens(model, trained, out=mine, **QUICK)
    with pytest.raises(CheckpointError, match="was tuned for a model with other weights"):
        unembed.calibration(unembed.load(trained, step=0), trained, tuned=mine)


@pytest.mark.slow
def test_truth_is_the_command(grammatical, model):
    found = unembed.truth(unembed.load(grammatical), grammatical)
    assert found.to_dict() == run("truth", grammatical, "--format", "json").json
    early = unembed.truth(unembed.load(grammatical, step=0), grammatical)
    assert early.to_dict() != found.to_dict()
    with pytest.raises(UsageError, match=r"truth: the ids of .* were made by another tokenizer than this model's"):
        unembed.truth(model, grammatical)


def test_ids_of_another_tokenizer_are_not_read(trained, bare):
    message = "were made by another tokenizer than this model's, so they mean other tokens. Give the files"
    other = unembed.load(trained)
    other.tokenizer = CharacterTokenizer.from_text("abc")
    for call in (unembed.calibration, unembed.gradient_flow):
        for one in (bare, other):
            with pytest.raises(UsageError, match=message):
                call(one, trained)


def test_what_cannot_be_read_is_refused_in_words(model, bare, trained, text, tmp_path):
    with pytest.raises(InputError, match=r"flow: this model has no tokenizer.*unembed.load\(MODEL, tokenizer=FILE\)"):
        unembed.gradient_flow(bare, text)
    with pytest.raises(CorpusError, match="nowhere"):
        unembed.calibration(model, tmp_path / "nowhere")
    with pytest.raises(InputError, match="was not trained on a grammar of ours, so nobody knows its truth"):
        unembed.truth(model, trained)
    with pytest.raises(RunError, match="nowhere"):
        unembed.truth(model, tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no-lens"):
        unembed.calibration(model, trained, tuned=tmp_path / "no-lens")
    (tmp_path / "a.csv").write_text("text,n\nto be,1\n" * 40)
    with pytest.raises(CorpusError, match="column 'words'"):
        unembed.calibration(model, tmp_path / "a.csv", column="words")


MISUSED = [
    (lambda m: unembed.calibration("runs/x", "a"), r"calibration: got the name 'runs/x', expected a model"),
    (lambda m: unembed.gradient_flow(5, "a"), "gradient_flow: got a int, expected a model"),
    (lambda m: unembed.truth("runs/x", "runs/x"), "truth: got the name 'runs/x', expected a model"),
    (lambda m: unembed.tune_lens("runs/x", "a", out="b"), "tune_lens: got the name 'runs/x', expected a model"),
    *(
        (lambda m, data=data: unembed.calibration(m, data), "calibration: data is .*, expected the folder of a run")
        for data in (None, 5, "", [], [5], b"a", {"a": 1}, ["a.txt", ""])
    ),
    (lambda m: unembed.gradient_flow(m, "a\0b"), "holds a NUL character"),
    (lambda m: unembed.gradient_flow(m, ["a" * 5000]), "is too long for a path"),
    (lambda m: unembed.calibration(m, "a", tokens=0), "calibration: tokens is 0; it must be at least 1"),
    (lambda m: unembed.calibration(m, "a", tokens=None), "calibration: tokens is None, expected a whole number"),
    (lambda m: unembed.calibration(m, "a", tokens=2.5), "calibration: tokens is 2.5, expected a whole number"),
    (lambda m: unembed.calibration(m, "a", column=5), "calibration: column is 5, expected a text"),
    (lambda m: unembed.calibration(m, "a", tuned=5), "calibration: tuned is 5, expected the path of a lens"),
    (lambda m: unembed.truth(m, None), "truth: run is None, expected the path of a run's folder"),
    (lambda m: unembed.truth(m, "a", tuned=[]), r"truth: tuned is \[\], expected the path of a lens"),
    (lambda m: unembed.tune_lens(m, "a", out=None), "tune_lens: out is None, expected the path of the file to write"),
    (lambda m: unembed.tune_lens(m, "a", out=""), "tune_lens: out is '', expected the path of the file to write"),
    (lambda m: unembed.tune_lens(m, "a", out="b", resume="no"), "tune_lens: resume is 'no', expected True or False"),
    (lambda m: unembed.tune_lens(m, "a", out="b", steps="3"), "tune_lens: steps is '3', expected a whole number"),
    (lambda m: unembed.tune_lens(m, "a", out="b", rows=0), "rows is 0; it must be at least 1"),
    (lambda m: unembed.tune_lens(m, "a", out="b", window=10**6), "window is 1000000, but the model's context has"),
    (lambda m: unembed.tune_lens(m, "a", out="b", learning_rate=2), "learning_rate is 2; it must lie between 0 and 1"),
    (lambda m: unembed.tune_lens(m, "a", out="b", seed=None), "tune_lens: seed is None, expected a whole number"),
    (lambda m: unembed.tune_lens(m, "a", out="b", seed=-1), "tune_lens: seed is -1; it must be at least 0"),
    (lambda m: unembed.tune_lens(m, "a", out="b", held_out_tokens=0), "held_out_tokens is 0; it must be at least 1"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_misuse_is_answered_with_our_errors(bare, call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        call(bare)
    assert list(tmp_path.iterdir()) == []
