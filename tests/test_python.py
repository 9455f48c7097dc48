"""`import unembed`: the names of contract.md, and that they do what the commands do."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unembed
from commands import environment, run
from unembed.errors import CheckpointError, InputError, RunError, ShapeError, UsageError
from unembed.model.counts import Counts
from unembed.model.transformer import Transformer

SMALL = {"context_length": 8, "batch_size": 2, "eval_every": 2, "steps": 2}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("to be or not to be, that is the question\n" * 60)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("runs") / "tiny"
    return unembed.train(text, recipe="nanogpt-cpu", out=path, **SMALL)


@pytest.fixture(scope="module")
def model(trained) -> Transformer:
    return unembed.load(trained.run)


def test_import_is_instant_and_names_come_when_they_are_used():
    code = "import sys, unembed; print('torch' in sys.modules, 'numpy' in sys.modules); "
    code += "unembed.count('gpt2'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["False", "False", "False"]


def test_names_are_those_of_the_contract_and_others_are_refused():
    assert {"load", "train", "generate", "generate_many", "candidates", "lens", "count"} <= set(dir(unembed))
    assert all(callable(getattr(unembed, name)) for name in unembed.__all__)
    assert unembed.__version__.count(".") == 2
    with pytest.raises(
        AttributeError, match="has no attribute 'lense'; it has attention, attribute, calibration, candidates"
    ):
        _ = unembed.lense


def test_no_name_is_also_a_folder_or_file_which_would_take_its_place():
    folder = Path(unembed.__file__).parent
    assert [name for name in unembed.__all__ if (folder / name).exists() or (folder / f"{name}.py").exists()] == []


def test_train_gives_what_the_command_prints(trained, text):
    assert (trained.step, trained.tokens, trained.context_length) == (2, 32, 8)
    assert trained.parameters == unembed.count(trained.run).parameters
    with pytest.raises(RunError, match="holds a run already"):
        unembed.train(text, recipe="nanogpt-cpu", out=trained.run)
    again = unembed.train(recipe="nanogpt-cpu", out=trained.run, resume=True)
    assert (again.step, again.val_loss_nats) == (2, trained.val_loss_nats)


def test_train_takes_dotted_settings_with_underscores(text, tmp_path):
    unembed.train([text], recipe="nanogpt-cpu", out=tmp_path / "run", training__clip_norm=0.5, **{**SMALL, "steps": 1})
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert config["training"]["clip_norm"] == 0.5
    with pytest.raises(UsageError, match=r"no setting is named 'training\.clip'"):
        unembed.train([text], recipe="nanogpt-cpu", out=tmp_path / "other", training__clip=0.5)
    assert not (tmp_path / "other").exists()


def test_load_gives_the_model_in_two_halves(model):
    ids = torch.tensor([model.tokenizer.encode("to be").ids])
    with torch.no_grad():
        logits = model(ids)
        assert torch.equal(model.unembed(model.hidden(ids)), logits)
    assert logits.shape == (1, 5, model.spec.embedding.vocab_size)
    assert model.spec.ties_embeddings


def test_load_of_a_step_and_of_a_preset(trained, model):
    first = unembed.load(trained.run, step=0)
    assert not torch.equal(first.embed.table, model.embed.table)
    assert unembed.load("mini-gpt").tokenizer is None
    with pytest.raises(CheckpointError, match=r"no complete checkpoint of step 1; there are \[0, 2\]"):
        unembed.load(trained.run, step=1)
    with pytest.raises(CheckpointError, match="Did you mean mini-gpt"):
        unembed.load("mini-gtp")


def test_generate_is_the_command(trained, model):
    result = unembed.generate(model, "to be", tokens=4, temperature=0.8, seed=3)
    options = ("--prompt", "to be", "--tokens", "4", "--temperature", "0.8", "--seed", "3")
    assert result.to_dict() == run("sample", trained.run, *options, "--format", "json").json
    assert model.tokenizer.decode(result.values["ids"]) == result.values["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"top_k": 0}, "top-k is 0"),
        ({"past_context": "wrap"}, "past_context is 'wrap'; it must be 'slide' or 'stop'"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"tokens": -1}, "tokens is -1"),
    ],
)
def test_generate_refuses_what_cannot_be(model, options, message):
    with pytest.raises(UsageError, match=message):
        unembed.generate(model, "to", **options)


def test_lens_of_a_text_of_ids_and_of_a_batch_say_the_same(model):
    ids = list(model.tokenizer.encode("to be").ids)
    of_text = unembed.lens(model, "to be", top=3)
    assert of_text.values["tokens"] == list("to be")
    of_ids = unembed.lens(model, ids=torch.tensor(ids), top=3)
    assert json.dumps(of_ids.to_dict()) == json.dumps(of_text.to_dict())
    batch = unembed.lens(model, ids=torch.tensor([ids, ids[::-1]]), top=3)
    assert batch.values["entropy_nats"].shape == (2, model.spec.n_layers + 1, 5)
    np.testing.assert_allclose(batch.values["entropy_nats"][0], of_text.values["entropy_nats"], atol=1e-5)
    mine = batch.tables["top"]["batch"] == 0
    assert batch.tables["top"]["ids"][mine].tolist() == of_text.tables["top"]["ids"].tolist()
    assert isinstance(of_text.tables["lens"]["entropy_nats"], np.ndarray)
    assert of_text.values["identity_error"] <= 1e-5


def test_lens_statistics_as_in_the_contract(model):
    found = unembed.lens(model, ids=torch.tensor([1, 2]), statistics=("top", "logsumexp", "entropy")).to_dict()
    assert {"top", "logsumexp_nats", "entropy_nats"} <= set(found)
    assert "target_rank" not in found


def test_lens_without_a_tokenizer_has_ids_but_no_texts():
    bare = unembed.load("mini-gpt")
    assert unembed.lens(bare, ids=[7, 12]).values["tokens"] == [None, None]
    with pytest.raises(
        InputError,
        match=r"has no tokenizer, so a text has no ids; name its file with --tokenizer, or in Python give ids=\[...\] instead",
    ):
        unembed.lens(bare, "the girls")
    with pytest.raises(InputError, match="has no tokenizer"):
        unembed.generate(bare, "the girls")


def test_lens_refuses_both_neither_and_nothing(model):
    for arguments in ({}, {"text": "to", "ids": [1]}):
        with pytest.raises(UsageError, match="give either a text or ids"):
            unembed.lens(model, **arguments)
    with pytest.raises(UsageError, match="the text '' has no tokens"):
        unembed.lens(model, "")
    with pytest.raises(ShapeError, match="the table has"):
        unembed.lens(model, ids=[10**6])


def test_lens_shows_itself_in_a_notebook_without_script(model):
    shown = unembed.lens(model, "to be")._repr_html_()
    assert "<script" not in shown
    assert f"{model.spec.n_layers + 1} x 5" in shown
    assert "entropy_nats" in shown


def test_count_of_a_preset_and_of_a_run(trained):
    counts = unembed.count("gpt2")
    assert isinstance(counts, Counts)
    assert (counts.parameters, counts.tying_saves) == (124_439_808, 50_257 * 768)
    assert unembed.count(trained.run).tied


@pytest.mark.slow
def test_report_is_written_where_it_is_told(trained, tmp_path):
    path = unembed.write_report(trained.run, tmp_path / "r.html", lang="ko")
    assert path == tmp_path / "r.html"
    assert '<html lang="ko"' in path.read_text(encoding="utf-8")
    assert unembed.write_report(trained.run) == Path(trained.run) / "report.html"


@pytest.mark.slow
def test_a_text_of_one_letter_can_be_learnt_and_reported(tmp_path):
    (tmp_path / "a.txt").write_text("a" * 400)
    unembed.train(tmp_path / "a.txt", recipe="nanogpt-cpu", out=tmp_path / "run", **SMALL)
    assert 'id="token-map"' not in unembed.write_report(tmp_path / "run").read_text(encoding="utf-8")


def test_the_folder_for_the_shared_matrix_is_there_without_an_import_of_its_own_and_loads_no_torch():
    code = "import sys, unembed; print(unembed.tying.__name__, 'torch' in sys.modules, 'tying' in dir(unembed))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["unembed.tying", "False", "True"]
    with pytest.raises(AttributeError, match=r"module 'unembed.tying' has no attribute 'examin'; it has"):
        _ = unembed.tying.examin
