"""The recipe small: what it decides, that it decides alike, that it says why; and that nothing of a text is lost."""

import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed.corpora.reading import Reading
from unembed.corpora.shards import TokenShards
from unembed.corpora.text import TextReader
from unembed.errors import UsageError
from unembed.model.counts import count
from unembed.optim.adamw import AdamWConfig
from unembed.optim.muon import MuonConfig
from unembed.optim.schedules import Cosine, Plateau
from unembed.recipes import budget, small
from unembed.recipes.budget import Budget, choose
from unembed.recipes.small import prepare
from unembed.tokenizers.files import load, save

SMALL_TEXTS = ["udhr_en.txt", "udhr_es.txt", "udhr_ko.txt"]
LARGE_TEXTS = ["quijote.txt", "korean_chat.csv", "tinyshakespeare.txt", "names.txt"]


def prepared(path, reading=None, **own):
    return prepare([str(path)], Reading() if reading is None else reading, own)


def written(
    path, n_bytes, words="To be or not to be, 깰 año; that is the question: ABCDEFGHIJKLMNÑOPQRSUVWXYZ 0123456789\n"
):
    path.write_text(words * (n_bytes // len(words.encode()) + 1))
    return path


@pytest.mark.parametrize("name", [*SMALL_TEXTS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE_TEXTS)])
@pytest.mark.parametrize("newlines", ["keep", "lf"])
def test_every_real_text_comes_back_from_its_tokenizer(data, tmp_path, name, newlines):
    path, reading = data / "text" / name, Reading(newlines=newlines)
    tokenizer = load(save(prepared(path, reading).tokenizer, tmp_path))
    assert tokenizer.is_lossless
    for document in TextReader(path, reading).documents():
        assert tokenizer.decode(tokenizer.encode_ids(document)) == document
    if newlines == "keep":
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        assert tokenizer.decode(tokenizer.encode_ids(content.decode())).encode() == content


@pytest.mark.slow
def test_a_folder_in_every_script_comes_back_document_by_document(data, tmp_path):
    run = prepared(data / "text")
    documents = list(TextReader(data / "text").documents())
    shards = run.write_shards(tmp_path / "shards")
    ids = np.concatenate([shards.train[:], shards.val[:]])
    ends = np.flatnonzero(ids == run.tokenizer.end_id)
    assert len(ends) == len(documents) == 7
    texts = [run.tokenizer.decode(part) for part in np.split(ids, ends + 1)[:-1]]
    assert texts == documents
    assert "korean_chat.csv: this looks like a CSV with columns Q, A, label" in run.notes[0]


@pytest.mark.slow
def test_cells_of_a_column_are_kept_apart(data, tmp_path):
    reading = Reading(column="A")
    run = prepared(data / "text" / "korean_chat.csv", reading)
    shards = run.write_shards(tmp_path / "shards")
    ids = np.concatenate([shards.train[:], shards.val[:]])
    assert int((ids == run.tokenizer.end_id).sum()) == 11_823
    first = ids[: int(np.flatnonzero(ids == run.tokenizer.end_id)[0])]
    assert run.tokenizer.decode(first) == "하루가 또 가네요."


CODE = """
import json, sys, msgspec
from unembed.corpora.reading import Reading
from unembed.recipes.small import prepare
made = prepare([sys.argv[1]], Reading(), {})
print(json.dumps([msgspec.to_builtins(made.config), made.tokenizer.to_dict(), made.notes], sort_keys=True))
"""


@pytest.mark.slow
def test_two_starts_choose_alike_whatever_clock_threads_or_hash_seed(data, monkeypatch):
    path = data / "text" / "udhr_es.txt"
    made = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed, "OMP_NUM_THREADS": seed}
        run = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, check=True, env=environment)
        made.add(run.stdout)
    assert len(made) == 1

    def never(*_):
        raise AssertionError("a choice was made by the clock")

    for clock in ("time", "perf_counter", "monotonic", "process_time"):
        monkeypatch.setattr(time, clock, never)
    again = prepared(path)
    assert json.loads(made.pop())[2] == list(again.notes)


def test_merges_are_learnt_from_the_part_that_is_learnt_from(tmp_path):
    """The held-out tenth may hold a word a thousand times; the vocabulary must not know it."""
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox, Quijote ñandú 1234 ABCDEFGHIJKLMNOPRSTUVWXYZ\n" * 180 + "zxzxzxzx " * 140)
    tokenizer = prepared(path).tokenizer
    assert tokenizer.kind == "bpe"
    assert len(tokenizer.encode("quick").ids) < 5
    assert len(tokenizer.encode("zxzxzxzx").ids) == 8


