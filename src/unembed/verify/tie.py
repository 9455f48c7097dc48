"""Claim: the model is tied, or untied, as it says: in the module, in what it computes, and in the file."""

import torch

from unembed.verify.claim import Claim, Subject, failed, judged

NAME = "tie"


@torch.no_grad()
def claim(subject: Subject) -> Claim:
    """Nudges one entry of the table that embeds and looks whether the head's scores move; then counts tables in the file."""
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
    detail = f"{_word(says)}: one entry written into the table {'moves' if says else 'leaves'} the head"
    return judged(NAME, 0.0, 0.0, detail if model.load_report is None else f"{detail}; {model.load_report.tie_reason}")


def _word(tied: bool) -> str:
    return "tied" if tied else "untied"
