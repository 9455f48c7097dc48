"""What a text without a prompt begins with, for a model of a run: something that training has really seen.

An end token stands in most vocabularies, but a text in one piece closes none before its own end, which may lie in the
held-out part: a row that was never trained is no beginning. The next file to read is ../load.py, which asks.
"""

from typing import Any

import numpy as np

from unembed.checkpoints.run.description import RUN_FILE
from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.shards import TokenShards
from unembed.errors import CheckpointError, CorpusError, InputError
from unembed.tokenizers.base import Tokenizer

START_IDS = "start_ids"
DATA = "data"
# Enough to meet whatever separates texts; all of a large corpus would take longer than the sample itself.
MOST_READ = 1 << 20
# What stands before a text in a running file: a line break, a space, the end of the sentence before.
BEFORE_A_TEXT = ("\n", " ", ".")


def start_ids(run: RunFolder, tokenizer: Tokenizer) -> tuple[int, ...] | None:
    """The ids that run.json records under `start_ids`; without a record what the training data itself tells.

    There it is the first of these that occurs in the beginning of the training ids: start token, end token, line break,
    space, full stop; if none does, the first training id. None when the run has no data any more.
    Raises: CheckpointError when what is recorded is no list of ids.
    """
    recorded = run.description.get(START_IDS)
    if recorded is not None:
        return _checked(recorded, tokenizer, f"{run.path / RUN_FILE}")
    try:
        ids = TokenShards.open(run.path / DATA, verifies=False).train.ids[:MOST_READ]
    except CorpusError:
        return None  # a run may be copied without its data, and still be sampled
    for candidate in _candidates(tokenizer):
        if np.isin(candidate, ids):
            return (candidate,)
    return (int(ids[0]),) if len(ids) else None


def _candidates(tokenizer: Tokenizer) -> list[int]:
    found = [mark for mark in (tokenizer.start_id, tokenizer.end_id) if mark is not None]
    for text in BEFORE_A_TEXT:
        try:
            ids = tokenizer.encode(text).ids
        except InputError:
            continue  # not in this alphabet
        if len(ids) == 1 and ids[0] != tokenizer.unknown_id:
            found.append(int(ids[0]))
    return found


def _checked(recorded: Any, tokenizer: Tokenizer, where: str) -> tuple[int, ...]:
    is_list = isinstance(recorded, list) and recorded and all(type(i) is int for i in recorded)
    if not is_list or not all(0 <= i < tokenizer.vocab_size for i in recorded):
        raise CheckpointError(
            f"{where}: {START_IDS} is {str(recorded)[:40]}, expected a list of ids from 0 to {tokenizer.vocab_size - 1}: "
            "what a text without a prompt begins with. Was it edited?"
        )
    return tuple(recorded)
