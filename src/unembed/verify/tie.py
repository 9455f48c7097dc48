"""Claim: the model is tied, or untied, as it says: in the module, in what it computes, and in the file."""

import torch

from unembed.model.transformer import Transformer
from unembed.tying.effective import effective_tables
from unembed.verify.claim import Claim, Subject, failed, judged

NAME = "tie"
# What rounding leaves of orthonormal columns, through a T and its inverse: numbers of 1e-7 and 1e-16, times their spread.
PSEUDO_INVERSE = {torch.float32: 1e-3, torch.float64: 1e-9}


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Nudges one entry of the table that embeds and looks whether the head's scores move; then counts tables in the file.

    A pseudo-inverse head promises more than a shared table: that its columns are orthonormal, which is looked at as well.
    """
    model, says = subject.model, subject.model.spec.ties_embeddings
    has_own = model.head.table is not None
    if says == has_own:
        return failed(
            NAME, f"the spec says {_word(says)}, but the head has {'a' if has_own else 'no'} table of its own"
        )
    table = model.embed.table
    # no constant vector: a LayerNorm makes nothing of it
    resid = torch.linspace(-1, 2, model.spec.embedding.d_model, dtype=table.dtype)[None, None] ** 3
    before = model.unembed(resid)
    if not before.isfinite().all():
        return failed(NAME, "the head's scores are not finite, so nothing can be seen in them")
    kept = table[0].clone()
    try:
        table[0] += 1.0 + table[0].abs()
        moved = not torch.equal(before, model.unembed(resid))
    finally:
        table[0] = kept  # to the last bit: the model is as it was
    if moved != says:
        return failed(
            NAME,
            f"the spec says {_word(says)}, but writing into the embedding {'moves' if moved else 'leaves'} the head",
        )
    if subject.checkpoint is not None:
        names = subject.checkpoint.weight_names()
        if ("head.table" in names) == says:
            return failed(
                NAME, f"the model is {_word(says)}, but its file holds {'two tables' if says else 'one table'}"
            )
    worst, tolerance = 0.0, 0.0
    if model.head.factor is not None:
        worst, tolerance = _apart_from_inverse(model), PSEUDO_INVERSE[torch.promote_types(table.dtype, torch.float32)]
    told = {"mapped": "shared through a map", "pseudo_inverse": f"shared by pseudo-inverse, off by {worst:.1g}"}
    word = told.get(str(model.spec.head.__struct_config__.tag), _word(says))
    detail = f"{word}: one entry written into the table {'moves' if says else 'leaves'} the head"
    return judged(
        NAME, worst, tolerance, detail if model.load_report is None else f"{detail}; {model.load_report.tie_reason}"
    )


def _apart_from_inverse(model: Transformer) -> float:
    """The largest entry of (Z T)^T Z T^-1 - 1: zero where what scores is the pseudo-inverse of what embeds."""
    embeds, scores = (one.double() for one in effective_tables(model))
    return float(
        (scores.T @ embeds - torch.eye(embeds.shape[1], dtype=torch.float64, device=embeds.device)).abs().max()
    )


def _word(tied: bool) -> str:
    return "tied" if tied else "untied"
