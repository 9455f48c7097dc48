"""What is told of a run is what its log, its description and its data say."""

import hashlib
import json
import shutil

import pytest

from unembed.model.presets import preset
from unembed.views import accounts, progress
from unembed.views.inside import token_space
from unembed.views.run import RunView


def changed_run(source, target, edit):
    """A copy of a run whose log's lines went through `edit`."""
    shutil.copytree(source, target)
    lines = (target / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    kept = edit([json.loads(line) for line in lines])
    (target / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return target


def test_a_finished_run_tells_its_last_loss_and_no_plan(grammar_view):
    found = progress.loss(grammar_view)
    last = [record for record in grammar_view.folder.metrics() if record["split"] == "val"][-1]
    assert found.values["val_loss_nats"] == last["loss_nats"]
    assert found.values["steps"] == 4
    assert "val_step" not in found.values
    assert "steps_planned" not in found.values
    assert found.notes == ()
    assert found.values["ratio"] == pytest.approx(last["loss_nats"] / found.values["entropy_floor_nats"])


def test_an_interrupted_run_says_when_its_validation_loss_was_measured(grammar_run, tmp_path):
    """As a run of 9 steps that was stopped after its fourth, the last validation being that of step 2."""
    run = changed_run(
        grammar_run, tmp_path / "cut", lambda lines: [r for r in lines if r["split"] == "train" or r["step"] <= 2]
    )
    description = json.loads((run / "run.json").read_text(encoding="utf-8"))
    description["config"]["training"]["steps"] = 9
    (run / "run.json").write_text(json.dumps(description), encoding="utf-8")
    found = progress.loss(RunView.open(run))
    assert {name: found.values[name] for name in ("val_step", "steps", "steps_planned")} == {
        "val_step": 2,
        "steps": 4,
        "steps_planned": 9,
    }
    assert found.notes == ("run_is_not_finished",)


def test_rates_are_those_of_the_log(grammar_run, tmp_path):
    """Worked by hand: 100 tokens in 2 s, then 300 more in 1 s; a clock that stands still has no rate."""

    def edit(lines):
        first, second, third = [record for record in lines if record["split"] == "train"][:3]
        return [
            {**first, "tokens": 100, "seconds": 2.0, "grad_norm": 3.0},
            {**second, "tokens": 400, "seconds": 3.0, "grad_norm": 0.5},
            {**third, "tokens": 500, "seconds": 3.0, "grad_norm": None},
        ]

    found = progress.rates(RunView.open(changed_run(grammar_run, tmp_path / "rates", edit)))
    table = found.tables["rates"]
    assert table["tokens_per_second"].tolist() == [50.0, 300.0, None]
    assert table["grad_norm"].tolist() == [3.0, 0.5, None]
    assert found.values == {"tokens_per_second": 500 / 3, "clip_norm": 1.0, "clipped_share": 0.5}


def test_gradients_are_measured_at_every_kept_step(grammar_view):
    table = progress.gradients(grammar_view).tables["gradient_norms"]
    assert list(dict.fromkeys(table["step"].tolist())) == [0, 2, 4]
    assert table["where"].tolist() == ["embedding", "1", "2", "final"] * 3
    assert (table["grad_norm"] > 0).all()


def test_noted_samples_are_shown_and_broken_ones_passed_over(text_run, tmp_path):
    run = tmp_path / "noted"
    shutil.copytree(text_run, run)
    lines = [
        {"step": 0, "prompt": "", "text": "zero"},
        {"step": 3, "text": "three"},
        {"step": 4, "text": 5},
        {"step": 6, "text": "at the end"},
    ]
    (run / "samples.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9', encoding="utf-8"
    )
    table = progress.samples(RunView.open(run)).tables["samples"]
    assert table["step"].tolist() == [0, 3, 6, 6, 6]
    assert table["text"].tolist()[:2] == ["zero", "three"]
    (run / "samples.jsonl").unlink()
    view = RunView.open(run)
    kept = [checkpoint.step for checkpoint in view.checkpoints]
    assert progress.samples(view).tables["samples"]["step"].tolist() == [*kept, kept[-1], kept[-1]]


def test_accounts_are_those_of_the_documents(grammar_view):
    """Mini-GPT: 103,680 parameters, of which tying saves 64 * 64."""
    found = accounts.parameters(grammar_view)
    assert found.values["parameters"] == 103_680
    assert found.values["weight_bytes"] == 4 * 103_680
    assert sum(found.tables["flops"]["flops"]) == pytest.approx(found.values["flops_per_token"])
    assert found.values["training_flops_per_token"] == pytest.approx(3 * found.values["flops_per_token"])
    tying = accounts.tying(grammar_view)
    assert tying.values["saved_parameters"] == 4096
    assert tying.values["saved_training_bytes"] == 16 * 4096
    rows = tying.tables["tying"].rows()
    totals = {head: sum(r["parameters"] for r in rows if r["head_table"] == head) for head in ("shared", "own")}
    assert totals == {"shared": 103_680, "own": 107_776}


def test_an_untied_model_is_told_what_tying_would_save(grammar_view, monkeypatch):
    """LLaMA-2-7B: a table is 32,000 x 4,096, and the model is untied."""
    monkeypatch.setattr(RunView, "spec", property(lambda run: preset("llama-2-7b").spec))
    found = accounts.tying(grammar_view)
    assert found.values["tied"] is False
    assert found.values["would_save_parameters"] == 131_072_000
    rows = found.tables["tying"].rows()
    assert sum(r["parameters"] for r in rows if r["head_table"] == "own") == 6_738_415_616


def test_data_says_how_much_and_of_what(text_view):
    found = accounts.data(text_view)
    assert found.values["tokenizer"] == "characters"
    splits = found.tables["splits"]
    assert splits["split"].tolist() == ["train", "val"]
    assert splits["tokens"].sum() == found.values["tokens_in_all"] == 84 * 40
    source = text_view.folder.path.parent / "words.txt"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    (file,) = found.tables["files"].rows()
    assert file == {"file": "words.txt", "bytes": 84 * 40, "sha256": digest}
    manifest = json.loads((text_view.folder.path / "data" / "manifest.json").read_text(encoding="utf-8"))
    assert splits["sha256"].tolist() == [manifest["splits"][name]["sha256"] for name in ("train", "val")]
    assert found.tables["tokenizers"]["sha256"].tolist() == [manifest["tokenizer"]]
    assert found.values["epochs"] == pytest.approx(6 * 4 * 16 / manifest["splits"]["train"]["n_tokens"])


def test_a_run_without_its_data_is_still_looked_at(text_run, tmp_path):
    from unembed.analyses import ANALYSES

    run = tmp_path / "sent"
    shutil.copytree(text_run, run)
    shutil.rmtree(run / "data")
    view = RunView.open(run)
    names = [analysis.name for analysis in ANALYSES if analysis.applies(view)]
    assert "gradients" not in names
    assert "data" not in names
    assert {"loss", "samples", "lens"} <= set(names)


@pytest.mark.parametrize("kind", ["grammar_view", "text_view"])
def test_neighbours_are_shown_of_tokens_that_training_has_read_often(kind, request):
    view = request.getfixturevalue(kind)
    shown = dict.fromkeys(token_space(view).tables["neighbours"]["text"].tolist())
    ids = view.shards.train.ids.tolist()
    counts = [ids.count(i) for i in range(len(view.token_texts))]
    lettered = sorted(n for n, text in zip(counts, view.token_texts, strict=True) if n and any(map(str.isalnum, text)))
    typical = lettered[(len(lettered) - 1) // 2]
    assert 1 <= len(shown) <= 4
    assert all(any(map(str.isalnum, text)) for text in shown)
    assert not set(shown) & set(view.tokenizer.specials)
    assert all(counts[view.token_texts.index(text)] >= typical for text in shown)
