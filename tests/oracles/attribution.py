"""A score as a sum over parts, the long way round: each part's vector is carried forward through everything that it meets.

The package carries one direction back from the score; here every part is a vector of its own, all of them pass each norm on
the way, held at the mean and deviation of their sum, and the head multiplies each at the end. The same numbers must come out.
"""

import math

import numpy as np

from oracles.layers import Array, Plain, Weights, activate, linear
from oracles.transformer import run, symmetric

Key = tuple[str, int | None, int | None]
Vectors = dict[Key, Array]


def contributions(
    spec: Plain, weights: Weights, ids: list[int], position: int, target: int, against: int | None = None
) -> dict[Key, float]:
    """What each (part, layer, head) adds to the score of `target` at a position, or to its lead over `against`."""
    taps = {name: value[0] for name, value in run(spec, weights, [ids]).items()}
    at = {name: value[position] for name, value in taps.items() if not name.endswith(("attn_scores", "attn_pattern"))}
    parts: Vectors = {("embedding", None, None): at["embed"]}
    if "pos_embed" in at:
        parts["positions", None, None] = at["pos_embed"]
    if spec["embedding"]["n_token_types"] is not None:
        parts["token_type", None, None] = weights["embed.type_table"][0]
    if spec["embedding"]["norm"] is not None:
        parts = normed(parts, spec["embedding"]["norm"], weights, "embed.norm", ("embedding_norm_bias", None, None))
    for layer, block in enumerate(spec["blocks"]):
        parts = through(parts, layer, block, weights, at)
    if spec["final_norm"] is not None:
        parts = normed(parts, spec["final_norm"], weights, "final_norm", ("final_norm_bias", None, None))
    head = spec["head"]
    if head["transform"] is not None:
        parts = {key: weights["head.transform.dense.weight"] @ vector for key, vector in parts.items()}
        parts["head_dense_bias", None, None] = weights["head.transform.dense.bias"]
        inputs = sum(parts.values())
        outputs = activate(inputs, head["transform"]["activation"])
        slopes = np.array([o / i if i else 0.0 for o, i in zip(outputs, inputs, strict=True)])
        parts = {key: vector * slopes for key, vector in parts.items()}
        parts = normed(parts, head["transform"]["norm"], weights, "head.transform.norm", ("head_norm_bias", None, None))
    if head["type"] == "mapped":
        parts = {key: weights["head.map.weight"] @ vector for key, vector in parts.items()}
    if head["type"] == "pseudo_inverse":
        parts = {key: vector @ symmetric(weights) for key, vector in parts.items()}
    table = weights["head.table" if head["type"] == "untied" else "embed.table"]
    row = table[target] - (0 if against is None else table[against])
    scores = {
        key: float(row @ vector) * (1 if head["scale"] is None else head["scale"]) for key, vector in parts.items()
    }
    if head["has_bias"]:
        bias = weights["head.bias"]
        scores["head_bias", None, None] = float(bias[target] - (0 if against is None else bias[against]))
    return scores


def through(parts: Vectors, layer: int, block: Plain, weights: Weights, at: dict[str, Array]) -> Vectors:
    """The parts after a block: those before it, each head, the MLP, and the biases of all of them."""
    residual, name = block["residual"], f"blocks.{layer}"
    kind = residual.get("norm_at") or residual["type"]
    heads = attention_parts(layer, block["attention"], weights, at)
    neurons = mlp_parts(layer, block["mlp"], weights, at)
    norm = block["norm"]
    if kind == "both":
        heads = normed(heads, norm, weights, f"{name}.attn_post_norm", ("attention_norm_bias", layer, None))
        neurons = normed(neurons, norm, weights, f"{name}.mlp_post_norm", ("mlp_norm_bias", layer, None))
    if kind == "post":
        middle = normed(
            {**parts, **heads}, norm, weights, f"{name}.attn_post_norm", ("attention_norm_bias", layer, None)
        )
        return normed({**middle, **neurons}, norm, weights, f"{name}.mlp_post_norm", ("mlp_norm_bias", layer, None))
    if kind == "no_shortcut":
        return {key: np.zeros_like(vector) for key, vector in {**parts, **heads}.items()} | neurons
    return {**parts, **heads, **neurons}


def attention_parts(layer: int, spec: Plain, weights: Weights, at: dict[str, Array]) -> Vectors:
    """Each head's values through its own columns of the output map, and that map's bias."""
    matrix, d_head = weights[f"blocks.{layer}.attn.o_proj.weight"], spec["d_head"]
    found: Vectors = {}
    for head in range(spec["n_heads"]):
        columns = matrix[:, head * d_head : (head + 1) * d_head]
        found["attention_head", layer, head] = columns @ at[f"blocks.{layer}.z"][head]
    if "o" in spec["biases"]:
        found["attention_bias", layer, None] = weights[f"blocks.{layer}.attn.o_proj.bias"]
    return found


def mlp_parts(layer: int, spec: Plain, weights: Weights, at: dict[str, Array]) -> Vectors:
    """The MLP's output and its last bias."""
    name = f"blocks.{layer}.mlp"
    found: Vectors = {("mlp", layer, None): linear(at[f"blocks.{layer}.mlp_act"], weights, f"{name}.down", False)}
    if spec["has_bias"]:
        found["mlp_bias", layer, None] = weights[f"{name}.down.bias"]
    return found


def normed(parts: Vectors, spec: Plain, weights: Weights, name: str, bias_key: Key) -> Vectors:
    """Each part through a norm that is held at the deviation of their sum; the norm's bias becomes a part."""
    total = sum(parts.values())
    gain = weights.get(f"{name}.gain", np.ones_like(total)) + (1.0 if spec.get("gain") == "one_plus" else 0.0)
    if spec["type"] == "rms_norm":
        scale = 1 / math.sqrt(float(total @ total) / len(total) + spec["eps"])
        return {key: gain * vector * scale for key, vector in parts.items()}
    centred = total - total.mean()
    scale = 1 / math.sqrt(float(centred @ centred) / len(total) + spec["eps"])
    found = {key: gain * (vector - vector.mean()) * scale for key, vector in parts.items()}
    return {**found, bias_key: weights[f"{name}.bias"]} if spec["has_bias"] else found
