"""Each layer's reading held against a held-out text, as a result: the reliability curve, the errors, and what to make of them.

Before it: layer_scores.py, where the numbers come from. The next file to read is truth.py, where the truth is known exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unembed.errors import UsageError
from unembed.lenses.layer_scores import Batch, LayerScores, score_layers
from unembed.lenses.translators import Translators
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table

MOST_CURVES = 5  # more lines than this hide each other; the table has them all
FEWEST_GUESSES = 10  # a bin of fewer says little, and a curve through it leaps; the table has it


def calibration(model: Transformer, batches: Sequence[Batch], *, tuned: Translators | None = None) -> Result:
    """Scores every layer's reading by the logit lens and, where there is one, by a tuned lens on the same positions.

    Table `layers`: `lens` (`logit`, `tuned`), `layer`, `kl_to_final_nats`, `loss_nats` of the token that came,
    `right_share` and `confidence_share` of the best guess, `calibration_error` between the two, and `agreement_share`
    with the last layer's best guess. Table `reliability`: a row for each bin that is not empty. Table `curves`: those that
    are drawn, with the diagonal `ideal`. Values: `held_out_tokens`; with a tuned lens also what `gains` gives.
    Raises: UsageError for a model that sees what it is asked for, and as `score_layers` does.
    """
    if not model.spec.is_causal:
        raise UsageError(
            "calibration: this model sees both ways, so the token that it is asked for stands before its eyes; give a "
            "model that reads from left to right"
        )
    scores = {"logit": score_layers(model, batches)}
    if tuned is not None:
        scores["tuned"] = score_layers(model, batches, translate=tuned)
    layers = layer_table(scores)
    curves = _curves(scores)
    return Result(
        name="calibration",
        tables={"layers": layers, "curves": curves, "reliability": _reliability(scores)},
        values={"held_out_tokens": scores["logit"].n_tokens, **({} if tuned is None else gains(scores))},
        notes=("lens_is_a_clue", "calibration_is_of_this_text"),
        pictures=(
            Picture(
                key="reliability",
                kind="lines",
                table="curves",
                x="confidence_share",
                y="right_share",
                color="layer",
                facet="lens" if tuned is not None else None,
                tooltip=("lens", "layer", "confidence_share", "right_share", "items"),
            ),
            *(
                Picture(key=key, kind="lines", table="layers", x="layer", y=column, color="lens")
                for key, column in (("calibration_error", "calibration_error"), ("kl_by_layer", "kl_to_final_nats"))
            ),
        ),
    )


def layer_table(scores: Mapping[str, LayerScores]) -> Table:
    """One row a lens and layer."""
    columns: dict[str, list[Any]] = {"lens": [], "layer": []}
    for lens, found in scores.items():
        columns["lens"] += [lens] * len(found.layers)
        columns["layer"] += found.layers
        for name in ("kl_to_final_nats", "loss_nats", "right_share", "confidence_share"):
            columns.setdefault(name, []).extend(getattr(found, name).tolist())
        columns.setdefault("calibration_error", []).extend(bins.calibration_error for bins in found.bins)
        columns.setdefault("agreement_share", []).extend(found.agreement_share.tolist())
    return Table(columns=columns, units={"kl_to_final_nats": "nats", "loss_nats": "nats"})


def middle(layers: Sequence[float]) -> list[int]:
    """The places of the middle layers: the second and third quarter of those between the embedding and the end.

    >>> middle([0, 1, 2]), middle(list(range(13)))
    ([1], [3, 4, 5, 6, 7, 8, 9])
    """
    last = len(layers) - 1
    inner = range(-(-last // 4), last - last // 4 + 1)
    return [place for place in inner if 0 < place < last]


def gains(scores: Mapping[str, LayerScores]) -> dict[str, Any]:
    """How far the middle layers are from the final answer by either lens, and the ratio: below 1, tuning helped."""
    places = middle(scores["logit"].layers)
    logit, tuned = (
        float(scores[name].kl_to_final_nats[places].mean()) if places else None for name in ("logit", "tuned")
    )
    ratio = tuned / logit if logit and tuned is not None else None
    return {"middle_kl_logit_nats": logit, "middle_kl_tuned_nats": tuned, "middle_kl_ratio": ratio}


def _reliability(scores: Mapping[str, LayerScores]) -> Table:
    columns: dict[str, list[Any]] = {
        name: [] for name in ("lens", "layer", "bin", "confidence_share", "right_share", "items")
    }
    for lens, found in scores.items():
        for layer, bins in zip(found.layers, found.bins, strict=True):
            for place, n in enumerate(bins.items.tolist()):
                if n:
                    row = (lens, layer, place, float(bins.confidence[place]) / n, int(bins.right[place]) / n, n)
                    for column, value in zip(columns.values(), row, strict=True):
                        column.append(value)
    return Table(columns=columns)


def _curves(scores: Mapping[str, LayerScores]) -> Table:
    """Some layers' rows of `reliability`, evenly chosen with the last, each layer's bins in order; and the diagonal."""
    layers = scores["logit"].layers
    last = len(layers) - 1
    n = min(MOST_CURVES, len(layers))
    chosen = {layers[round(last * i / max(1, n - 1))] for i in range(n)}
    columns: dict[str, list[Any]] = {}
    fewest = min(FEWEST_GUESSES, scores["logit"].n_tokens / 20)
    reliability = zip(_reliability(scores).rows(), _reliability(scores)["items"].tolist(), strict=True)
    rows = [row for row, n in reliability if row["layer"] in chosen and n >= fewest]
    for lens in scores:
        for at in (0.0, 1.0):
            ideal: dict[str, Any] = {
                "lens": lens,
                "layer": "ideal",
                "confidence_share": at,
                "right_share": at,
                "items": None,
            }
            rows.append({"bin": None, **ideal})
    for row in rows:
        for name in ("lens", "layer", "confidence_share", "right_share", "items"):
            columns.setdefault(name, []).append(row[name])
    return Table(columns=columns)