@pytest.mark.slow
def test_a_small_alphabet_gets_characters_and_a_large_one_subwords(data):
    assert prepared(data / "text" / "names.txt").tokenizer.kind == "characters"
    assert "only 27 different ones" in prepared(data / "text" / "names.txt").notes[0]
    shakespeare = prepared(data / "text" / "tinyshakespeare.txt")
    assert (shakespeare.tokenizer.kind, shakespeare.tokenizer.vocab_size) == ("bpe", 512)
    assert "byte-level BPE with 512 entries, because the text has 65 different characters" in shakespeare.notes[0]


def test_a_dense_script_gets_its_characters_and_may_be_spoken_to_in_any_other(data):
    run = prepared(data / "text" / "udhr_ko.txt")
    text = (data / "text" / "udhr_ko.txt").read_text()
    assert "characters, and bytes for those it has not met" in run.notes[0]
    assert len(run.tokenizer.encode(text).ids) == len(text)
    assert run.tokenizer.decode(run.tokenizer.encode_ids("ñandú 뷁 🐣")) == "ñandú 뷁 🐣"


@settings(deadline=None, max_examples=25)
@given(
    st.integers(60, 8192),
    st.integers(50, 10**9),
    st.floats(0.01, 10_000),
    st.none() | st.integers(1, 10**6),
)
def test_property_a_choice_keeps_its_budget(vocab_size, n_train, minutes, steps):
    made = choose(vocab_size, Budget(n_train_tokens=n_train, minutes=minutes, steps=steps))
    per_step = made.batch_size * made.spec.context_length
    assert made.spec.context_length <= 128
    if steps is not None:
        assert (made.steps, made.bound) == (steps, "steps")
    elif made.steps > 1:
        assert made.n_tokens <= budget.MOST_EPOCHS * n_train
        assert made.minutes <= minutes
        room = minutes * 60 / budget.seconds_per_token(made.spec) - made.n_tokens
        assert made.bound == "text" or room < 2 * per_step, "the minutes are used up"
    if not made.is_smallest:
        assert made.n_tokens >= budget.TOKENS_PER_PARAMETER * count(made.spec).parameters
    evaluations = made.steps // made.eval_every(n_train // 9)
    assert evaluations <= 10
    assert evaluations <= 1 or evaluations * made.evaluation_minutes(n_train // 9) <= 0.25 * made.minutes


@settings(deadline=None, max_examples=10)
@given(st.integers(60, 8192), st.integers(10**3, 10**8), st.floats(0.1, 100))
def test_property_more_minutes_never_choose_a_smaller_model(vocab_size, n_train, minutes):
    sizes = [
        count(choose(vocab_size, Budget(n_train_tokens=n_train, minutes=m)).spec).parameters
        for m in (minutes, 2 * minutes, 8 * minutes)
    ]
    assert sizes == sorted(sizes)


def test_a_short_run_gets_small_batches_and_so_enough_steps():
    sizes = {}
    for n_train in (5_000, 12_000, 26_000, 10**6):
        made = choose(320, Budget(n_train_tokens=n_train, minutes=5.0))
        sizes[n_train] = made.batch_size * made.spec.context_length
        assert made.steps >= 200, "300, but for the smallest text"
    assert list(sizes.values()) == [512, 512, 2048, 2048]
    assert choose(320, Budget(n_train_tokens=5_000, minutes=5.0, steps=1000)).batch_size * 32 == 512


def test_worked_example_of_the_time_model():
    """4 layers of 128 with 1,024 entries: 3 * (4 * 2 * 12 * 128^2 + 2 * 1,024 * 128 + attention) operations a token."""
    spec = budget.spec_of(1024, 128, 128, 4)
    attention = 4 * 2 * 2 * 128 * 64.5
    by_hand = 3 * (4 * 2 * 12 * 128**2 + 2 * 1024 * 128 + attention)
    assert budget.seconds_per_token(spec) == pytest.approx(by_hand / 80e9 + 20e-6, rel=1e-12)


def test_what_the_user_fixed_is_fixed_and_the_rest_follows(tmp_path):
    path = written(tmp_path / "text.txt", 30_000)
    free = prepared(path).config
    asked = prepared(path, steps=200, batch_size=4, context_length=16, learning_rate=1e-3).config
    training = asked.training
    assert (training.steps, training.batch_size, asked.model.context_length) == (200, 4, 16)
    assert (training.schedule.peak, training.schedule.warmup_steps) == (1e-3, 10)
    assert free.training.schedule.warmup_steps == max(1, free.training.steps // 20)
    assert prepared(path, minutes=1e-9).config.training.steps == 1


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"minutes": 0}, "setting minutes is 0; it must be a number above 0"),
        ({"minutes": True}, "setting minutes is True"),
        ({"minutes": "five"}, "setting minutes is 'five'"),
        ({"steps": 0}, "setting steps is 0; it must be a whole number, at least 1"),
        ({"batch_size": 1.5}, "setting batch_size is 1.5; it must be a whole number"),
        ({"context_length": "long"}, "setting context_length is 'long'"),
        ({"minuts": 3}, "no setting is named 'minuts'"),
    ],
)
def test_message_for_settings_that_make_no_budget(tmp_path, own, message):
    with pytest.raises(UsageError, match=message):
        prepared(written(tmp_path / "text.txt", 3000), **own)


