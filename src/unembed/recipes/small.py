"""The default run: looks at the data and picks tokenizer, size and steps for a time budget, and says why.

The choice depends on the data and the options alone, never on a clock or a measurement, so two starts choose alike. The
tokenizer always gives back every byte of the text. budget.py, the next file to read, chooses size and steps.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unembed.corpora.encode import TRAIN_FRACTION
from unembed.corpora.reading import Reading
from unembed.corpora.text import TextReader
from unembed.errors import UsageError
from unembed.model.counts import count
from unembed.model.init import ZeroOutInit
from unembed.model.spec import TransformerSpec
from unembed.optim.adamw import AdamWConfig
from unembed.optim.make import optimizer_of
from unembed.optim.schedules import Cosine, schedule_of
from unembed.recipes.base import Prepared, Recipe, Survey
from unembed.recipes.budget import TOKENS_PER_PARAMETER, Budget, Choice, choose
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.training import train_bpe, train_characters
from unembed.training.config import RunConfig, TrainingConfig, with_settings
from unembed.visible import counted

DEFAULT_MINUTES = 5.0
MOST_MINUTES = 1_000_000  # two years
# An alphabet this small (DNA, proteins, names, digits) has nothing to gain from merging letters.
SMALL_ALPHABET = 48
# Where a character takes so many bytes, as Korean does, it is as dense as a merged piece of letters: merging the syllables
# of a small text leaves too few examples of each piece.
DENSE_BYTES, MOST_DENSE = 2.0, 4096
# So many bytes of text for each entry of a vocabulary, so that even rare entries are seen often enough to be learnt.
BYTES_PER_ENTRY = 2000
FEWEST_ENTRIES, MOST_ENTRIES = 320, 8192
# What a vocabulary is learnt from, in characters: more changes few merges, and takes time and memory.
VOCABULARY_BUDGET = 1 << 24
# What is encoded to learn how many bytes a token holds.
SAMPLE_CHARACTERS = 500_000
# The learning rate of a model 128 wide; others by the root of their width.
PEAK_AT_128 = 2.5e-3
LITTLE_BYTES = 200_000
FEW_HELD_OUT_TOKENS = 2_000
LONG_EVALUATION_MINUTES = 0.5


def prepare(data: Sequence[str], reading: Reading, settings: Mapping[str, Any]) -> Prepared:
    """Surveys the text and decides. Its own setting is `minutes`. Raises: UsageError for a setting that leaves no budget."""
    own = {key: value for key, value in settings.items() if key != "minutes"}
    fixed = _fixed(settings)
    minutes = settings.get("minutes", DEFAULT_MINUTES)
    check_minutes(minutes)
    survey = Survey.of(TextReader(list(data), reading))
    tokenizer, why_tokenizer = _tokenizer(survey)
    n_tokens = max(1, int(survey.report.n_bytes / _bytes_per_token(survey, tokenizer)))
    n_train = int(TRAIN_FRACTION * n_tokens)
    choice = choose(tokenizer.vocab_size, Budget(n_train_tokens=n_train, minutes=float(minutes), **fixed))
    is_sharded = settings.get("parallel", settings.get("training.parallel")) == "fsdp"
    config = with_settings(_config(choice, n_tokens - n_train, is_sharded=is_sharded), own)
    notes = [why_tokenizer, _why_size(choice, config.model), *_warnings(choice, survey, n_tokens - n_train)]
    return survey.prepared(config, tokenizer, notes, _why_steps(choice, minutes))


def _fixed(settings: Mapping[str, Any]) -> dict[str, int]:
    """What the user has decided already, so that the rest follows from it."""
    fixed = {name: settings[name] for name in ("steps", "batch_size", "context_length") if name in settings}
    for name, value in fixed.items():
        if type(value) is not int or value < 1:
            raise UsageError(f"setting {name} is {value!r}; it must be a whole number, at least 1")
    return fixed


def _tokenizer(survey: Survey) -> tuple[Tokenizer, str]:
    """Characters for a small alphabet, or with bytes beside them for a dense script; byte-level BPE for everything else.

    All give back every byte of the text; the last two of any text.

    BPE learns its merges from the part that the model learns from; the alphabet is that of the whole text, because a
    letter of the held-out part that has no id could not be written.
    """
    n_different, report = len(survey.alphabet), survey.report
    if n_different <= SMALL_ALPHABET:
        return survey.characters(), f"tokenizer: characters, because the text has only {n_different} different ones"
    per_character = report.n_bytes / report.n_characters
    if per_character >= DENSE_BYTES and n_different <= MOST_DENSE:
        dense = train_characters(survey.alphabet)
        return dense, (
            f"tokenizer: characters, and bytes for those it has not met, {dense.vocab_size:,} entries, because a character of "
            f"this text takes {per_character:.1f} bytes; nothing is lost"
        )
    wanted = 1 << max(0, round(math.log2(report.n_bytes / BYTES_PER_ENTRY)))
    blocks = survey.reader.blocks(max(1, int(TRAIN_FRACTION * report.n_characters)))
    vocab_size = min(MOST_ENTRIES, max(FEWEST_ENTRIES, wanted))
    trained = train_bpe(blocks, vocab_size=vocab_size, budget=VOCABULARY_BUDGET)
    return trained, (
        f"tokenizer: byte-level BPE with {trained.vocab_size:,} entries, because the text has {n_different:,} different "
        f"characters and {report.n_bytes:,} bytes, {_why_entries(wanted)}; nothing is lost"
    )


def _why_entries(wanted: int) -> str:
    """What the size of a BPE vocabulary was chosen by: the bytes for each entry, or an end of what is sensible."""
    if wanted < FEWEST_ENTRIES:
        return f"and {FEWEST_ENTRIES:,} is the least that is made"
    if wanted > MOST_ENTRIES:
        return f"and {MOST_ENTRIES:,} is the most that is made"
    return f"about {BYTES_PER_ENTRY:,} for each entry"


def _bytes_per_token(survey: Survey, tokenizer: Tokenizer) -> float:
    """Measured on stretches from everywhere in the text, the end tokens of its documents included."""
    n_taken, n_seen, n_bytes, n_tokens = 0, 0, 0, 0
    for piece in survey.reader.pieces():
        if n_taken * survey.report.n_characters <= n_seen * SAMPLE_CHARACTERS:
            text = piece.text[: SAMPLE_CHARACTERS // 10]
            n_taken += len(text)
            n_bytes += len(text.encode())
            n_tokens += len(tokenizer.encode_ids(text)) + (piece.ends_document and tokenizer.end_id is not None)
        n_seen += len(piece.text)
    return n_bytes / max(1, n_tokens)


def _config(choice: Choice, n_val_tokens: int, *, is_sharded: bool) -> RunConfig:
    """Muon and a plateau: at equal steps they end 1.4 to 5 % lower than AdamW and a cosine (docs/decisions/0012).

    AdamW stays where a small text is read to its end again and again, which Muon learns by heart sooner; and where the model
    is sharded, since Muon steps whole matrices, of which a process has only some rows.
    """
    takes_muon = choice.bound != "text" and not is_sharded
    steps, d_model = choice.steps, choice.spec.embedding.d_model
    peak = PEAK_AT_128 * math.sqrt(128 / d_model)
    adamw = AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)
    cosine = Cosine(peak=peak, floor=peak / 50, warmup_steps=max(1, min(100, steps // 20)))
    training = TrainingConfig(
        steps=steps,
        batch_size=choice.batch_size,
        accumulate=1,
        optimizer=optimizer_of("muon", adamw) if takes_muon else adamw,
        schedule=schedule_of("plateau", cosine, steps) if takes_muon else cosine,
        clip_norm=1.0,
        dropout=0.0,
        log_every=10,
        eval_every=choice.eval_every(n_val_tokens),
        checkpoint_every=max(50, steps // 10),
        keep_every=None,
        compile=False,
    )
    return RunConfig(recipe="small", seed=1, model=choice.spec, init=ZeroOutInit(std=0.02), training=training)


def _why_size(choice: Choice, spec: TransformerSpec) -> str:
    """The size of the model that is trained, which a setting may have made another than the chosen one, and why."""
    parameters = count(spec).parameters
    why = (
        f"the smallest, because the run sees only {choice.n_tokens:,} tokens"
        if choice.is_smallest
        else f"the largest that sees {TOKENS_PER_PARAMETER} tokens per parameter"
    )
    return (
        f"model: {spec.n_layers} layers, {spec.embedding.d_model} wide, {parameters:,} parameters, context "
        f"{spec.context_length}: {why}{'' if spec == choice.spec else ', but for what was set'}"
    )


def check_minutes(minutes: object) -> None:
    """Refuses what is no budget, nan too. Raises: UsageError."""
    if not isinstance(minutes, int | float) or isinstance(minutes, bool) or not 0 < minutes <= MOST_MINUTES:
        raise UsageError(f"setting minutes is {minutes!r}; it must be a number above 0, at most {MOST_MINUTES:,}")


def _why_steps(choice: Choice, minutes: float) -> str:
    return {
        "steps": "as asked",
        "minutes": f"what {_minutes(minutes)} on two cores allow",
        "text": f"about {choice.minutes:.1f} of the {_minutes(minutes)}; reading it more often would teach little",
    }[choice.bound]


def _minutes(minutes: float) -> str:
    return f"{minutes:g} {'minute' if minutes == 1 else 'minutes'}"


def _warnings(choice: Choice, survey: Survey, n_val_tokens: int) -> tuple[str, ...]:
    said, n_bytes = [], survey.report.n_bytes
    if n_bytes < LITTLE_BYTES:
        said.append(
            f"warning: {n_bytes:,} bytes are little text; the model will learn its words by heart more than its language. "
            f"Give more if you have it: from about {LITTLE_BYTES:,} bytes samples begin to read well"
        )
    if n_val_tokens < FEW_HELD_OUT_TOKENS:
        said.append(
            f"warning: the held-out tenth has only about {counted(n_val_tokens, 'token')}, so its loss is a rough figure"
        )
    if (one := choice.evaluation_minutes(n_val_tokens)) > LONG_EVALUATION_MINUTES:
        said.append(
            f"the held-out tenth is large: each evaluation takes about {one:.1f} minutes on two cores, beside the steps"
        )
    return tuple(said)


RECIPE = Recipe(
    name="small",
    summary="looks at your data and picks tokenizer, size and steps for a time budget (setting minutes)",
    needs_data=True,
    prepare=prepare,
)
