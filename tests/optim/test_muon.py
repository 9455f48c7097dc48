"""Muon against float64 NumPy; who takes part; its state on disk and back; and what the doctor says of it."""

import re

import numpy as np
import pytest
import torch

import unembed.tying
from oracles import muon as oracle
from oracles.specs import base, changed
from small import run_config, small_model, trainer_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.errors import CheckpointError
from unembed.optim.make import make_optimizer, optimizer_of
from unembed.optim.muon import Muon, MuonConfig, make_muon, orthogonalised, takes_part

CONFIG = MuonConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.5, matrix_learning_rate=0.2, momentum=0.9)
UNTIED = {"type": "untied", "transform": None, "has_bias": True, "scale": None, "softcap": None}


# --- Newton-Schulz ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (6, 9), (6, 12), (6, 24), (1, 5), (1, 1)])
def test_oracle_stack_equals_the_steps_of_each_matrix_alone(shape, generator):
    stack = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    found = orthogonalised(stack)
    for one, matrix in zip(found, stack, strict=True):
        np.testing.assert_allclose(one.numpy(), oracle.newton_schulz(matrix.numpy()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(64, 64), (64, 256)])
def test_oracle_float32_is_as_good_as_float64(shape, generator):
    stack = torch.randn(2, *shape, generator=generator)
    for one, matrix in zip(orthogonalised(stack), stack, strict=True):
        expected = oracle.newton_schulz(matrix.double().numpy())
        # entries are about 1 / sqrt(columns); five steps amplify rounding by up to 3.44^5
        np.testing.assert_allclose(one.numpy(), expected, rtol=0, atol=2e-4)


def test_singular_values_end_near_one_and_vectors_stay(generator):
    matrix = torch.randn(1, 8, 32, generator=generator, dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrix[0], full_matrices=False)
    values = torch.linalg.svdvals(orthogonalised(matrix)[0])
    assert values.min() > 0.65
    assert values.max() < 1.25
    rotated = u.T @ orthogonalised(matrix)[0] @ v.T
    assert (rotated - torch.diag(rotated.diagonal())).abs().max() < 1e-10


def test_gradient_of_zero_gives_no_direction():
    assert torch.equal(orthogonalised(torch.zeros(2, 3, 3)), torch.zeros(2, 3, 3))


# --- steps --------------------------------------------------------------------------------------------------


