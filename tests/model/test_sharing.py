"""A table shared through a map and by pseudo-inverse: counted, started, kept orthonormal, trained, resized, compiled.

That the functions are right at every tap is shown by test_oracle.py, whose variants hold both; here stands what is promised
beside it. The oracle for the pseudo-inverse is numpy.linalg.pinv.
"""

import copy

import numpy as np
import pytest
import torch

from oracles.specs import base, changed
from small import run_config, small_model, trainer_of
from unembed.checkpoints.families.gpt2 import FAMILY as GPT2
from unembed.checkpoints.foreign.export import why_not
from unembed.errors import SpecError, UsageError
from unembed.model import factor as factors
from unembed.model.check import check, from_json, to_json
from unembed.model.counts import count
from unembed.model.factor import orthonormal, retract
from unembed.model.init import AndreaInit, Gpt2Init, ZeroOutInit, build
from unembed.model.presets import preset
from unembed.model.resize import resize_vocabulary
from unembed.model.spec import HEADS, with_head, with_tying
from unembed.objectives import chunked_next_token_loss, next_token_loss
from unembed.planning.flops import flops
from unembed.training.parallel import check_shares
from unembed.tying.effective import effective_tables
from unembed.tying.gradients import split_gradient
from unembed.tying.parts import TableGradients

MAPPED, INVERSE = changed(base(), head__type="mapped"), changed(base(), head__type="pseudo_inverse")
KINDS = {"mapped": MAPPED, "pseudo_inverse": INVERSE}
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
TARGETS = torch.tensor([[1, 4, 1, 5, 9], [2, 6, 5, 3, 12]])


def apart(model):
    """How far the columns of the table are from orthonormal, by NumPy."""
    table = model.embed.table.detach().double().numpy()
    return np.abs(table.T @ table - np.eye(table.shape[1])).max()


def test_worked_counts():
    """Mini-GPT is 103,680; a map adds 64 x 64, a factor 64 x 65 / 2, a head of its own 64 x 64."""
    spec = preset("mini-gpt").spec
    counts = {kind: count(with_head(spec, kind)) for kind in HEADS}
    assert {kind: one.parameters for kind, one in counts.items()} == {
        "tied": 103_680,
        "untied": 103_680 + 4_096,
        "mapped": 103_680 + 4_096,
        "pseudo_inverse": 103_680 + 2_080,
    }
    assert {one.parameters_untied for one in counts.values()} == {107_776}
    assert {kind for kind, one in counts.items() if one.tied} == {"tied", "mapped", "pseudo_inverse"}
    assert counts["pseudo_inverse"].by_part["head"] == 2_080
    work = {kind: flops(with_head(spec, kind)).by_part["head"] for kind in HEADS}
    assert work["untied"] == work["tied"] == 2 * 64 * 64
    assert work["mapped"] - work["tied"] == 2 * 64 * 64
    assert work["pseudo_inverse"] - work["tied"] == 6 * 64 * 64


def test_each_kind_survives_json_and_becomes_every_other():
    spec = preset("mini-gpt").spec
    for kind in HEADS:
        one = with_head(spec, kind)
        assert from_json(to_json(one)) == one
        assert f'"type":"{kind}"' in to_json(one)
        assert with_head(one, "tied") == spec
        assert with_tying(one, one.ties_embeddings) == one, "a map is kept by saying what is so already"
        assert with_tying(one, False).head.__struct_config__.tag == "untied"


def test_orthonormal_columns_need_rows_enough():
    too_wide = changed(INVERSE, embedding__vocab_size=11)
    with pytest.raises(SpecError, match=r"vocab_size is 11 and d_model 12; .* needs d_model at most vocab_size"):
        from_json(__import__("json").dumps(too_wide))
    check(with_head(preset("mini-gpt").spec, "pseudo_inverse"))  # as many rows as columns: a square one is enough


