"""A text as ids in memory, its last tenth held out: what an analysis learns from or is measured on.

A run has its own shards on disk; this is for texts that somebody names beside a model. Before it: encode.py.
Next: windows.py.
"""

import numpy as np

from unembed.corpora.encode import TRAIN_FRACTION, encode_jobs, jobs
from unembed.corpora.reading import ReadReport
from unembed.corpora.text import TextReader
from unembed.corpora.windows import TokenSplit
from unembed.errors import CorpusError
from unembed.tokenizers.base import Tokenizer


def encode_splits(
    reader: TextReader, tokenizer: Tokenizer, *, train_fraction: float = TRAIN_FRACTION
) -> tuple[TokenSplit, TokenSplit]:
    """Gives the splits `train` and `val`: the first part of the characters, and the rest, as `encode_corpus` cuts them.

    Documents are closed by the tokenizer's end token where it has one. Raises: CorpusError as the reader does, and for a
    text that is too short to be divided; TokenizerError for what the tokenizer does not know.
    """
    report = ReadReport()
    for _ in reader.pieces(report):
        pass
    boundary = int(train_fraction * report.n_characters)
    ids: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    sizes = [[0, 0], [0, 0]]
    for job, part in encode_jobs(tokenizer, jobs(reader.pieces(), boundaries=(boundary,))):
        ids[job.part].append(part)
        sizes[job.part][0] += len(job.text)
        sizes[job.part][1] += len(job.text.encode())
    if not all(sum(map(len, part)) >= 2 for part in ids):
        raise CorpusError(
            f"{reader.files[0]}: {report.n_characters} characters, of which the last tenth is held out; that leaves nothing to "
            "predict in one of the two parts. Give more text"
        )
    train, val = (
        TokenSplit(name, np.concatenate(part), n_characters=size[0], n_bytes=size[1])
        for name, part, size in zip(("train", "val"), ids, sizes, strict=True)
    )
    return train, val
