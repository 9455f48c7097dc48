"""The tour's run: Mini-GPT learns the verbs of a small language whose every probability is known.

The text comes from a seeded grammar, so the loss has an exact floor and the model's grammar can be marked like an exam.
The next file to read is start.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unembed.corpora.grammar import LANGUAGES, Grammar, grammar
from unembed.corpora.reading import Reading
from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.errors import UsageError
from unembed.model.init import Gpt2Init
from unembed.model.presets import preset
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.recipes.base import Prepared, Recipe
from unembed.tokenizers.files import fingerprint
from unembed.tokenizers.words import WordTokenizer
from unembed.training.config import RunConfig, TrainingConfig, with_settings

# The data is one stream of this many words; its last tenth is the validation split, as everywhere.
N_WORDS = 400_000
DATA_SEED = 1


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Writes the grammar's text and computes its floor. `settings["language"]` is es, en or ko; `data` must be empty."""
    if data:
        raise UsageError(f"recipe tour brings its own text, got {data[0]!r}; train on files with another --recipe")
    own = {key: value for key, value in settings.items() if key != "language"}
    language = settings.get("language", "en")
    if language not in LANGUAGES:
        raise UsageError(f"setting language is {language!r}; the grammar exists in {', '.join(LANGUAGES)}")
    rules = grammar(language, "mini")
    tokenizer = WordTokenizer(rules.words)
    config = with_settings(_config(), own)
    train, val = split_words(rules)
    floor = rules.floor_nats(val, config.model.context_length)

    def write_shards(folder: Path) -> TokenShards:
        with ShardWriter(folder, vocab_size=tokenizer.vocab_size, tokenizer=fingerprint(tokenizer)) as writer:
            for name, words in (("train", train), ("val", val)):
                text = " ".join(words)
                ids = np.asarray(tokenizer.encode_ids(text))
                writer.append(name, ids, n_characters=len(text), n_bytes=len(text.encode()), n_documents=1)
        return TokenShards.open(folder, verifies=False)

    return Prepared(
        config=config,
        tokenizer=tokenizer,
        write_shards=write_shards,
        data={"grammar": {"language": language, "size": "mini", "seed": DATA_SEED, "words": N_WORDS}},
        floors={"entropy_floor": floor},
        notes=(
            f"{N_WORDS:,} words of a grammar of {len(rules.words)} words ({language}); the last tenth is held out",
            f"no model of this context can reach a loss below {floor:.4f} nats",
        ),
    )


def split_words(rules: Grammar) -> tuple[list[str], list[str]]:
    """The tour's words: the first nine tenths to learn from, the last tenth held out."""
    words = rules.stream(DATA_SEED, N_WORDS)
    boundary = N_WORDS * 9 // 10
    return words[:boundary], words[boundary:]


def _config() -> RunConfig:
    return RunConfig(
        recipe="tour",
        seed=1,
        model=preset("mini-gpt").spec,
        init=Gpt2Init(std=0.02),
        training=TrainingConfig(
            steps=1800,
            batch_size=32,
            accumulate=1,
            optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01),
            schedule=Cosine(peak=1e-2, floor=1e-4, warmup_steps=100),
            clip_norm=1.0,
            dropout=0.0,
            log_every=20,
            eval_every=300,
            checkpoint_every=300,
            keep_every=600,
            compile=False,
        ),
    )


RECIPE = Recipe(
    name="tour",
    summary="Mini-GPT learns the verbs of a small grammar whose exact floor is known",
    needs_data=False,
    prepare=prepare,
)