@pytest.mark.parametrize("init", [Gpt2Init(std=0.02), AndreaInit(), ZeroOutInit(std=0.05)])
def test_the_start_is_that_of_a_tied_model(init):
    """A map starts as the identity and T too, so the first scores are those of the table alone."""
    spec = preset("mini-gpt").spec
    tied, mapped = (build(with_head(spec, kind), init, seed=4) for kind in ("tied", "mapped"))
    assert torch.equal(mapped.head.map.weight, torch.eye(64))
    ids = torch.arange(9)[None]
    assert torch.allclose(tied(ids), mapped(ids), rtol=1e-6, atol=1e-6)
    inverse = build(with_head(spec, "pseudo_inverse"), init, seed=4, dtype=torch.float64)
    assert torch.equal(inverse.head.factor.lower(), torch.eye(64, dtype=torch.float64))
    assert apart(inverse) < 1e-12
    tied.double().load_state_dict(
        {n: one for n, one in inverse.state_dict().items() if not n.startswith("head.factor.")}
    )
    assert torch.allclose(tied(ids), inverse(ids), rtol=1e-12, atol=1e-12)


def test_oracle_what_scores_is_the_pseudo_inverse_of_what_embeds():
    model = small_model(INVERSE)
    retract(model)
    embeds, scores = (one.numpy() for one in effective_tables(model))
    assert np.abs(np.linalg.pinv(embeds) - scores.T).max() < 1e-12
    drifted = small_model(INVERSE)  # any table, columns of any length
    embeds, scores = (one.numpy() for one in effective_tables(drifted))
    assert np.abs(np.linalg.pinv(embeds) - scores.T).max() > 0.1


@pytest.mark.parametrize("shape", [(13, 12), (12, 12), (300, 7)])
def test_oracle_orthonormal_is_the_nearest(shape):
    """NumPy's polar factor, by singular values; of an orthonormal table it is the table."""
    table = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u, _, v = np.linalg.svd(table.numpy(), full_matrices=False)
    assert np.abs(orthonormal(table).numpy() - u @ v).max() < 1e-12
    again = orthonormal(orthonormal(table))
    assert torch.allclose(again, orthonormal(table), rtol=1e-13, atol=1e-14)


def test_training_keeps_the_columns_orthonormal_and_learns():
    trainer = trainer_of(run_config(INVERSE, steps=40))
    first = trainer.evaluate()
    for _ in range(40):
        trainer.step()
        assert apart(trainer.model) < 1e-6
    assert trainer.evaluate() < first - 0.05
    assert not torch.allclose(trainer.model.head.factor.lower(), torch.eye(12), atol=1e-2), "T is learnt"


def test_without_the_retraction_they_would_not_stay_so(monkeypatch):
    """The seeded fault of the test above."""
    monkeypatch.setattr("unembed.training.loop.retract", lambda model: None)
    trainer = trainer_of(run_config(INVERSE, steps=5))
    for _ in range(5):
        trainer.step()
    assert apart(trainer.model) > 1e-3


def test_only_a_pseudo_inverse_is_retracted(monkeypatch):
    monkeypatch.setattr(factors, "orthonormal", lambda table: pytest.fail("called"))
    for plain in (base(), MAPPED, changed(base(), head__type="untied")):
        retract(small_model(plain))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunked", [False, True])
