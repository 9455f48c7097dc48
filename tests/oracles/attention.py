"""Attention over one sequence, one query and one head at a time.

score = cap * tanh(score_scale * q.k / cap) - slope * distance, over the keys that the query may see; softmax; the
values' average; the output map. The next file to read is transformer.py.
"""

import math

import numpy as np

from oracles.layers import Array, Plain, Weights, linear, norm, softcap
from oracles.positions import alibi_slopes, positions_of, rotate


def attention(
    inputs: Array, spec: Plain, weights: Weights, name: str, mask_row: list[bool]
) -> tuple[dict[str, Array], Array]:
    """What one sequence [pos, d_model] gives: all that is on the way, by its tap's name, and the output [pos, d_model].

    q and k are the heads after their norm, q_rot and k_rot those after the turn; the latter exist with rotary alone.
    """
    n_pos, d_head = len(inputs), spec["d_head"]
    n_heads, n_kv_heads = spec["n_heads"], spec["n_kv_heads"]
    positions, position = positions_of(mask_row), spec["position"] or {"type": None}
    seen: dict[str, Array] = {}
    for letter, n in (("q", n_heads), ("k", n_kv_heads), ("v", n_kv_heads)):
        seen[letter] = np.zeros((n_pos, n, d_head))
        for p in range(n_pos):
            # Row h * d_head + j of a projection makes entry j of head h.
            flat = linear(inputs[p], weights, f"{name}.{letter}_proj", letter in spec["biases"])
            for head in range(n):
                seen[letter][p, head] = flat[head * d_head : (head + 1) * d_head]
    for letter in ("q", "k"):
        turned = np.zeros_like(seen[letter])
        for p in range(n_pos):
            for head, vector in enumerate(seen[letter][p]):
                if spec["qk_norm"] is not None:
                    seen[letter][p, head] = norm(vector, spec["qk_norm"], weights, f"{name}.{letter}_norm")
                if position["type"] == "rotary":
                    turned[p, head] = rotate(seen[letter][p, head], positions[p], position, sum(mask_row))
        if position["type"] == "rotary":
            seen[f"{letter}_rot"] = turned
    q, k = seen.get("q_rot", seen["q"]), seen.get("k_rot", seen["k"])

    slopes = alibi_slopes(n_heads) if position["type"] == "alibi" else [0.0] * n_heads
    scores = np.full((n_heads, n_pos, n_pos), -np.inf)
    pattern = np.zeros((n_heads, n_pos, n_pos))
    z = np.zeros((n_pos, n_heads, d_head))
    for head in range(n_heads):
        kv_head = head // (n_heads // n_kv_heads)
        for query in range(n_pos):
            visible = [key for key in range(n_pos) if sees(query, key, positions, spec["sees"], mask_row)]
            for key in visible:
                dot = float(q[query, head] @ k[key, kv_head])
                distance = abs(positions[query] - positions[key])
                scores[head, query, key] = softcap(spec["score_scale"] * dot, spec["score_softcap"])
                scores[head, query, key] -= slopes[head] * distance
            if not visible:
                continue  # nothing to look at: the row of the pattern and the head's output stay zero
            largest = max(scores[head, query, key] for key in visible)
            total = sum(math.exp(scores[head, query, key] - largest) for key in visible)
            for key in visible:
                pattern[head, query, key] = math.exp(scores[head, query, key] - largest) / total
                z[query, head] += pattern[head, query, key] * seen["v"][key, kv_head]
    output = np.zeros((n_pos, inputs.shape[1]))
    for p in range(n_pos):
        output[p] = linear(np.concatenate(list(z[p])), weights, f"{name}.o_proj", "o" in spec["biases"])
    return {**seen, "attn_scores": scores, "attn_pattern": pattern, "z": z}, output


def sees(query: int, key: int, positions: list[int], rule: Plain, mask_row: list[bool]) -> bool:
    """Whether the query may look at the key: never at padding; if causal never ahead, and at `window` keys with its own."""
    if not mask_row[key]:
        return False
    if rule["type"] == "bidirectional":
        return True
    if key > query:
        return False
    return rule["window"] is None or positions[query] - positions[key] < rule["window"]
