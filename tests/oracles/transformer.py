"""The whole model as an oracle: every intermediate of a transformer, in float64 NumPy, one position at a time.

It answers what model/transformer.py must give at each tap. Shapes and names are those of the taps: vectors are
[batch, pos, d_model], heads [batch, pos, head, d_head], scores and patterns [batch, head, pos, key_pos]. Read
layers.py, positions.py and attention.py first; weights.py lists the arrays that a spec needs.
"""

from collections.abc import Callable

import numpy as np

from oracles.attention import attention
from oracles.layers import Array, Plain, Weights, activate, linear, mlp, norm, softcap
from oracles.positions import positions_of, sinusoid


def run(
    spec: Plain,
    weights: Weights,
    ids: list[list[int]],
    mask: list[list[bool]] | None = None,
    token_types: list[list[int]] | None = None,
) -> dict[str, Array]:
    """Runs the model that `spec` (a parsed JSON spec) describes over ids [batch][pos]; mask is true at real tokens."""
    rows = []
    for b, row in enumerate(ids):
        mask_row = [True] * len(row) if mask is None else [bool(value) for value in mask[b]]
        types_row = [0] * len(row) if token_types is None else token_types[b]
        rows.append(_run_row(spec, weights, row, mask_row, types_row))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _run_row(spec: Plain, weights: Weights, ids: list[int], mask_row: list[bool], types: list[int]) -> dict[str, Array]:
    taps, stream = embed(spec["embedding"], weights, ids, mask_row, types)
    for index, block_spec in enumerate(spec["blocks"]):
        inner, stream = block(stream, block_spec, weights, f"blocks.{index}", mask_row)
        taps.update({f"blocks.{index}.{name}": value for name, value in inner.items()})
    final = stream
    if spec["final_norm"] is not None:
        final = _each(stream, lambda x: norm(x, spec["final_norm"], weights, "final_norm"))
    taps["final_norm"] = final
    taps["logits"] = _each(final, lambda x: head(x, spec["head"], weights))
    return taps


def embed(
    spec: Plain, weights: Weights, ids: list[int], mask_row: list[bool], types: list[int]
) -> tuple[dict[str, Array], Array]:
    """The vectors that enter the first block: norm(token + position + type), each part kept by its tap's name.

    The token's part is scale * table[id]. With token dropout (ESM) it is zero for the mask token, and all tokens' parts
    are multiplied by (1 - trained share) / (1 - share of masks among this row's real tokens).
    """
    n_pos, d_model = len(ids), spec["d_model"]
    tokens = np.zeros((n_pos, d_model))
    for p, token in enumerate(ids):
        tokens[p] = weights["embed.table"][token]
        if "head.factor.below" in weights:
            tokens[p] = np.linalg.solve(symmetric(weights), tokens[p])  # T e = z
        tokens[p] = tokens[p] * (1.0 if spec["scale"] is None else spec["scale"])
    if spec["token_dropout"] is not None:
        mask_id, trained = spec["token_dropout"]["mask_id"], spec["token_dropout"]["trained_share"]
        n_masked = sum(is_real and token == mask_id for token, is_real in zip(ids, mask_row, strict=True))
        for p, token in enumerate(ids):
            # Where all real tokens are masks only padding is left, whose vectors nobody looks at.
            is_kept = token != mask_id and n_masked < sum(mask_row)
            tokens[p] = tokens[p] * (1 - trained) / (1 - n_masked / sum(mask_row)) if is_kept else 0.0
    taps, total = {"embed": tokens}, tokens.copy()
    if spec["position"] is not None:
        vectors = np.zeros((n_pos, d_model))
        for p, position in enumerate(positions_of(mask_row)):
            if spec["position"]["type"] == "learned":
                vectors[p] = weights["embed.pos_table"][position + spec["position"]["offset"]]
            else:
                vectors[p] = sinusoid(position, d_model, spec["position"]["theta"])
        taps["pos_embed"] = vectors
        total = total + vectors
    if spec["n_token_types"] is not None:
        for p, kind in enumerate(types):
            total[p] = total[p] + weights["embed.type_table"][kind]
    if spec["norm"] is not None:
        total = _each(total, lambda x: norm(x, spec["norm"], weights, "embed.norm"))
    return taps, total