def test_oracle_steps_equal_the_formula(generator):
    """Matrices of blocks by Muon, everything else by AdamW, for four steps of changing rate."""
    model = small_model(changed(base(), head=UNTIED))
    optimizer, _ = make_muon(model, CONFIG, peak=0.4)
    theta = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    m, v = ({n: np.zeros_like(x) for n, x in theta.items()} for _ in range(2))
    for step, rate in enumerate((0.1, 0.4, 0.02, 0.3), start=1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            g = parameter.grad.numpy()
            if name.startswith("blocks.") and g.ndim == 2:
                # matrix_learning_rate belongs to the peak: 0.2 at a rate of 0.4
                numbers = {"rate": rate * 0.2 / 0.4, "beta": 0.9, "decay": 0.5}
                theta[name], m[name] = oracle.step(theta[name], g, m[name], **numbers)
                continue
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.99 * v[name] + 0.01 * g * g
            update = (m[name] / (1 - 0.9**step)) / (np.sqrt(v[name] / (1 - 0.99**step)) + 1e-8)
            theta[name] = theta[name] * (1 - rate * (0.5 if g.ndim == 2 else 0.0)) - rate * update
        optimizer.step()
        for name, parameter in model.named_parameters():
            np.testing.assert_allclose(parameter.detach().numpy(), theta[name], rtol=1e-8, atol=1e-10, err_msg=name)


def test_tables_and_vectors_take_no_part():
    model = small_model(
        changed(base(), head=UNTIED, embedding__position={"type": "learned", "n_rows": 12, "offset": 0})
    )
    chosen = {name for name, parameter in model.named_parameters() if takes_part(name, parameter)}
    assert "blocks.0.attn.q_proj.weight" in chosen
    assert "blocks.1.mlp.down.weight" in chosen
    assert not {name for name in chosen if "table" in name or name.endswith((".gain", ".bias")) or "head" in name}
    rest = {name for name, _ in model.named_parameters()} - chosen
    assert {"embed.table", "embed.pos_table", "head.table"} <= rest


def test_each_parameter_is_in_exactly_one_group_and_sizes_are_those_of_adamw():
    model = small_model()
    optimizer, sizes = make_muon(model, CONFIG, peak=1.0)
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    adamw = run_config().training
    _, expected = make_optimizer(model, adamw)
    assert sizes == expected


def test_a_matrix_without_a_gradient_stays():
    model = small_model()
    optimizer, _ = make_muon(model, CONFIG, peak=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.blocks[0].mlp.up.weight.grad = torch.ones_like(model.blocks[0].mlp.up.weight)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"blocks.0.mlp.up.weight"}


# --- a run --------------------------------------------------------------------------------------------------


def muon_config(**training):
    adamw = run_config().training.optimizer
    return run_config(optimizer=optimizer_of("muon", adamw), **training)


def test_resumed_run_ends_bit_for_bit_as_the_unbroken_one(tmp_path):
    config = muon_config(steps=10, checkpoint_every=5)
    with RunFolder.create(tmp_path / "run", description={}) as run:
        straight = trainer_of(config, run=run)
        straight.run()
        stored = next(one for one in run.checkpoints() if one.step == 5)
        saved = stored.optimizer()
        assert saved["blocks.0.attn.q_proj.weight.momentum"].shape == (24, 12)
        assert {name.rpartition(".")[2] for name in saved if "q_proj" in name} == {"momentum"}
        assert {name.rpartition(".")[2] for name in saved if "embed" in name} == {"step", "exp_avg", "exp_avg_sq"}
        resumed = trainer_of(config)
        resumed.resume(stored.weights(), saved, stored.state, "here")
        while not resumed.is_finished:
            resumed.step()
    for (name, one), other in zip(straight.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_state_that_lacks_something_is_refused(tmp_path):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        trainer = trainer_of(muon_config(steps=2), run=run)
        trainer.run()
        last = run.latest()[0]
        weights, saved, state = last.weights(), last.optimizer(), last.state
    for gone in ("blocks.0.mlp.up.weight.momentum", "embed.table.exp_avg", "embed.table.step"):
        lacking = {name: value for name, value in saved.items() if name != gone}
        with pytest.raises(CheckpointError, match=r"1 parameters lack some of the optimizer's tensors"):
            trainer_of(muon_config(steps=4)).resume(weights, lacking, state, "here")
    adamw = trainer_of(run_config(steps=4))
    with pytest.raises(CheckpointError, match=re.escape("parameters lack some of the optimizer's tensors")):
        adamw.resume(weights, saved, state, "here")


def test_the_doctor_knows_its_groups():
    trainer = trainer_of(muon_config())
    trainer.step()
    found = unembed.tying.examine(trainer.model, trainer.optimizer)
    assert found.values["verdict"] == "Tied: one parameter, embed.table, embeds and scores."
    (check,) = [one for one in found.values["checks"] if one["name"] == "optimizer"]
    assert (check["status"], check["detail"]) == ("ok", "embed.table is once in group 1 (by AdamW, weight decay 0.1)")


def test_the_doctor_says_that_a_table_is_moved_as_a_matrix():
    model = small_model()
    by_muon = {"params": [model.embed.table], "weight_decay": 0.0, "momentum": 0.9, "factor": 1.0}
    found = unembed.tying.examine(model, Muon([by_muon]))
    (check,) = [one for one in found.values["checks"] if one["name"] == "optimizer"]
    assert check["status"] == "unknown"
    assert "embed.table is moved by Muon" in check["detail"]
