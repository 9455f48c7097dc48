"""What is claimed of a model, and what trying it gave: proved, failed, or skipped with the reason.

A claim compares two ways of getting the same numbers, so it needs no reference that could be wrong with it. Each says
what was compared, the worst difference, and the tolerance with its reason. The next files to read are the claims
themselves, one a file, in the order of __init__.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from unembed.checkpoints.foreign.translate import Source
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import Checkpoint
from unembed.model.transformer import Transformer

Status = Literal["proved", "failed", "skipped"]

# float32 keeps 24 bits; two orders of summation over a few hundred terms through some dozen layers differ by far less
FLOAT32_TOLERANCE = 2e-5
N_PROBE = 64


class Claim(NamedTuple):
    """One claim after it was tried. `detail` names what `worst` measures; both numbers are None where nothing was measured."""

    name: str
    status: Status
    worst: float | None
    tolerance: float | None
    detail: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model under examination, and where it came from: another program's file, a run, or neither."""

    name: str
    model: Transformer
    source: Source | None = None
    run: RunFolder | None = None
    checkpoint: Checkpoint | None = None

    @property
    def n_known(self) -> int:
        """How many ids mean something: the tokenizer's, or all rows of the table."""
        rows = self.model.spec.embedding.vocab_size
        return rows if self.model.tokenizer is None else min(rows, self.model.tokenizer.vocab_size)

    def probe(self, n_sequences: int, n_tokens: int = N_PROBE) -> Int[Tensor, "batch pos"]:
        """Random ids that the model can take, the same each time; no longer than its context."""
        length = min(n_tokens, self.model.spec.context_length)
        generator = torch.Generator().manual_seed(20_240_601)
        return torch.randint(0, self.n_known, (n_sequences, length), generator=generator)


ClaimFunction = Callable[[Subject], Claim]


def judged(name: str, worst: float, tolerance: float, detail: str) -> Claim:
    """Proved where the worst difference is within the tolerance; one that is not a number proves nothing."""
    is_proved = worst <= tolerance and math.isfinite(
        worst
    )  # the tolerance grows with the logits, which may be infinite
    return Claim(name, "proved" if is_proved else "failed", worst, tolerance, detail)


def failed(name: str, detail: str) -> Claim:
    """A claim that something else than a number contradicts."""
    return Claim(name, "failed", None, None, detail)


def skipped(name: str, reason: str) -> Claim:
    """A claim that cannot be tried on this model, and why."""
    return Claim(name, "skipped", None, None, reason)


def tolerance_for(logits: Tensor) -> float:
    """What float32 (or a half-precision type) may differ by, growing with the largest logit; 1e-10 of it in float64."""
    scale = max(1.0, float(logits.abs().max()))
    relative = {torch.float64: 1e-10, torch.float32: FLOAT32_TOLERANCE}.get(logits.dtype, 2e-2)
    return relative * scale


def worst_of(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; infinite for other shapes, and where either is not a number or not finite."""
    if ours.shape != theirs.shape:
        return float("inf")
    if not ours.numel():
        return 0.0
    # two that are broken alike agree in nothing that could be proved
    return float((ours.double() - theirs.double()).abs().nan_to_num(nan=float("inf")).max())
