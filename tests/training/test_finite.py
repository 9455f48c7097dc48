"""The advice after a number that is not finite names what is at fault, and following it helps."""

import math

import msgspec
import pytest
import torch

from small import run_config, trainer_of
from unembed.errors import NotFiniteError
from unembed.model.init import AndreaInit
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.training.config import RunConfig, with_settings
from unembed.training.finite import advice, where_not_finite

USUAL = AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)


def config_with(rate=1e-2, std=0.2, clip=1.0, **optimizer) -> RunConfig:
    settings = {f"training.optimizer.{name}": value for name, value in optimizer.items()}
    schedule = Cosine(peak=rate, floor=rate, warmup_steps=0)
    config = run_config(steps=60, schedule=schedule, clip_norm=clip, optimizer=USUAL, eval_every=60)
    return with_settings(config, {**settings, "init.std": std})


# what is set, the message's advice, and the same run with the advice followed
FAULTS = [
    ({"rate": 1e38}, r"Try a lower learning_rate \(now 1e\+38\) or a longer warm-up\.", {}),
    (
        {"rate": 1e38, "clip": None},
        r"Try a lower learning_rate \(now 1e\+38\), training.clip_norm=1 or a longer warm-up\.",
        {},
    ),
    ({"weight_decay": 1e30}, r"x weight_decay = 1e\+28 times .*: try a lower weight_decay \(now 1e\+30\)\.", {}),
    ({"rate": 1.0, "weight_decay": 9.0}, r"= 9 times a weight off it.*try a lower weight_decay \(now 9\)\.", {}),
    ({"std": 1e30}, r"No step was taken yet, .*: try a lower init.std \(now 1e\+30\)\.", {}),
]


@pytest.mark.parametrize(("wrong", "message", "right"), FAULTS)
def test_advice_names_what_is_at_fault_and_helps(wrong, message, right):
    trainer = trainer_of(config_with(**wrong))
    with pytest.raises(NotFiniteError, match=message):
        trainer.run()
    trainer = trainer_of(config_with(**right))
    trainer.run()
    assert trainer.is_finished


def test_tiny_eps_is_named():
    """A gradient of 1e-25 has a square of 0 in float32: Adam then divides 1e-25 by eps alone."""
    config = config_with(eps=1e-45, clip=None)
    trainer = trainer_of(config)
    trainer.model.embed.table.register_hook(lambda g: torch.full_like(g, 1e-25))
    with pytest.raises(NotFiniteError, match=r"try a higher one \(now 1e-45\), such as 1e-8\."):
        trainer.run()
    assert "learning_rate" in advice(config_with(eps=1e-8), 5, 1e-2)


def test_advice_by_itself():
    assert "init.std" in advice(config_with(), 0, 1e-2)
    assert "learning_rate (now 0.01) or a longer" in advice(config_with(), 1, 1e-2)
    assert "learning_rate (now 3)" in advice(config_with(weight_decay=5.0, eps=1e-30), 1, 3.0)
    assert "weight_decay (now 5)" in advice(config_with(weight_decay=5.0), 1, 0.5)


def test_weights_are_named_before_gradients_and_gradients_before_the_loss():
    trainer = trainer_of(run_config())
    trainer.step()
    model = trainer.model
    assert where_not_finite(model, math.nan, 1.0) == "the loss"
    assert where_not_finite(model, 1.0, math.inf) == "the norm, for its square overflows"
    model.embed.table.grad.view(-1)[0] = math.inf
    assert where_not_finite(model, 1.0, math.inf) == "gradients of ['embed.table']"
    with torch.no_grad():
        model.blocks[0].mlp.up.weight.view(-1)[0] = math.nan
    assert where_not_finite(model, 1.0, math.inf) == "weights ['blocks.0.mlp.up.weight']"


def test_start_without_a_std_gets_the_general_advice():
    config = msgspec.structs.replace(run_config(), init=AndreaInit())
    assert advice(config, 0, 1e-2).startswith("Try a lower learning_rate")
