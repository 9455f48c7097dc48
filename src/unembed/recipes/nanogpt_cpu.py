"""nanoGPT's run on a CPU: a small character model of any text, with that project's numbers.

4 layers, 4 heads, 128 wide, context 64, batch 12, 2,000 steps, AdamW from 1e-3 to 1e-4 by a cosine after 100 steps of
warm-up, betas 0.9 and 0.99, decay 0.1 on matrices, gradients clipped at 1.0, no biases, exact GELU, tied, no dropout.
Source: nanoGPT's README, "I only have a macbook", and config/train_shakespeare_char.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.model.init import Gpt2Init
from unembed.model.presets import preset
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.recipes.base import Prepared, Recipe, Survey
from unembed.training.config import RunConfig, TrainingConfig, with_settings

# What the recipes of small models train alike; each of them changes only what it says that it changes.
TRAINING = TrainingConfig(
    steps=2000,
    batch_size=12,
    accumulate=1,
    optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1),
    schedule=Cosine(peak=1e-3, floor=1e-4, warmup_steps=100),
    clip_norm=1.0,
    dropout=0.0,
    log_every=10,
    eval_every=250,
    checkpoint_every=250,
    keep_every=None,
    compile=False,
)


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Reads the text once for its alphabet, and decides the rest by nanoGPT's numbers and the user's settings."""
    survey = Survey.of(TextReader(list(data), reading))
    tokenizer = survey.characters()
    spec = preset("nanogpt-cpu").spec
    embedding = msgspec.structs.replace(spec.embedding, vocab_size=tokenizer.vocab_size)
    config = RunConfig(
        recipe="nanogpt-cpu",
        seed=1,
        model=msgspec.structs.replace(spec, embedding=embedding),
        init=Gpt2Init(std=0.02),
        training=TRAINING,
    )
    about = f"{survey.report.n_characters:,} characters, {tokenizer.vocab_size} different; each is a token"
    return survey.prepared(with_settings(config, settings), tokenizer, [about])


RECIPE = Recipe(
    name="nanogpt-cpu",
    summary="nanoGPT's run on a CPU: 4 layers, 128 wide, characters, 2,000 steps",
    needs_data=True,
    prepare=prepare,
)
