"""A small run whose token table can be shared in every way that there is: what `compare-sharing` trains many of.

nanoGPT's run on a CPU, made smaller: 4 layers of 64 instead of 128, because a pseudo-inverse head needs at least as many
tokens as it is wide, and a text in characters may have 65; 500 steps. Setting `vocabulary` makes byte-level BPE of so many
entries in place of characters. The next file to read is comparison.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unembed.corpora.encode import TRAIN_FRACTION
from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.errors import UsageError
from unembed.model.init import Gpt2Init
from unembed.model.presets.gpt import gpt_spec
from unembed.optim.schedules import Cosine
from unembed.recipes.base import Prepared, Recipe, Survey
from unembed.recipes.nanogpt_cpu import TRAINING
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.training import train_bpe
from unembed.training.config import RunConfig, with_settings

CHARACTERS = "characters"
# Learning the merges from more text changes few of them.
BUDGET = 1 << 22
FEWEST, MOST = 320, 65_536


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Surveys the text and makes its vocabulary. Raises: UsageError for a vocabulary that cannot be."""
    own = {key: value for key, value in settings.items() if key != "vocabulary"}
    wanted = settings.get("vocabulary", CHARACTERS)
    check_vocabulary(wanted)
    survey = Survey.of(TextReader(list(data), reading))
    tokenizer = survey.characters() if wanted == CHARACTERS else _bpe(survey, wanted)
    spec = gpt_spec(
        vocab_size=tokenizer.vocab_size,
        context_length=64,
        d_model=64,
        n_layers=4,
        n_heads=4,
        has_bias=False,
        activation="gelu",
    )
    config = RunConfig(
        recipe="shared-table",
        seed=1,
        model=spec,
        init=Gpt2Init(std=0.02),
        training=msgspec.structs.replace(
            TRAINING, steps=500, schedule=Cosine(peak=1e-2, floor=1e-3, warmup_steps=50), sample_every=0
        ),
    )
    about = f"{survey.report.n_characters:,} characters; a vocabulary of {tokenizer.vocab_size:,} ({wanted})"
    return survey.prepared(with_settings(config, own), tokenizer, [about])


def check_vocabulary(wanted: object) -> None:
    """Refuses what is no vocabulary. Raises: UsageError."""
    is_size = isinstance(wanted, int) and not isinstance(wanted, bool) and FEWEST <= wanted <= MOST
    if wanted != CHARACTERS and not is_size:
        raise UsageError(
            f"setting vocabulary is {wanted!r}; it must be {CHARACTERS!r}, or a whole number of BPE entries, at least "
            f"{FEWEST} and at most {MOST:,}"
        )


def _bpe(survey: Survey, vocab_size: int) -> Tokenizer:
    """Merges from the part of the text that the model learns from."""
    blocks = survey.reader.blocks(max(1, int(TRAIN_FRACTION * survey.report.n_characters)))
    return train_bpe(blocks, vocab_size=vocab_size, budget=BUDGET)


RECIPE = Recipe(
    name="shared-table",
    summary="a small model to share the token table of in every way: 4 layers, 64 wide, 500 steps (setting vocabulary)",
    needs_data=True,
    prepare=prepare,
)
