"""Patching: what a step of a corrupted run must know for the answer to come back.

Two texts of one length differ in a word. The corrupted one is run again and again, each time with the value of one step at
one place replaced by what the clean text has there; how far the score moves back to the clean one says what that place
carries. Replacing everything is the clean run and replacing nothing the corrupted one: both are tried on each call. Source:
Vig et al. 2020, arXiv:2004.12265; Meng et al. 2022, arXiv:2202.05262, "causal tracing". The runs are made in
patched_runs.py. The next file to read is stream.py.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unembed.errors import TapError, UsageError
from unembed.lenses.asking import best_id, is_too_long, position_of, refuse_broken, text_of
from unembed.lenses.patched_runs import AFTER_THE_STREAM, BY_QUERY, Place, Question, scores_of
from unembed.model.taps import Recorder, check_names, names_matching, no_tap, tap_names
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table

METRICS = ("logit_difference", "logit", "probability")
BY = ("position", "head")
WITHOUT_POSITIONS = {
    "embed.table": "is a table of the model's, the same in both runs",
    "unembed.table": "is a table of the model's, the same in both runs",
    "pos_embed": "depends on positions alone, so it is the same in both runs",
}
WITH_HEADS = ("q", "k", "v", "q_rot", "k_rot", "z", *BY_QUERY)


@torch.no_grad()
def patch(
    model: Transformer,
    clean: Sequence[int],
    corrupted: Sequence[int],
    *,
    tap: str = "resid_pre",
    by: str = "position",
    position: int | None = None,
    target: int | None = None,
    against: int | None = None,
    metric: str = "logit_difference",
) -> Result:
    """Patches clean values of a step into the corrupted run: one place a row, all layers by all positions, or by all heads.

    `tap` is a step's local name, tried in every layer (`resid_pre`, `attn_out`, `mlp_out`, `z`, ...; `blocks.*.z` is `z`), or a
    full one (`blocks.3.z`, `embed`, `final_norm`). By `head` a head is patched at all positions at once. The score is read at
    `position`, the last unless given. `metric`: `logit_difference`, the lead of `target` over `against`; `logit` or
    `probability` of the target alone. Unless given, target is the clean run's best id and against the corrupted run's.

    Table `patched`: layer, position (or head), `score`, and `recovered`, 0 where nothing came back and 1 where all did (null
    where both runs score alike). Table `layers`: the same with every position of a layer patched. Values: `clean` and
    `corrupted`, the two runs' scores, and `check_error`, how far patching everything lies from the first and patching
    nothing from the second. Raises: UsageError, also for a step that is not there; InputError for a model that
    scores no number.
    """
    _check(model, clean, corrupted, tap, by, metric, against)
    steps, local = _steps(model, tap), tap.rpartition(".")[2]
    place = position_of("patch", clean, position)
    asked = Question(place, "explicit" if local in BY_QUERY else "fused", local in AFTER_THE_STREAM)
    ids = torch.tensor([list(clean), list(corrupted)], device=model.embed.table.device)
    recorder = Recorder([*(name for name, _ in steps), "embed"])
    both = [asked.logits(model, ids[:1], recorder), asked.logits(model, ids[1:], no_tap)]
    for logits in both:
        refuse_broken("patch", logits)
    rows = _rows(model, both, target, against, metric)
    n_known = model.spec.embedding.vocab_size if model.tokenizer is None else model.tokenizer.vocab_size
    asked = Question(place, asked.path, asked.is_whole, metric, rows, n_known)
    seen, run = recorder.values, ids[1:]
    first, last = (float(asked.score(logits)[0]) for logits in both)
    everything, nothing = scores_of(model, run, [Place("embed", None)], seen, asked)[0]
    places = [
        Place(name, layer, number if by == "position" else None, number if by == "head" else None)
        for name, layer in steps
        for number in range(seen[name].shape[_axis(local, by)])
    ]
    layers = [Place(name, layer) for name, layer in steps]
    texts = [[text_of(model, one) for one in row] for row in (clean, corrupted)]
    scores = [scores_of(model, run, some, seen, asked) for some in (places, layers)]
    tables = {
        "patched": _table(places, scores[0], first - last, by, texts),
        "layers": _table(layers, scores[1], first - last, None, texts),
    }
    values = {
        "tap": tap,
        "metric": metric,
        "position": place,
        "target": text_of(model, rows[0]),
        "target_id": rows[0],
        "against": text_of(model, rows[1]) if rows[1:] else None,
        "against_id": rows[1] if rows[1:] else None,
        "clean": first,
        "corrupted": last,
        "check_error": max(abs(nothing - last), abs(everything - first)),
    }
    notes = ("patching_is_of_this_pair", *is_too_long(model, clean))
    drawn = () if steps[0][1] is None else (_picture(by),)
    return Result(name="patching", tables=tables, values=values, notes=notes, pictures=drawn)


def _check(
    model: Transformer,
    clean: Sequence[int],
    corrupted: Sequence[int],
    tap: str,
    by: str,
    metric: str,
    against: int | None,
) -> None:
    for name, value, known in (("by", by, BY), ("metric", metric, METRICS)):
        if value not in known:
            raise UsageError(f"patch: {name} is {value!r}; it must be one of {', '.join(known)}")
    if against is not None and metric != "logit_difference":
        raise UsageError(f"patch: against belongs to the metric logit_difference; {metric} is of the target alone")
    if len(clean) != len(corrupted):
        shown = [" | ".join(text_of(model, one) for one in row[:12]) for row in (clean, corrupted)]
        raise UsageError(
            f"patch: the clean text has {len(clean)} tokens, the corrupted one {len(corrupted)}; a position of one must be "
            f"that of the other.\n  clean:     {shown[0]}\n  corrupted: {shown[1]}\n"
            "Give two texts of one length in tokens."
        )
    if list(clean) == list(corrupted):
        raise UsageError(
            "patch: both texts are the same tokens, so there is nothing to bring back; change a word in one"
        )
    local = tap.rpartition(".")[2] if tap.startswith("blocks.") else tap
    if local in WITHOUT_POSITIONS:
        raise UsageError(f"tap {tap!r}: {WITHOUT_POSITIONS[local]}; patch another step, such as resid_pre")
    if by == "head" and local not in WITH_HEADS:
        raise UsageError(f"tap {tap!r}: has no heads; by head, patch one of {', '.join(WITH_HEADS)}")


def _steps(model: Transformer, tap: str) -> list[tuple[str, int | None]]:
    """Every step that a name stands for, with its layer. Raises: UsageError, in the words of `check_names`."""
    is_full = tap.startswith("blocks.") or tap in tap_names(model.spec)
    asked = tap if is_full else f"blocks.*.{tap}"
    try:
        check_names(model.spec, [asked])
    except TapError as error:  # elsewhere a program's mistake; here a name that a person wrote
        raise UsageError(str(error)) from error
    found = names_matching(model.spec, asked)
    return [(name, int(name.split(".")[1]) if name.startswith("blocks.") else None) for name in found]


def _rows(
    model: Transformer, both: Sequence[Tensor], target: int | None, against: int | None, metric: str
) -> tuple[int, ...]:
    """The ids that are scored. Raises: UsageError where a difference would be that of an id with itself."""
    best = [best_id(model, logits[0]) for logits in both]
    first = best[0] if target is None else target
    if metric != "logit_difference":
        return (first,)
    other = best[1] if against is None else against
    if first == other:
        raise UsageError(
            f"patch: target and against are both {text_of(model, first)!r}"
            f"{'' if target is not None and against is not None else ', the best token of both runs'}; name two, or choose "
            "the metric probability"
        )
    return (first, other)


def _axis(local: str, by: str) -> int:
    is_by_query = local in BY_QUERY
    return (2 if is_by_query else 1) if by == "position" else (1 if is_by_query else 2)


def _table(
    places: Sequence[Place],
    scores: Sequence[tuple[float, float]],
    gap: float,
    by: str | None,
    texts: list[list[str]],
) -> Table:
    columns: dict[str, Any] = {"tap": [place.name for place in places], "layer": [place.layer for place in places]}
    if by == "position":
        at = [place.position or 0 for place in places]
        columns |= {"position": at, "token": [texts[0][p] for p in at], "corrupted_token": [texts[1][p] for p in at]}
    elif by == "head":
        columns["head"] = [place.head for place in places]
    columns["score"] = [score for score, _ in scores]
    columns["recovered"] = [(score - nothing) / gap if gap else None for score, nothing in scores]
    return Table(columns=columns)


def _picture(by: str) -> Picture:
    is_by_head = by == "head"
    return Picture(
        key="patching",
        kind="grid",
        table="patched",
        x=by,
        x_text=None if is_by_head else "token",
        y="layer",
        color="recovered",
        text="recovered",
        tooltip=("score", "recovered") if is_by_head else ("token", "corrupted_token", "score", "recovered"),
    )
