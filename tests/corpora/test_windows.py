"""Windows depend on seed and index alone, are drawn evenly, and each token of the validation split is a target once."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unembed.corpora.windows import TokenSplit, uniform
from unembed.errors import CorpusError


def split_of(n: int) -> TokenSplit:
    return TokenSplit("train", np.arange(n, dtype=np.uint16))


def test_worked_example_bits_per_byte():
    """A uniform guess over 256 bytes costs 8 bits each; half as many tokens of the same loss cost half."""
    text = TokenSplit("val", np.zeros(100, dtype=np.uint16), n_bytes=100)
    assert text.bits_per_byte(math.log(256)) == pytest.approx(8.0)
    half = TokenSplit("val", np.zeros(50, dtype=np.uint16), n_bytes=100)
    assert half.bits_per_byte(math.log(256)) == pytest.approx(4.0)
    assert split_of(5).bits_per_byte(1.0) is None, "no text, no bytes"


def oracle_uniform(seed: int, index: int) -> float:
    """SplitMix64 in plain Python integers."""

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    state = (mix(seed % 2**64) + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
    return (mix(state) >> 11) / 2**53


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_oracle_uniform_in_plain_integers(seed, index):
    assert float(uniform(seed, index)) == oracle_uniform(seed, index)


def test_oracle_first_outputs_of_splitmix64():
    """Seed 0's published first outputs: the state mix(0) is 0, so the counter is SplitMix64's own."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert uniform(0, np.arange(3)).tolist() == [(x >> 11) / 2**53 for x in published]


def test_property_starts_are_uniform_and_differ_between_seeds():
    split, context_length = split_of(74), 10
    starts = split.sample(3, np.arange(64_000, dtype=np.uint64), context_length)
    counts = np.bincount(starts, minlength=64)
    assert len(counts) == 64, "the last start is n - context_length - 1"
    chi_squared = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_squared < 103.4, "63 degrees of freedom, 0.1 % level"
    assert (split.sample(4, np.arange(64_000, dtype=np.uint64), context_length) == starts).mean() < 0.05


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9))
def test_property_batches_are_windows_of_consecutive_indices_however_they_are_cut(seed, step, batch_size):
    split = split_of(500)
    inputs, targets = split.batch(seed, step, 12, 16)
    starts = [int(split.sample(seed, step * 12 + row, 16)) for row in range(12)]
    assert inputs.tolist() == [list(range(s, s + 16)) for s in starts]
    assert (targets == inputs + 1).all()
    assert inputs.dtype == targets.dtype == np.int64
    cut = np.concatenate([split.batch(seed, i, 1, 16)[0] for i in range(step * 12, step * 12 + batch_size)])
    assert (cut == inputs[:batch_size]).all()


@given(st.integers(2, 60), st.integers(1, 20), st.integers(1, 5))
def test_property_every_token_but_the_first_is_a_target_once(n, context_length, batch_size):
    batches = list(split_of(n).windows(context_length, batch_size))
    targets = np.concatenate([targets.ravel() for _, targets in batches])
    assert targets.tolist() == list(range(1, n))
    for inputs, targets in batches:
        assert (targets == inputs + 1).all()
        assert (inputs[:, 0] % context_length == 0).all()
    assert all(inputs.shape[1] == context_length for inputs, _ in batches[:-1])
    assert all(len(inputs) <= batch_size for inputs, _ in batches)


def test_messages_for_too_little_text():
    with pytest.raises(CorpusError, match="train split: 16 tokens, but a window of context_length 16 needs 17"):
        split_of(16).batch(0, 0, 1, 16)
    with pytest.raises(CorpusError, match="train split: 1 tokens, nothing to predict"):
        next(split_of(1).windows(4))
