"""What stands in a family's list of presets: how to make the spec, where its numbers come from, and what is odd.

One row a preset, so that each family's file reads as data. The next file to read is gpt.py, the first family.
"""

from collections.abc import Callable
from typing import NamedTuple

from unembed.model.spec import TransformerSpec


class Row(NamedTuple):
    """One preset before it is made: nothing is built until somebody asks for the name."""

    make: Callable[[], TransformerSpec]
    source: str
    note: str = ""
