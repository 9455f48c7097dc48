"""Learning rates: worked values, both ends, and that every rate stays between floor and peak."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unembed.optim.schedules import Cosine, Plateau, learning_rate

NANOGPT = Cosine(peak=1e-3, floor=1e-4, warmup_steps=100)
PLATEAU = Plateau(peak=2.0, floor=0.5, warmup_steps=3, decay_steps=4)


def test_warm_up_rises_in_equal_parts_from_above_zero_to_the_peak():
    rates = [learning_rate(NANOGPT, step, 2000) for step in range(101)]
    assert rates[0] == pytest.approx(1e-3 / 101, rel=1e-15)
    assert rates[100] == 1e-3
    steps = [b - a for a, b in itertools.pairwise(rates)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-9)


def test_cosine_worked_values():
    """Half way between warm-up and end the rate is half way between peak and floor; at the end it is the floor."""
    assert learning_rate(NANOGPT, 1050, 2000) == pytest.approx((1e-3 + 1e-4) / 2, rel=1e-12)
    a_third = 100 + 1900 / 3
    expected = 1e-4 + 9e-4 * 0.5 * (1 + math.cos(math.pi * (round(a_third) - 100) / 1900))
    assert learning_rate(NANOGPT, round(a_third), 2000) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(NANOGPT, 2000, 2000) == pytest.approx(1e-4, rel=1e-12)
    assert learning_rate(NANOGPT, 2500, 2000) == pytest.approx(1e-4, rel=1e-12)
    assert 1e-4 < learning_rate(NANOGPT, 1999, 2000) < 1.00001e-4


def test_plateau_worked_values():
    """Three steps up, the peak held, then 2.0, 1.625, 1.25, 0.875 in the last four steps."""
    rates = [learning_rate(PLATEAU, step, 12) for step in range(13)]
    assert rates == [0.5, 1.0, 1.5, *[2.0] * 6, 1.625, 1.25, 0.875, 0.5]


def test_plateau_without_decay_holds_to_the_end():
    schedule = Plateau(peak=1.0, floor=0.1, warmup_steps=0, decay_steps=0)
    assert {learning_rate(schedule, step, 7) for step in range(7)} == {1.0}


def test_cosine_without_warm_up_begins_at_the_peak():
    assert learning_rate(Cosine(peak=0.3, floor=0.0, warmup_steps=0), 0, 5) == 0.3


@given(
    kind=st.sampled_from([Cosine, Plateau]),
    warmup=st.integers(0, 30),
    decay=st.integers(0, 30),
    n_steps=st.integers(1, 40),
    step=st.integers(0, 60),
)
def test_property_rates_lie_between_zero_and_peak_and_fall_after_warm_up(kind, warmup, decay, n_steps, step):
    more = {"decay_steps": decay} if kind is Plateau else {}
    schedule = kind(peak=0.8, floor=0.2, warmup_steps=warmup, **more)
    rate, after = learning_rate(schedule, step, n_steps), learning_rate(schedule, step + 1, n_steps)
    assert 0 < rate <= 0.8 + 1e-15
    if step >= warmup:
        assert 0.2 - 1e-15 <= after <= rate + 1e-15
