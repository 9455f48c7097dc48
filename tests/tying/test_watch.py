"""The two gradients while training: right at every step, without influence on a bit, and the same after a resume.

What is right comes from an untied twin of the model as it was before the step: two parameters, plain PyTorch.
"""

import json
import os
import signal

import pytest
import torch

from oracles.specs import base, changed
from small import run_config, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import Interrupted, RunError, UsageError
from unembed.model.check import from_plain
from unembed.model.spec import with_tying
from unembed.model.taps import no_tap
from unembed.model.transformer import Transformer
from unembed.objectives import next_token_loss
from unembed.recipes.start import train
from unembed.training.config import TyingConfig, with_settings
from unembed.training.forward import dropout_seed
from unembed.tying import watch
from unembed.tying.watch import TableWatch

EVERYTHING = changed(base(), head__has_bias=True, head__scale=0.5, head__softcap=4.0, embedding__scale=2.0)


def watched(plain=None, *, every=1, scale=1.0, **training):
    """A trainer in float64 with a watch on it; it writes to no disk."""
    config = run_config(plain, **training)
    trainer = trainer_of(config, dtype=torch.float64)
    trainer.watch = TableWatch(trainer.model, gradient_every=every, lookup_gradient_scale=scale)
    return trainer


def looked(trainer):
    """One step and the record of it."""
    kept = []
    after = trainer.watch.after_update

    def keeping(step, factor):
        kept.append(after(step, factor))
        return kept[0]

    trainer.watch.after_update = keeping
    trainer.step()
    trainer.watch.after_update = after
    return kept[0]


def twin_of(model):
    twin = Transformer(with_tying(model.spec, False)).to(torch.float64)
    twin.load_state_dict({**model.state_dict(), "head.table": model.unembed_table().detach().clone()})
    return twin


def gradients_of(trainer):
    """Both tables' gradients of the coming step, from a twin; without clipping and scale."""
    twin, training = twin_of(trainer.model), trainer.config.training
    batches = [trainer._batch(micro) for micro in range(training.accumulate)]
    for micro, (ids, targets, _) in enumerate(batches):
        with torch.random.fork_rng():
            torch.manual_seed(dropout_seed(trainer.config.seed, trainer.step_number, micro, rank=0))
            loss = next_token_loss(twin(ids, dropout=training.dropout), targets)
        (loss.total / sum(count for _, _, count in batches)).backward()
    return twin.embed.table.grad, twin.head.table.grad, torch.cat([ids.flatten() for ids, _, _ in batches])


def near(value):
    return pytest.approx(float(value), rel=1e-10, abs=1e-18)


@pytest.mark.parametrize("scale", [1.0, 3.0, 0.0])
@pytest.mark.parametrize("head", ["tied", "untied"])
@pytest.mark.parametrize("training", [{}, {"accumulate": 3, "dropout": 0.3, "clip_norm": 0.05}, {"clip_norm": None}])
def test_oracle_every_record_is_what_a_twin_has(monkeypatch, head, training, scale):
    monkeypatch.setattr(watch, "NUMBERS_AT_ONCE", 40)  # three rows at once, so that there are several pieces
    trainer = watched(changed(EVERYTHING, head__type=head), scale=scale, **training)
    model = trainer.model
    tables = {id(table): table for table in (model.embed.table, model.unembed_table())}.values()
    for step in (1, 2, 3):
        lookup, projection, ids = gradients_of(trainer)
        before = [table.detach().clone() for table in tables]
        record = looked(trainer)
        moved = [table.detach() - old for table, old in zip(tables, before, strict=True)]
        scaled = scale * lookup
        assert record["step"] == step
        assert record["lookup_norm"] == near(scaled.norm())
        assert record["projection_norm"] == near(projection.norm())
        assert record["sum_norm"] == near((scaled + projection).norm())
        assert record["lookup_share"] == near(scaled.norm() / (scaled.norm() + projection.norm()))
        if scale:
            assert record["cosine"] == near((lookup * projection).sum() / lookup.norm() / projection.norm())
        else:
            assert record["cosine"] is None
        assert record["update_norm"] == near(sum(one.square().sum() for one in moved) ** 0.5)
        gains = -(moved[0] * lookup).sum(), -(moved[-1] * projection).sum()
        assert record["lookup_gain_nats"] == pytest.approx(float(gains[0]), rel=1e-8)
        assert record["projection_gain_nats"] == pytest.approx(float(gains[1]), rel=1e-8)
        assert record["update_lookup_share"] == pytest.approx(float(gains[0].abs() / sum(map(abs, gains))), rel=1e-8)
        counts = torch.bincount(ids, minlength=len(lookup))
        has_lookup = scaled.norm(dim=1) > 0
        assert sum(record["rows"].values()) == len(lookup)
        assert record["rows"]["both"] == int(has_lookup.sum())
        assert record["rows"]["only_projection"] == int((~has_lookup).sum())
        groups = record["by_frequency"]
        for name, low, high in (("0", 0, 1), ("1", 1, 2), ("2-3", 2, 4), ("4-7", 4, 8)):
            inside = (counts >= low) & (counts < high)
            if name in groups["frequency"]:
                place = groups["frequency"].index(name)
                assert groups["rows"][place] == int(inside.sum())
                assert groups["lookup_norm"][place] == near(scaled[inside].norm())
                assert groups["projection_norm"][place] == near(projection[inside].norm())
            else:
                assert not inside.any()


