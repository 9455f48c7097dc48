"""The default run: looks at the data and picks tokenizer, size and steps for a time budget, and says why.

The choice depends on the data and the options alone, never on a clock or a measurement, so two starts choose alike. The
speed that turns minutes into tokens is a constant below; another machine needs more or less time, not another model.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.errors import UsageError
from unembed.model.counts import count
from unembed.model.init import ZeroOutInit
from unembed.model.presets.row import attention, embedding, head
from unembed.model.spec import Block, Causal, PlainMlp, RmsNorm, Rotary, Serial, TransformerSpec
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Cosine
from unembed.planning.flops import flops
from unembed.recipes.base import Prepared, Recipe, Survey
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.training import train_bpe
from unembed.training.config import RunConfig, TrainingConfig, with_settings

DEFAULT_MINUTES = 5.0
MOST_MINUTES = 1_000_000  # two years
# What two cores of 2024 sustain on models of this size, matrix products and everything between them, in FLOP/s.
ASSUMED_FLOPS = 40e9
D_HEAD = 32
# d_model and layers; sizes grow about twofold from one to the next.
LADDER = ((64, 2), (96, 3), (128, 4), (192, 4), (256, 4), (320, 6), (448, 6), (512, 8), (768, 12))
# An alphabet this small (DNA, proteins, digits) has nothing to gain from merging letters.
SMALL_ALPHABET = 48
# Tokens seen per parameter: below this a smaller model learns more in the same time (arXiv:2203.15556 finds about 20).
TOKENS_PER_PARAMETER = 8
# Reading one text more often than this teaches little new (arXiv:2305.16264, section 4).
MOST_EPOCHS = 24
BATCH_TOKENS = 2048


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Surveys the text and decides. Its own setting is `minutes`. Raises: UsageError for a budget that is not positive."""
    own = {key: value for key, value in settings.items() if key != "minutes"}
    minutes = settings.get("minutes", DEFAULT_MINUTES)
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 < minutes <= MOST_MINUTES:
        raise UsageError(f"setting minutes is {minutes!r}; it must be a number above 0, at most {MOST_MINUTES:,}")
    survey = Survey.of(TextReader(list(data), reading))
    tokenizer, why_tokenizer = _tokenizer(survey)
    per_token = _bytes_per_token(survey.reader, tokenizer)
    n_tokens = max(1, int(survey.report.n_bytes / per_token))
    config, why_size = _config(tokenizer.vocab_size, int(0.9 * n_tokens), float(minutes))
    config = with_settings(config, own)
    return survey.prepared(config, tokenizer, [why_tokenizer, *why_size, *_warnings(n_tokens, config)])


def _tokenizer(survey: Survey) -> tuple[Tokenizer, str]:
    """Characters for a small alphabet, byte-level BPE for everything else: both give back every byte of a text."""
    n_different, n_bytes = len(survey.alphabet), survey.report.n_bytes
    if n_different <= SMALL_ALPHABET:
        return survey.characters(), f"tokenizer: characters, because the text has only {n_different} different ones"
    # about 1,000 bytes of text for each entry, so that even rare entries are seen often enough to be learnt
    vocab_size = min(8192, max(320, 1 << max(0, round(math.log2(n_bytes / 1000)))))
    trained = train_bpe((piece.text for piece in survey.reader.pieces()), vocab_size=vocab_size)
    return trained, (
        f"tokenizer: byte-level BPE with {trained.vocab_size:,} entries, because the text has {n_different:,} different "
        f"characters and {n_bytes:,} bytes; nothing is lost"
    )


def _bytes_per_token(reader: TextReader, tokenizer: Tokenizer) -> float:
    """Measured on the first piece of the text: enough to turn bytes into tokens."""
    text = next(iter(reader.pieces())).text[:200_000]
    return len(text.encode()) / max(1, len(tokenizer.encode_ids(text)))


def _config(vocab_size: int, n_train_tokens: int, minutes: float) -> tuple[RunConfig, tuple[str, ...]]:
    """The largest model of the ladder that sees enough tokens in the budget, and the steps that fill it."""
    context_length = 128 if n_train_tokens >= 20_000 else 32
    budget = ASSUMED_FLOPS * 60 * minutes
    chosen, tokens = LADDER[0], 0
    for shape in LADDER:
        spec = _spec(vocab_size, context_length, *shape)
        affordable = int(budget / flops(spec).training)
        seen = min(affordable, MOST_EPOCHS * n_train_tokens)
        if shape is LADDER[0] or seen >= TOKENS_PER_PARAMETER * count(spec).parameters:
            chosen, tokens = shape, seen
    spec = _spec(vocab_size, context_length, *chosen)
    batch_size = max(1, BATCH_TOKENS // context_length)
    steps = max(50, tokens // (batch_size * context_length))
    peak = 4e-3 * math.sqrt(128 / chosen[0])
    training = TrainingConfig(
        steps=steps,
        batch_size=batch_size,
        accumulate=1,
        optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1),
        schedule=Cosine(peak=peak, floor=peak / 50, warmup_steps=max(10, steps // 50)),
        clip_norm=1.0,
        dropout=0.0,
        log_every=10,
        eval_every=max(50, steps // 10),
        checkpoint_every=max(50, steps // 10),
        keep_every=None,
        compile=False,
    )
    config = RunConfig(recipe="small", seed=1, model=spec, init=ZeroOutInit(std=0.02), training=training)
    epochs = steps * batch_size * context_length / max(1, n_train_tokens)
    why = (
        f"model: {chosen[1]} layers, {chosen[0]} wide, {count(spec).parameters:,} parameters, context {context_length}: the "
        f"largest that sees {TOKENS_PER_PARAMETER} tokens per parameter in about {minutes:g} minutes on two cores",
        f"training: {steps:,} steps of {batch_size * context_length:,} tokens, {epochs:.1f} times through the text",
    )
    return config, why


def _spec(vocab_size: int, context_length: int, d_model: int, n_layers: int) -> TransformerSpec:
    """Rotary positions, RMSNorm, normed queries and keys, squared ReLU, a tied head."""
    norm = RmsNorm(eps=1e-6, gain="plain")
    rotary = Rotary(theta=10_000.0, pairing="half", fraction=1.0, scaling=None)
    block = Block(
        attention=attention(d_model // D_HEAD, D_HEAD, position=rotary, sees=Causal(window=None), qk_norm=norm),
        mlp=PlainMlp(d_mlp=4 * d_model, activation="relu_squared", has_bias=False),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(vocab_size, d_model),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=head(is_tied=True),
    )


def _warnings(n_tokens: int, config: RunConfig) -> tuple[str, ...]:
    parameters = count(config.model).parameters
    if n_tokens >= 2 * parameters:
        return ()
    return (
        f"warning: about {n_tokens:,} tokens are little for {parameters:,} parameters; the model will learn them by heart. "
        "Watch the validation loss, and give more text if you have it",
    )


RECIPE = Recipe(
    name="small",
    summary="looks at your data and picks tokenizer, size and steps for a time budget (setting minutes)",
    needs_data=True,
    prepare=prepare,
)
