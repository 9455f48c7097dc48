"""From pieces of text to shards of ids, in one pass and bounded memory, with the ids that the whole text would have.

A long document is cut only where no tokenizer here can notice (../tokenizers/stretches.py). Before it:
text.py. Next: shards.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unembed.corpora.reading import ReadReport
from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.corpora.text import Piece, TextReader
from unembed.errors import CorpusError
from unembed.tokenizers.base import Ids, Tokenizer
from unembed.tokenizers.files import fingerprint
from unembed.tokenizers.stretches import stretches

# The share of a text, in characters from its start, that is learnt from; the rest is held out.
TRAIN_FRACTION = 0.9
JOB_CHARACTERS = 1 << 15
# An encoding in flight takes some hundred bytes a token, so this bounds the memory.
BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A stretch of text to encode by itself: its part, and whether its document began before or ends here."""

    text: str
    part: int
    is_continuation: bool
    ends_document: bool


def encode_corpus(
    reader: TextReader,
    tokenizer: Tokenizer,
    folder: str | Path,
    *,
    train_fraction: float = TRAIN_FRACTION,
    n_characters: int | None = None,
    report: ReadReport | None = None,
) -> TokenShards:
    """Writes the shards `train` and `val` of a corpus: the first int(train_fraction * characters), and the rest.

    The texts' characters are counted in a pass before, unless their number is given. Each document is closed by the
    tokenizer's end token where it has one; `report` is filled with what the pass met.
    Raises: CorpusError if there are several documents and no end token to keep them apart, or the folder exists.
    """
    counted = ReadReport()
    if n_characters is None or tokenizer.end_id is None:
        for _ in reader.pieces(counted):
            pass
        n_characters = counted.n_characters
    if tokenizer.end_id is None and counted.n_documents > 1:
        raise CorpusError(
            f"{counted.n_documents} documents, but the {tokenizer.kind} tokenizer has no end token to keep them apart. "
            "Build it with one, or join the documents in one file"
        )
    boundary = int(train_fraction * n_characters)
    names = ("train", "val")
    with ShardWriter(folder, vocab_size=tokenizer.vocab_size, tokenizer=fingerprint(tokenizer)) as writer:
        for job, ids in encode_jobs(tokenizer, jobs(reader.pieces(report), boundaries=(boundary,))):
            writer.append(
                names[job.part],
                ids,
                n_characters=len(job.text),
                n_bytes=len(job.text.encode()),
                n_documents=int(job.ends_document),
            )
        for name in names:
            writer.append(name, np.zeros(0, dtype=np.int64))
    return TokenShards.open(folder, verifies=False)


def encode_jobs(tokenizer: Tokenizer, stream: Iterable[Job]) -> Iterator[tuple[Job, Ids]]:
    """Encodes jobs in order, many at a time so that a tokenizer with threads can use them; appends the end tokens."""
    end = np.array([] if tokenizer.end_id is None else [tokenizer.end_id], dtype=np.int64)
    for batch in _batches(stream):
        encoded = tokenizer.encode_many([job.text for job in batch], [job.is_continuation for job in batch])
        for job, ids in zip(batch, encoded, strict=True):
            yield job, np.concatenate([ids, end]) if job.ends_document else ids


def jobs(pieces: Iterable[Piece], *, boundaries: Sequence[int] = ()) -> Iterator[Job]:
    """Cuts the documents into jobs; at each boundary, in characters from the start of the stream, a new part begins.

    What stands after a boundary inside a document is encoded as a text of its own, as if the file had been cut there.
    """
    part, at, buffer, continues = 0, 0, "", False
    for piece in pieces:
        text = piece.text
        while part < len(boundaries) and at + len(text) > boundaries[part]:
            head = boundaries[part] - at
            buffer, at, text = buffer + text[:head], boundaries[part], text[head:]
            for stretch in stretches(buffer, JOB_CHARACTERS):
                yield Job(stretch, part, continues, False)
                continues = True
            part, buffer, continues = part + 1, "", False
        buffer, at = buffer + text, at + len(text)
        cut = list(stretches(buffer, JOB_CHARACTERS, is_whole=piece.ends_document))
        for i, stretch in enumerate(cut):
            yield Job(stretch, part, continues, piece.ends_document and i == len(cut) - 1)
            continues = True
        buffer = buffer[sum(map(len, cut)) :]
        if piece.ends_document:
            continues = False


def _batches(stream: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    size = 0
    for job in stream:
        batch.append(job)
        size += len(job.text)
        if size >= BATCH_CHARACTERS or len(batch) >= 4096:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
