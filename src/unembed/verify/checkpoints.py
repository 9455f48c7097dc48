"""Claim: every checkpoint that a run keeps is what was saved, by the sums in its manifest.

The other claims are tried on one checkpoint; where the newest is damaged they are about an older one, which this claim says.
"""

from unembed.checkpoints.load import CONVERTED_KEY
from unembed.verify.claim import Claim, Subject, failed, judged, skipped
from unembed.visible import counted

NAME = "checkpoints"


def claim(subject: Subject) -> Claim:
    """Reads each checkpoint in full and holds it against its manifest; the measure is how many differ."""
    run = subject.run
    if run is None:
        return skipped(NAME, "this model is no run, so it keeps no checkpoints")
    if damaged := run.damaged():
        used = "" if subject.checkpoint is None else f"; the claims are about {subject.checkpoint.path.name}"
        return failed(NAME, f"{'; '.join(damaged)}{used}")
    if CONVERTED_KEY in run.description:
        kept = "no training's: the weights that convert wrote here"
    else:
        kept = f"{counted(len(run.checkpoints()), 'checkpoint')} kept"
    return judged(NAME, 0.0, 0.0, f"{kept}, each file against the SHA-256 in its manifest")
