"""The ids that an analysis of a MODEL reads: those of the files beside it or, for a run, those that it was trained with.

The last tenth is held out, as everywhere. Before it: run.py. The next file to read is over_training.py.
"""

from collections.abc import Sequence
from pathlib import Path

from unembed.checkpoints.run.folder import RunFolder
from unembed.corpora.reading import Reading
from unembed.corpora.splits import encode_splits
from unembed.corpora.text import TextReader
from unembed.corpora.windows import TokenSplit
from unembed.errors import InputError, UsageError
from unembed.model.transformer import Transformer
from unembed.views.run import DATA, RunView


def splits_of(
    place: str | Path, model: Transformer, data: Sequence[str | Path], *, column: str | None = None
) -> tuple[TokenSplit, TokenSplit]:
    """Gives what may be learnt from and what is held out, for the MODEL that was opened from `place`.

    Raises: UsageError when there are no files and the model is no run with its data; InputError when there are files and
    no tokenizer that could read them; CorpusError as reading does.
    """
    if data:
        if model.tokenizer is None:
            raise InputError(
                f"{place}: this model has no tokenizer, so a text has no ids. Name one with --tokenizer FILE"
            )
        return encode_splits(TextReader(list(data), Reading(column=column)), model.tokenizer)
    folder = run_of(place)
    if folder is None or not (folder / DATA).is_dir():
        what = "a run without its data" if folder is not None else "no run, so it brings no text of its own"
        raise UsageError(f"{place} is {what}; name a file or folder of text after it")
    shards = RunView.open(folder).shards
    return shards.train, shards.val


def run_of(place: str | Path) -> Path | None:
    """The run folder that a MODEL is, or is a checkpoint of; None where it is neither."""
    path = Path(place)
    above = path.resolve().parent.parent
    return next((one for one in (path, above) if one.is_dir() and RunFolder.exists(one)), None)
