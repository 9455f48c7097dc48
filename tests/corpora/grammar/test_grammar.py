"""The floor, the n-gram models above it, the seeds, and the messages of a whole grammar."""

import hashlib
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from unembed.corpora.grammar import LANGUAGES, SIZES, grammar, sentences
from unembed.errors import CorpusError

HASHES = {
    ("es", "mini"): "5148aa5b27348ab8",
    ("es", "large"): "45229abbe57d4042",
    ("en", "mini"): "5d6109581efe1ca8",
    ("en", "large"): "47b63b41d3d2c386",
    ("ko", "mini"): "d7705ae9331c8d64",
    ("ko", "large"): "ea943ff3dbfa206e",
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
def test_same_seed_same_text_on_every_platform(language, size):
    text = grammar(language, size).text(seed=0, n_words=5_000)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == HASHES[language, size]


def test_another_seed_another_text_and_a_longer_text_begins_with_the_shorter():
    en = grammar("en", "mini")
    assert en.stream(1, 100) != en.stream(2, 100)
    # 40,000 words take more than one block of random numbers.
    assert en.stream(1, 40_000)[:35_000] == en.stream(1, 35_000)


# The floor ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_words", [2, 32, 33, 34, 65, 200])
def test_oracle_floor_is_the_mean_over_windows_one_by_one(n_words):
    ko = grammar("ko", "mini")
    words = ko.stream(5, 1_000)[300 : 300 + n_words]
    lost = []
    for first in range(0, n_words - 1, 32):
        lost += (-ko.log_probabilities(words[first : first + 33], "anywhere")[1:]).tolist()
    assert len(lost) == n_words - 1
    assert ko.floor_nats(words, 32) == pytest.approx(np.mean(lost), abs=1e-12)


@pytest.mark.parametrize("language", LANGUAGES)
def test_property_next_probabilities_sum_to_one_and_agree_with_log_probabilities(language):
    rules = grammar(language, "large")
    words = rules.stream(6, 40)
    for start in ("sentence", "anywhere"):
        logs = rules.log_probabilities(words, start)
        for pos in range(len(words)):
            chances = rules.next_probabilities(words[:pos], start)
            assert chances.sum() == pytest.approx(1, abs=1e-12)
            assert math.log(chances[rules.words.index(words[pos])]) == pytest.approx(logs[pos], abs=1e-12)


@pytest.mark.parametrize("language", LANGUAGES)
def test_property_surprise_equals_entropy_on_average(language):
    """If the probabilities are those the text was drawn with, -log p(word) - H(next word) has mean 0 after any beginning."""
    rules = grammar(language, "mini")
    gaps = []
    for seed in range(30):
        words = rules.stream(seed, 24)
        logs = rules.log_probabilities(words)
        for pos in range(0, 24, 3):
            chances = rules.next_probabilities(words[:pos])
            possible = chances[chances > 0]
            gaps.append(-logs[pos] + float(possible @ np.log(possible)))
    error = np.std(gaps) / math.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4 * error


def test_property_floors_of_two_texts_agree_and_more_context_lowers_them():
    es = grammar("es", "mini")
    one, other = (es.floor_nats(es.stream(seed, 30_000), 32) for seed in (1, 2))
    # 30,000 words hold 3,000 sentences; a sentence's total varies by about 4 nats, so the mean word by 0.007.
    assert one == pytest.approx(other, abs=0.03)
    words = es.stream(1, 5_000)
    floors = [es.floor_nats(words, context_length) for context_length in (1, 8, 32, 256)]
    assert floors == sorted(floors, reverse=True)
    assert es.floor_nats(words, 1) == pytest.approx(es.ngram_nats(words, 2), abs=1e-12)


# What simpler models reach ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
def test_unigram_and_trigram_models_stay_far_above_the_floor(language, size):
    """The exact ones, so no trained one comes nearer; the floor is that of a context of 32 words."""
    rules = grammar(language, size)
    words = rules.stream(9, 12_001)
    floor = rules.floor_nats(words, 32)
    assert rules.ngram_nats(words, 1) > 1.3 * floor
    assert rules.ngram_nats(words, 3) > 1.1 * floor


@pytest.mark.parametrize("language", LANGUAGES)
def test_oracle_exact_trigram_is_what_counting_comes_to(language):
    """Counts of 200,000 words, smoothed by the bigram's and the unigram's: just above the exact model, never below."""
    rules = grammar(language, "mini")
    train, words = rules.stream(20, 200_000), rules.stream(21, 10_000)
    ones = Counter(train)
    twos, threes = Counter(itertools.pairwise(train)), Counter(zip(train, train[1:], train[2:], strict=False))

    def lost(first: str, second: str, third: str) -> float:
        share = ones[third] / len(train)
        share = (twos[second, third] + share) / (ones[second] + 1)
        return -math.log((threes[first, second, third] + share) / (twos[first, second] + 1))

    counted = np.mean([lost(*three) for three in zip(words, words[1:], words[2:], strict=False)])
    exact = rules.ngram_nats(words, 3)
    assert exact < counted < 1.02 * exact
    unigram = np.mean([-math.log(ones[word] / len(train)) for word in words])
    assert unigram == pytest.approx(rules.ngram_nats(words, 1), rel=0.005)


# Structure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_property_the_true_label_is_never_ruled_out_and_beliefs_are_honest(language):
    rules = grammar(language, "mini")
    words, states = rules.sample(8, 1_500)
    for label, values in rules.labels.items():
        posterior = rules.posterior(words, label)
        np.testing.assert_allclose(posterior.sum(axis=1), 1, atol=1e-9)
        truth = np.array([values.index(value) for value in np.array(rules.state_labels(label))[states]])
        believed = posterior[np.arange(len(words)), truth]
        assert (believed > 0).all()
        # What is believed with probability p is true in a share p of the cases.
        hits = np.eye(len(values))[truth] - posterior
        assert abs(hits.mean(axis=0)).max() < 0.03


def test_worked_example_annotation():
    es = grammar("es", "mini")
    described = es.annotate(["ayer", "yo", "con", "las", "niñas", "volví", "cansada", "."])
    assert [word["person"] for word in described] == ["-", "1", "1", "1", "1", "1", "-", "-"]
    assert [word["tense"] for word in described[:6]] == ["past"] * 6
    assert described[4]["part"] == "distractor"
    assert [word["gender"] for word in described] == ["-", "-", "-", "-", "-", "-", "feminine", "-"]
    cut = es.annotate(["niñas", "volvieron", "muy"], start="anywhere")
    assert [word["number"] for word in cut] == ["?", "plural", "plural"]


# Held out -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_begin_like_no_sentence_that_was_read(language):
    rules = grammar(language, "mini")
    read = sentences(rules.stream(1, 200_000))
    begun = {sentence[:end] for sentence in read for end in range(1, len(sentence) + 1)}
    items = rules.long_agreements(seed=2, n=100, exclude=read)
    assert len(items) == 100
    assert not any(item.prefix in begun for item in items)
    # It must matter: without the exclusion, many questions have been read.
    assert sum(item.prefix in begun for item in rules.long_agreements(seed=2, n=100)) > 25


# Messages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: grammar("fr", "mini"),
            "no grammar 'fr' of size 'mini'; languages are es, en, ko, sizes mini and large",
        ),
        (lambda: grammar("es", "huge"), "no grammar 'es' of size 'huge'"),
        (
            lambda: grammar("es").log_probabilities(["hola"]),
            "'hola' is no word of the mini es grammar; it has 62 words",
        ),
        (lambda: grammar("es").floor_nats(["ayer"], 32), "a floor of 1 words in windows of 32; it takes at least 2"),
        (lambda: grammar("es").floor_nats(["ayer", "yo"], 0), "a floor of 2 words in windows of 0"),
        (lambda: grammar("es").floor_nats(["ayer", "ayer"], 8), "no text of the mini es grammar"),
        (lambda: grammar("es").ngram_nats(["ayer", "yo"], 3), "order 3 for 2 words; it must lie between 1 and"),
        (lambda: grammar("es").posterior(["ayer"], "mood"), "no label 'mood' in es mini; it has part, tense"),
        (
            lambda: grammar("ko").long_agreements(0, 5, min_distance=12),
            "found 0 of 5 agreements over 12 or more words after 20000 sentences",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(CorpusError, match=message):
        call()