@pytest.mark.parametrize("head", ["tied", "untied"])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_scale_multiplies_the_lookup_part_alone(head, scale):
    trainer = watched(changed(base(), head__type=head), every=0, scale=scale, clip_norm=None)
    lookup, projection, _ = gradients_of(trainer)
    trainer.step()
    model = trainer.model
    if head == "tied":
        assert torch.allclose(model.embed.table.grad, scale * lookup + projection, rtol=1e-12, atol=1e-15)
    else:
        assert torch.allclose(model.embed.table.grad, scale * lookup, rtol=1e-12, atol=1e-15)
        assert torch.allclose(model.head.table.grad, projection, rtol=1e-12, atol=1e-15)


def test_oracle_the_gains_are_what_the_loss_falls_by_when_one_table_alone_is_moved():
    """For a step small enough that the second order is gone; nothing here asks for a gradient."""
    from unembed.optim.schedules import Cosine

    trainer = watched(schedule=Cosine(peak=1e-7, floor=1e-8, warmup_steps=0))
    twin, (ids, targets, _) = twin_of(trainer.model), trainer._batch(0)

    @torch.no_grad()
    def loss():
        return float(next_token_loss(twin(ids), targets).mean())

    at_first = loss()
    record = looked(trainer)
    moved = trainer.model.embed.table.detach()
    for table, name in ((twin.embed.table, "lookup_gain_nats"), (twin.head.table, "projection_gain_nats")):
        kept = table.detach().clone()
        with torch.no_grad():
            table.copy_(moved)
        assert at_first - loss() == pytest.approx(record[name], rel=1e-4)
        with torch.no_grad():
            table.copy_(kept)


def test_only_every_nth_step_is_looked_at_and_the_others_have_no_tap():
    trainer = watched(every=3)
    assert [looked(trainer) is not None for _ in range(7)] == [False, False, True, False, False, True, False]
    assert trainer.watch.tap(8, torch.zeros(1, 1, dtype=torch.long)) is no_tap
    assert trainer.watch.tap(9, torch.zeros(1, 1, dtype=torch.long)) is not no_tap
    assert TableWatch(trainer.model).tap(9, torch.zeros(1, 1, dtype=torch.long)) is no_tap


def test_a_step_without_a_label_is_noted_as_nothing():
    trainer = watched()
    inputs, targets, _ = trainer._batch(0)
    trainer._batch = lambda micro: (inputs, torch.full_like(targets, -100), 0)
    record = looked(trainer)
    assert record["rows"] == {"neither": 13, "only_lookup": 0, "only_projection": 0, "both": 0}
    assert (record["update_norm"], record["update_lookup_share"], record["cosine"]) == (0, None, None)


def test_an_embedding_that_forgets_its_alias_is_noticed(monkeypatch):
    from unembed.model import embed as embedding

    trainer = watched()
    monkeypatch.setattr(embedding, "_rows", lambda what, table, ids: trainer.model.embed.table[ids])
    with pytest.raises(AssertionError, match="has had a backward pass"):
        trainer.step()


