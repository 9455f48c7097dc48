"""Packed float32 matrices on every processor that has the kernel, also where a model would leave them to MKL."""

import pytest

from unembed.generation.weights import copies
from unembed.generation.weights.packing import has_bags


@pytest.fixture(autouse=True)
def packs_float32(monkeypatch):
    monkeypatch.setattr(copies, "gains_float32", has_bags)