def test_what_bounds_a_run_is_said(tmp_path):
    path = written(tmp_path / "text.txt", 300_000)
    assert prepared(path, minutes=0.02).why_steps == "what 0.02 minutes on two cores allow"
    assert "200 minutes; reading it more often would teach little" in prepared(path, minutes=200).why_steps
    assert prepared(path, steps=5).why_steps == "as asked"
    assert "the smallest, because the run sees only" in said(prepared(path, steps=5))
    assert "the largest that sees 4 tokens per parameter" in said(prepared(path, steps=5_000))


def said(run):
    return "\n".join(run.notes)


def test_too_little_text_is_said_and_enough_is_not(tmp_path):
    path = written(tmp_path / "little.txt", 5_000)
    little = said(prepared(path))
    assert f"warning: {path.stat().st_size:,} bytes are little text" in little
    assert "warning: the held-out tenth has only about" in little
    assert "warning" not in said(prepared(written(tmp_path / "enough.txt", 400_000)))


def test_a_large_held_out_part_is_said_and_evaluated_seldom():
    made = choose(4096, Budget(n_train_tokens=270_000_000, minutes=5.0))
    assert made.evaluation_minutes(30_000_000) > small.LONG_EVALUATION_MINUTES
    assert made.eval_every(30_000_000) == made.steps


def test_oracle_bytes_per_token_is_the_mean_over_the_whole_text(tmp_path):
    """Cells of different lengths: the first one alone would mislead."""
    cells = [
        "a",
        *["the question is whether to be " * (1 + i % 7) for i in range(300)],
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ ñ깰",
    ]
    (tmp_path / "cells.csv").write_text("say\n" + "\n".join(cells) + "\n")
    run = prepared(tmp_path / "cells.csv", Reading(column="say"))
    shards: TokenShards = run.write_shards(tmp_path / "shards")
    n_tokens = len(shards.train) + len(shards.val)
    survey = small.Survey.of(TextReader(tmp_path / "cells.csv", Reading(column="say")))
    assert small._bytes_per_token(survey, run.tokenizer) == pytest.approx(
        sum(len(cell.encode()) for cell in cells) / n_tokens, rel=1e-9
    )
    assert math.isclose(n_tokens, sum(len(run.tokenizer.encode(cell).ids) + 1 for cell in cells))


def test_the_least_vocabulary_is_called_the_least(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox, Quijote ñandú 1234 ABCDEFGHIJKLMNOPRSTUVWXYZ\n" * 180)
    told = prepared(path).notes[0]
    assert "byte-level BPE with " in told
    assert "bytes, and 320 is the least that is made; nothing is lost" in told
    assert "for each entry" not in told


def test_the_size_that_is_told_is_the_size_that_is_trained(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    for more in ({}, {"sharing": "mapped"}):
        run = prepared(path, **more)
        assert f"{count(run.config.model).parameters:,} parameters" in said(run)
    assert "but for what was set" in said(run)


def test_matrices_are_muons_but_of_a_small_text_or_a_sharded_model(tmp_path):
    """Muon learns a small text by heart; under fsdp a process has rows of a matrix, and the run must still begin."""
    path = written(tmp_path / "text.txt", 30_000)
    training = prepared(path, minutes=0.05).config.training
    assert isinstance(training.optimizer, MuonConfig)
    assert isinstance(training.schedule, Plateau)
    assert training.schedule.decay_steps == round(0.6 * training.steps)
    for own in ({"parallel": "fsdp"}, {"training.parallel": "fsdp"}, {"optimizer": "adamw", "schedule": "cosine"}):
        other = prepared(path, minutes=0.05, **own).config.training
        assert isinstance(other.optimizer, AdamWConfig)
        assert isinstance(other.schedule, Cosine)
        assert (other.schedule.peak, other.schedule.floor) == (training.schedule.peak, training.schedule.floor)
    by_heart = prepared(path).config.training
    assert isinstance(by_heart.optimizer, AdamWConfig)
    assert isinstance(by_heart.schedule, Cosine)


def test_the_rate_falls_over_the_steps_that_were_asked(tmp_path):
    path = written(tmp_path / "text.txt", 30_000)
    assert prepared(path, steps=50).config.training.schedule.decay_steps == 30