def test_messages():
    config = with_settings(run_config(), {"tying.gradient_every": 2})
    assert config.training.tying == TyingConfig(gradient_every=2)
    with pytest.raises(
        UsageError, match=r"training.tying is set, but the trainer has no watch; give one \(tying/watch.py\)"
    ):
        trainer_of(config)
    for name, value, rule in (
        ("tying.gradient_every", -1, "at least 1, or 0"),
        ("tying.lookup_gradient_scale", -0.5, "0 or more, and finite"),
        ("tying.lookup_gradient_scale", float("inf"), "0 or more, and finite"),
        ("tying.gradient_every", "often", "expected `int`, got `str`; it must be at least 1, or 0"),
    ):
        with pytest.raises(UsageError, match=f"setting {name} is .*{rule}"):
            with_settings(run_config(), {name: value})
    assert from_plain(base()) == config.model


# --- whole runs ---------------------------------------------------------------------------------------------------------

TEXT = "El perro que corre por la calle no tiene hambre.\nLa gata duerme.\n" * 40
SETTINGS = {
    "steps": 6,
    "batch_size": 2,
    "accumulate": 2,
    "dropout": 0.2,
    "context_length": 8,
    "eval_every": 3,
    "checkpoint_every": 3,
    "sample_every": 0,
    "training.log_every": 1,
}


def begin(folder, out, **settings):
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return train([folder / "text.txt"], recipe_name="nanogpt-cpu", out=out, settings={**SETTINGS, **settings})


def weights(out):
    newest = RunFolder.open(out).latest()[0].path
    return [(newest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def metrics(out):
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    begin(folder, folder / "run", **{"tying.gradient_every": 2})
    return folder / "run"


def test_a_run_that_is_watched_and_one_that_is_not_end_bit_equal(straight, tmp_path):
    begin(tmp_path, tmp_path / "blind")
    assert weights(tmp_path / "blind") == weights(straight)
    assert metrics(tmp_path / "blind") == metrics(straight)
    assert not (tmp_path / "blind" / "tying.jsonl").exists()
    assert RunFolder.open(tmp_path / "blind").tying() == []
    assert [record["step"] for record in RunFolder.open(straight).tying()] == [2, 4, 6]


def test_an_untied_run_as_well(tmp_path):
    begin(tmp_path, tmp_path / "blind", tied=False)
    begin(tmp_path, tmp_path / "run", tied=False, **{"tying.gradient_every": 1})
    assert weights(tmp_path / "blind") == weights(tmp_path / "run")
    assert len(RunFolder.open(tmp_path / "run").tying()) == 6


def test_another_scale_makes_another_run_whether_it_is_watched_or_not(straight, tmp_path):
    begin(tmp_path, tmp_path / "a", **{"tying.lookup_gradient_scale": 2.0})
    begin(tmp_path, tmp_path / "b", **{"tying.lookup_gradient_scale": 2.0, "tying.gradient_every": 1})
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(straight)


@pytest.mark.parametrize("stop", [2, 5])
def test_stopped_or_crashed_and_resumed_the_file_equals_the_unbroken_ones(straight, tmp_path, stop):
    def terminate(trainer, record):
        if (record["step"], record["split"]) == (stop, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    def crash(trainer, record):
        if (record["step"], record["split"]) == (6, "train"):
            raise RuntimeError("the power went")

    out, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    settings = {**SETTINGS, "tying.gradient_every": 2}
    sources = {"recipe_name": "nanogpt-cpu", "out": out, "settings": settings, "resume": True}
    with pytest.raises(Interrupted):
        train([text], observers=[terminate], **sources)
    with pytest.raises(RuntimeError):
        train([text], observers=[crash], **sources)
    train([text], **sources)
    assert (out / "tying.jsonl").read_bytes() == (straight / "tying.jsonl").read_bytes()
    assert weights(out) == weights(straight)


def test_a_log_is_no_place_for_another_file(straight):
    with pytest.raises(RunError, match=r"'tying.jsonl' is not the plain name of a file that may be written here"):
        RunFolder.open(straight).write_text("tying.jsonl", "")


@pytest.mark.slow  # a compiler runs
def test_compiled_blocks_are_compiled_once_and_end_as_without_a_watch(unchecked):
    ends, graphs = [], []
    for every in (0, 1):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        trainer = trainer_of(run_config(steps=3, compile=True))
        trainer.watch = TableWatch(trainer.model, gradient_every=every)
        for _ in range(3):
            trainer.step()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        ends.append({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert graphs[0] == graphs[1] == 1
