"""Proofs on the user's own model: the visible list of claims, and the one way to try them.

To add a claim, write a file with `claim(subject)` and add its line here. The next file to read is claim.py.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from unembed.checkpoints.load import find, open_found
from unembed.errors import UnembedError, UsageError, did_you_mean
from unembed.verify import (
    batch,
    cache,
    checkpoints,
    counts,
    export,
    finite,
    gradient_split,
    lens_identity,
    parity,
    resume,
    tie,
    tokenizer,
)
from unembed.verify.claim import Claim, ClaimFunction, Subject, failed

CLAIMS: dict[str, ClaimFunction] = {
    counts.NAME: counts.claim,
    finite.NAME: finite.claim,
    tie.NAME: tie.claim,
    gradient_split.NAME: gradient_split.claim,
    cache.NAME: cache.claim,
    batch.NAME: batch.claim,
    lens_identity.NAME: lens_identity.claim,
    tokenizer.NAME: tokenizer.claim,
    export.NAME: export.claim,
    parity.NAME: parity.claim,
    checkpoints.NAME: checkpoints.claim,
    resume.NAME: resume.claim,
}


def subject_of(
    model: str | Path,
    *,
    tokenizer: str | Path | None = None,
    like: str | None = None,
    ignore_tensors: Sequence[str] = (),
) -> Subject:
    """Opens a MODEL for examination. Raises: as `load`."""
    found = find(model, like=like, ignore_tensors=ignore_tensors)
    return Subject(
        name=str(model),
        model=open_found(found, tokenizer=tokenizer),
        source=found.source,
        run=found.run,
        checkpoint=found.checkpoint,
    )


def verify(
    subject: Subject, names: Sequence[str] | None = None, tell: Callable[[Claim], None] = lambda claim: None
) -> list[Claim]:
    """Tries each claim (or those named) on a subject; `tell` is handed each as soon as it is known.

    A claim that an error ends has failed, with the error as its detail. Raises: UsageError for a name that is no claim's.
    """
    chosen = list(CLAIMS) if names is None else list(names)
    for name in chosen:
        if name not in CLAIMS:
            there_are = f"There are: {', '.join(CLAIMS)}."
            raise UsageError(f"{name!r} is no claim. {did_you_mean(name, CLAIMS, there_are)}")
    found = []
    for name in chosen:
        try:
            claim = CLAIMS[name](subject)
        except UnembedError as error:
            claim = failed(name, str(error))
        found.append(claim)
        tell(claim)
    return found
