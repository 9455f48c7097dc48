"""Small models, tokens and runs for the tests of training, generation and the model: seconds become milliseconds.

Specs are those of oracles/specs.py; weights are drawn by oracles/weights.py, so none sits at its usual start.
"""

from typing import Any

import numpy as np
import torch

from oracles.layers import Plain
from oracles.specs import base, changed
from oracles.weights import draw
from unembed.corpora.windows import TokenSplit
from unembed.model.check import from_plain
from unembed.model.init import Gpt2Init, build
from unembed.model.transformer import Transformer
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.training.config import RunConfig, TrainingConfig
from unembed.training.loop import Trainer


def small_model(plain: Plain | None = None, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """A model of a plain spec (`base()` unless given) with random weights that are nowhere 0 or 1."""
    plain = base() if plain is None else plain
    model = Transformer(from_plain(plain)).to(dtype)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in draw(plain, seed).items()})
    return model


def tokens(n: int, *, vocab_size: int = 13, seed: int = 0) -> TokenSplit:
    """Random ids that can be learnt a little: each is likely to be the one after the one before."""
    rng = np.random.default_rng(seed)
    ids = np.cumsum(rng.integers(0, 3, size=n)) % vocab_size
    return TokenSplit("train", ids.astype(np.uint16))


def run_config(plain: Plain | None = None, **training: Any) -> RunConfig:
    """A run of ten steps, to be changed by name."""
    default = TrainingConfig(
        steps=10,
        batch_size=3,
        accumulate=1,
        optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1),
        schedule=Cosine(peak=1e-2, floor=1e-3, warmup_steps=2),
        clip_norm=1.0,
        dropout=0.0,
        log_every=1,
        eval_every=5,
        checkpoint_every=5,
        keep_every=None,
        compile=False,
    )
    fields = {name: getattr(default, name) for name in default.__struct_fields__} | training
    spec = from_plain(changed(base()) if plain is None else plain)
    return RunConfig(
        recipe="nanogpt-cpu", seed=1, model=spec, init=Gpt2Init(std=0.2), training=TrainingConfig(**fields)
    )


def trainer_of(
    config: RunConfig, *, train: TokenSplit | None = None, val: TokenSplit | None = None, **rest: Any
) -> Trainer:
    """A trainer of a fresh model over 400 random tokens, evaluated on 60 others."""
    model = build(config.model, config.init, seed=config.seed, dtype=rest.pop("dtype", torch.float32))
    return Trainer(
        model,
        config,
        tokens(400) if train is None else train,
        tokens(60, seed=1) if val is None else val,
        **rest,
    )
