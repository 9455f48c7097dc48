"""Characters in the least time: nanogpt-cpu's text, context and loss, with what makes a small model learn fast.

The same context of 64, the same split and evaluation and no more parameters than nanogpt-cpu, which takes 2,000 steps to
1.90 nats on tinyshakespeare. What is different (docs/decisions/0012-time-to-a-loss.md): RMSNorm, rotary positions, norms
on queries and keys, squared ReLU, output projections that start at zero, Muon for the matrices, a rate that falls in a line
for most of the run, and one evaluation, at the end. Before it: nanogpt_cpu.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.model.init import ZeroOutInit
from unembed.optim.muon import MuonConfig
from unembed.optim.schedules import Plateau
from unembed.recipes.base import Prepared, Recipe, Survey
from unembed.recipes.budget import spec_of
from unembed.recipes.nanogpt_cpu import TRAINING
from unembed.training.config import RunConfig, with_settings

STEPS, BATCH_SIZE, CONTEXT_LENGTH = 265, 12, 64
# Half of the layers of nanogpt-cpu: in so few steps two layers learn nearly as much as four, in half the time each.
D_MODEL, N_LAYERS = 128, 2


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Reads the text once for its alphabet, and decides the rest by the numbers above and the user's settings."""
    survey = Survey.of(TextReader(list(data), reading))
    tokenizer = survey.characters()
    steps = settings.get("steps", STEPS)
    n_steps = steps if type(steps) is int else STEPS  # what is no number is refused below
    config = RunConfig(
        recipe="speedrun",
        seed=1,
        model=spec_of(tokenizer.vocab_size, CONTEXT_LENGTH, D_MODEL, N_LAYERS),
        init=ZeroOutInit(std=0.02),
        training=msgspec.structs.replace(
            TRAINING,
            steps=STEPS,
            batch_size=BATCH_SIZE,
            optimizer=MuonConfig(
                beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, matrix_learning_rate=0.02, momentum=0.8
            ),
            schedule=Plateau(peak=0.01, floor=0.0, warmup_steps=0, decay_steps=max(1, round(0.6 * n_steps))),
            eval_every=max(1, n_steps),
            eval_at_start=False,
        ),
    )
    about = f"{survey.report.n_characters:,} characters, {tokenizer.vocab_size} different; each is a token"
    return survey.prepared(with_settings(config, settings), tokenizer, [about])


RECIPE = Recipe(
    name="speedrun",
    summary="nanogpt-cpu's loss in a fraction of its time: the same context, Muon, few steps",
    needs_data=True,
    prepare=prepare,
)
