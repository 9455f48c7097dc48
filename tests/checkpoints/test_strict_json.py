"""What goes into a state.json comes out of it, numbers that are not finite included."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unembed.checkpoints.formats.strict_json import decode, encode

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_property_round_trip(value):
    if isinstance(value, dict) and set(value) == {"not_finite"}:
        return
    data = encode(value)
    assert decode(data) == value
    assert repr(decode(data)) == repr(value)  # -0.0 and 1 against True
    json.loads(data, parse_constant=pytest.fail)


def test_worked_example():
    data = encode({"best": math.inf, "worst": -math.inf, "last": math.nan, "data": "\udc80.txt"})
    assert b'"best": {\n  "not_finite": "inf"\n }' in data
    back = decode(data)
    assert (back["best"], back["worst"], back["data"]) == (math.inf, -math.inf, "\udc80.txt")
    assert math.isnan(back["last"])
    assert decode(encode((1, (2,)))) == [1, [2]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {1: 2}}, r"\$\.a: the key 1 is no string"),
        ({"a": [torch.tensor(1)]}, r"\$\.a\[0\]: holds a Tensor; give str, bool, int"),
        ({"a": b"x"}, r"\$\.a: holds a bytes"),
        ({"not_finite": 3}, "a mapping with the one key 'not_finite'"),
        ({"a": {1, 2}}, "holds a set"),
    ],
)
def test_what_json_would_change_is_refused(value, message):
    with pytest.raises(TypeError, match=message):
        encode(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"NaN", "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b'{"a": 1, "a": 1}', "the key 'a' is given twice"),
        (b'{"not_finite": "big"}', "not_finite is 'big'; it must be one of"),
        (b'{"not_finite": {}}', "it must be one of"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "codec can't decode"),
        (b"9" * 5000, "Exceeds the limit"),
        (b"", "Expecting value"),
        (b"1 2", "Extra data"),
    ],
)
def test_what_is_not_strict_json_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        decode(data)
