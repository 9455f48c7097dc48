"""Neighbours by cosine: never the token itself, nothing undefined on top, as many as asked for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unembed.errors import UsageError
from unembed.geometry.neighbours import cosine_neighbours, unit_rows

VECTORS = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.1], [2.0, 0.0], [1.0, 1.0]])


def test_worked_example_self_is_left_out_and_zeros_come_last():
    found = cosine_neighbours(VECTORS, 0, 10)
    assert [row for row, _ in found] == [3, 4, 2, 1]
    assert found[0][1] == 1.0
    assert found[1][1] == pytest.approx(math.sqrt(0.5))
    assert math.isnan(found[-1][1])


def test_a_row_of_zeros_asked_about_has_only_undefined_neighbours_in_order_of_rows():
    found = cosine_neighbours(VECTORS, 1, 3)
    assert [row for row, _ in found] == [0, 2, 3]
    assert all(math.isnan(cosine) for _, cosine in found)


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 1), (4, 4), (5, 4), (10**9, 4)])
def test_as_many_as_asked_for_or_all_that_are_left(n, expected):
    assert len(cosine_neighbours(VECTORS, 0, n)) == expected


def test_excluded_rows_do_not_come_back():
    assert [row for row, _ in cosine_neighbours(VECTORS, 0, 10, exclude=(3, 1, 3))] == [4, 2]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 12), width=st.integers(1, 6))
def test_oracle_numpy_ranking(seed, rows, width):
    table = np.random.default_rng(seed).normal(size=(rows, width))
    index = seed % rows
    expected = {
        r: float(table[r] @ table[index] / (np.linalg.norm(table[r]) * np.linalg.norm(table[index])))
        for r in range(rows)
        if r != index
    }
    found = cosine_neighbours(torch.from_numpy(table), index, rows)
    assert {row for row, _ in found} == set(expected)
    for row, cosine in found:
        assert cosine == pytest.approx(expected[row], abs=1e-12)
    assert [cosine for _, cosine in found] == sorted((cosine for _, cosine in found), reverse=True)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        *((torch.float64, scale) for scale in (1e-300, 1.0, 1e300)),
        *((dtype, scale) for dtype in (torch.float32, torch.bfloat16) for scale in (1e-30, 1.0, 1e30)),
    ],
)
def test_a_vector_is_its_own_twin_at_any_size(dtype, scale):
    twins = torch.tensor([[scale, scale / 3], [scale, scale / 3], [1.0, -1.0]], dtype=dtype)
    (row, cosine), _ = cosine_neighbours(twins, 0, 2)
    assert row == 1
    assert cosine == pytest.approx(1, abs=1e-6)


def test_what_is_not_finite_is_undefined_and_last():
    table = torch.tensor([[1.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [-1.0, 0.0]])
    found = cosine_neighbours(table, 0, 9)
    assert [row for row, _ in found] == [3, 1, 2]
    assert [math.isnan(cosine) for _, cosine in found] == [False, True, True]


def test_unit_rows_have_length_one_or_no_number():
    lengths = unit_rows(VECTORS).norm(dim=-1)
    assert lengths[[0, 2, 3, 4]].tolist() == pytest.approx([1] * 4)
    assert lengths[1].isnan()


@pytest.mark.parametrize(
    ("index", "n", "message"),
    [
        (5, 1, "row 5 does not exist; the table has rows 0 to 4"),
        (-1, 1, "row -1 does not exist"),
        (0, -1, "n is -1; it must be 0 or more"),
    ],
)
def test_message_names_value_and_rule(index, n, message):
    with pytest.raises(UsageError, match=message):
        cosine_neighbours(VECTORS, index, n)
