"""Claim: the gradient of the token table is the sum of what its two uses teach it, and of nothing else."""

from unembed.model import counts
from unembed.tying.gradients import split_gradient
from unembed.verify.claim import Claim, Subject, judged, skipped

NAME = "gradient split"
# Rounding of sums over positions and rows in float32, and in float64; relative to the parts' norms.
TOLERANCE, TOLERANCE_FLOAT64 = 1e-5, 1e-12
LARGEST = 500_000_000


def claim(subject: Subject) -> Claim:
    """Splits the gradient of one text of random ids and compares the sum with PyTorch's own."""
    model = subject.model
    if counts.count(model.spec).parameters > LARGEST:
        return skipped(
            NAME, f"a backward pass of more than {LARGEST:,} parameters; try it in Python: unembed.tying.split_gradient"
        )
    ids = subject.probe(1)
    targets = ids.roll(-1, dims=1)
    values = split_gradient(model, ids, targets).values
    tables = "one table" if values["tied"] else "two tables"
    tolerance = TOLERANCE_FLOAT64 if str(model.embed.table.dtype) == "torch.float64" else TOLERANCE
    detail = f"lookup and projection parts of {tables} over {ids.shape[1]} random ids, relative to their norms"
    return judged(NAME, float(values["sum_error"]), tolerance, detail)