def test_oracle_both_parts_are_those_of_two_tables_through_the_chain_rule(kind, chunked):
    """A twin with two plain tables, each the product that acts: dL/dE is its two gradients times the matrix, to 1e-12."""
    model = small_model(KINDS[kind])
    twin = small_model(changed(base(), head__type="untied"))
    embeds, scores = effective_tables(model)
    state = {n: one for n, one in model.state_dict().items() if n in twin.state_dict()}
    twin.load_state_dict({**state, "embed.table": embeds, "head.table": scores})
    assert torch.allclose(model(IDS), twin(IDS), rtol=1e-12, atol=1e-12)
    next_token_loss(twin(IDS), TARGETS).mean().backward()
    if kind == "mapped":
        before, after = torch.eye(12, dtype=torch.float64), model.head.map.weight.detach()
    else:
        lower = model.head.factor.lower().detach()
        after = lower @ lower.T
        before = torch.linalg.inv(after)
    with TableGradients() as parts:
        if chunked:
            loss = chunked_next_token_loss(model, model.hidden(IDS, tap=parts), TARGETS, tap=parts)
        else:
            loss = next_token_loss(model(IDS, tap=parts), TARGETS)
        loss.mean().backward()
    assert torch.allclose(parts.lookup, twin.embed.table.grad @ before.T, rtol=1e-11, atol=1e-13)
    assert torch.allclose(parts.projection, twin.head.table.grad @ after.T, rtol=1e-11, atol=1e-13)
    assert torch.allclose(parts.lookup + parts.projection, model.embed.table.grad, rtol=1e-12, atol=1e-15)
    found = split_gradient(model, IDS, TARGETS, chunked=chunked)
    assert found.values["tied"]
    assert found.values["sum_error"] < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_between_gets_its_own_gradient(kind):
    """By finite differences, one entry of each of its tensors."""
    model = small_model(KINDS[kind])
    next_token_loss(model(IDS), TARGETS).mean().backward()
    matrices = [(n, p) for n, p in model.named_parameters() if n.startswith(("head.map", "head.factor"))]
    assert len(matrices) == (1 if kind == "mapped" else 2)
    for name, parameter in matrices:
        flat, place, losses = parameter.detach().view(-1), 5, []
        for step in (1e-5, -1e-5):
            flat[place] += step
            losses.append(next_token_loss(model(IDS), TARGETS).mean().item())
            flat[place] -= step
        slope = (losses[0] - losses[1]) / 2e-5
        assert float(parameter.grad.view(-1)[place]) == pytest.approx(slope, rel=1e-6), name


def test_half_precision_solves_in_float32():
    half = small_model(INVERSE, dtype=torch.bfloat16)
    assert half(IDS).dtype == torch.bfloat16
    exact = copy.deepcopy(half).double()
    assert float((half(IDS).double() - exact(IDS)).abs().max()) < 0.15 * float(exact(IDS).abs().max())
    assert half.head.factor.lower().dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_resizing_keeps_old_rows_and_what_the_head_promises(kind):
    model = small_model(KINDS[kind])
    retract(model)
    larger = resize_vocabulary(model, 17)
    assert torch.equal(larger.embed.table[:13], model.embed.table)
    assert larger.unembed_table() is larger.embed.table
    assert torch.allclose(larger(IDS)[..., :13], model(IDS), rtol=1e-12, atol=1e-12)
    if kind == "pseudo_inverse":
        assert apart(larger) < 1e-12
        with pytest.raises(
            UsageError, match="vocab_size is 12, and the table has 13 rows whose columns are orthonormal"
        ):
            resize_vocabulary(model, 12)
    else:
        assert resize_vocabulary(model, 12).embed.table.shape == (12, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_program_is_told_a_lie(kind):
    """A family without a word for the map must not write the model without it."""
    spec = with_head(preset("gpt2").spec, kind)
    assert why_not(GPT2, preset("gpt2").spec) is None
    assert why_not(GPT2, spec) == f"has no head of type {kind}"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_it_gives_the_same(kind):
    model = small_model(KINDS[kind])
    compiled = torch.compile(model)
    assert torch.allclose(compiled(IDS), model(IDS), rtol=1e-10, atol=1e-12)
    next_token_loss(compiled(IDS), TARGETS).mean().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    next_token_loss(model(IDS), TARGETS).mean().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad, rtol=1e-8, atol=1e-12), name


def test_parts_of_a_table_cannot_be_kept_orthonormal():
    config = run_config(INVERSE, parallel="fsdp")
    with pytest.raises(UsageError, match="sharing pseudo_inverse keeps the columns of a whole table orthonormal"):
        check_shares(config.training, 1, config.model)
    check_shares(config.training, 1, run_config(MAPPED).model)
