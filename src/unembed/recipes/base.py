"""What a recipe is: a function from data and settings to everything that a run needs.

The next file to read is tour.py, the smallest one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unembed.corpora.shards import TokenShards
from unembed.corpora.text import Reading
from unembed.tokenizers.base import Tokenizer
from unembed.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that is decided but not begun.

    `write_shards` writes the token ids into a folder and opens it; `data` describes their source for run.json; `floors`
    are losses in nats that no model can go below, where they are known; `notes` are sentences for the user.
    """

    config: RunConfig
    tokenizer: Tokenizer
    write_shards: Callable[[Path], TokenShards]
    data: Mapping[str, Any]
    floors: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named way to make a run; `needs_data` is False where the recipe brings its own."""

    name: str
    summary: str
    needs_data: bool
    prepare: Callable[[Sequence[str], Reading, Mapping[str, Any]], Prepared]