def block(
    stream: Array, spec: Plain, weights: Weights, name: str, mask_row: list[bool]
) -> tuple[dict[str, Array], Array]:
    """One layer over one sequence, all ways of meeting the residual stream written out side by side.

    attn_out and mlp_out are what the stream takes up, so after the norm that `both` puts on them.
    """

    def normed(x: Array, norm_name: str) -> Array:
        return _each(x, lambda vector: norm(vector, spec["norm"], weights, f"{name}.{norm_name}"))

    def attend(x: Array) -> Array:
        inner, out = attention(x, spec["attention"], weights, f"{name}.attn", mask_row)
        taps.update({"attn_in": x, **inner, "attn_out": out})
        return out

    def think(x: Array) -> Array:
        parts = [mlp(vector, spec["mlp"], weights, f"{name}.mlp") for vector in x]
        taps.update({"mlp_in": x, **{step: np.stack([part[step] for part in parts]) for step in parts[0]}})
        return taps["mlp_out"]

    taps: dict[str, Array] = {"resid_pre": stream}
    residual = spec["residual"]
    match residual["type"], residual.get("norm_at"):
        case "serial", "pre":
            taps["resid_mid"] = stream + attend(normed(stream, "attn_norm"))
            taps["resid_post"] = taps["resid_mid"] + think(normed(taps["resid_mid"], "mlp_norm"))
        case "serial", "post":
            taps["resid_mid"] = normed(stream + attend(stream), "attn_post_norm")
            taps["resid_post"] = normed(taps["resid_mid"] + think(taps["resid_mid"]), "mlp_post_norm")
        case "serial", "both":
            taps["attn_out"] = normed(attend(normed(stream, "attn_norm")), "attn_post_norm")
            taps["resid_mid"] = stream + taps["attn_out"]
            taps["mlp_out"] = normed(think(normed(taps["resid_mid"], "mlp_norm")), "mlp_post_norm")
            taps["resid_post"] = taps["resid_mid"] + taps["mlp_out"]
        case "parallel", _:
            mlp_norm = "attn_norm" if residual["shares_norm"] else "mlp_norm"
            update = attend(normed(stream, "attn_norm")) + think(normed(stream, mlp_norm))
            taps["resid_post"] = stream + update
        case "no_shortcut", _:
            taps["resid_mid"] = attend(normed(stream, "attn_norm"))
            taps["resid_post"] = think(normed(taps["resid_mid"], "mlp_norm"))
        case kind:
            raise ValueError(f"no residual is called {kind}")
    return taps, taps["resid_post"]


def head(x: Array, spec: Plain, weights: Weights) -> Array:
    """The scores of one vector: cap * tanh((scale * t(x) E^T + bias) / cap), E the embedding's table unless untied.

    t(x) = norm(activation(dense x)) in masked models (BERT's `cls.predictions.transform`), otherwise x.
    """
    if spec["transform"] is not None:
        x = activate(linear(x, weights, "head.transform.dense", True), spec["transform"]["activation"])
        x = norm(x, spec["transform"]["norm"], weights, "head.transform.norm")
    if spec["type"] == "mapped":
        x = np.array([sum(row[j] * x[j] for j in range(len(x))) for row in weights["head.map.weight"]])
    if spec["type"] == "pseudo_inverse":
        matrix = symmetric(weights)
        x = np.array([sum(x[i] * matrix[i, j] for i in range(len(x))) for j in range(len(x))])
    table = weights["head.table" if spec["type"] == "untied" else "embed.table"]
    logits = np.zeros(len(table))
    for token, row in enumerate(table):
        logits[token] = float(row @ x) * (1.0 if spec["scale"] is None else spec["scale"])
        logits[token] += weights["head.bias"][token] if spec["has_bias"] else 0.0
        logits[token] = softcap(float(logits[token]), spec["softcap"])
    return logits


def symmetric(weights: Weights) -> Array:
    """T = L L^T of a pseudo-inverse head: L's diagonal by its logarithm, what is below it row by row."""
    width = len(weights["head.factor.log_diagonal"])
    lower, taken = np.zeros((width, width)), 0
    for i in range(width):
        for j in range(i):
            lower[i, j] = weights["head.factor.below"][taken]
            taken += 1
        lower[i, i] = np.exp(weights["head.factor.log_diagonal"][i])
    product = np.zeros((width, width))
    for i in range(width):
        for j in range(width):
            product[i, j] = sum(lower[i, k] * lower[j, k] for k in range(min(i, j) + 1))
    return product


def _each(x: Array, function: Callable[[Array], Array]) -> Array:
    return np.stack([function(vector) for vector in x])
