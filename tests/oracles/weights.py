"""The arrays that a spec needs, by name and shape, and random ones to try a model with.

Written from the naming rules, not from the package: a tensor that the model forgets, adds or misshapes is found when
these are loaded into it. Matrices are stored [out, in]. The next file to read is specs.py.
"""

import numpy as np

from oracles.layers import Array, Plain, Weights


def shapes(spec: Plain) -> dict[str, tuple[int, ...]]:
    """Every parameter of the model and its shape."""
    embedding, d_model = spec["embedding"], spec["embedding"]["d_model"]
    vocab_size = embedding["vocab_size"]
    found: dict[str, tuple[int, ...]] = {"embed.table": (vocab_size, d_model)}
    if embedding["position"] is not None and embedding["position"]["type"] == "learned":
        found["embed.pos_table"] = (embedding["position"]["n_rows"], d_model)
    if embedding["n_token_types"] is not None:
        found["embed.type_table"] = (embedding["n_token_types"], d_model)
    found |= _norm("embed.norm", embedding["norm"], d_model)
    for index, block in enumerate(spec["blocks"]):
        found |= _block(f"blocks.{index}", block, d_model)
    found |= _norm("final_norm", spec["final_norm"], d_model)
    head = spec["head"]
    if head["transform"] is not None:
        found |= {"head.transform.dense.weight": (d_model, d_model), "head.transform.dense.bias": (d_model,)}
        found |= _norm("head.transform.norm", head["transform"]["norm"], d_model)
    if head["type"] == "untied":
        found["head.table"] = (vocab_size, d_model)
    if head["type"] == "mapped":
        found["head.map.weight"] = (d_model, d_model)
    if head["type"] == "pseudo_inverse":
        found |= {"head.factor.log_diagonal": (d_model,), "head.factor.below": (d_model * (d_model - 1) // 2,)}
    if head["has_bias"]:
        found["head.bias"] = (vocab_size,)
    return found


def _block(name: str, block: Plain, d_model: int) -> dict[str, tuple[int, ...]]:
    attention, d_head, mlp = block["attention"], block["attention"]["d_head"], block["mlp"]
    d_query, d_key = attention["n_heads"] * d_head, attention["n_kv_heads"] * d_head
    found: dict[str, tuple[int, ...]] = {}
    for norm_name in _norm_names(block["residual"]):
        found |= _norm(f"{name}.{norm_name}", block["norm"], d_model)
    projections = {"q": (d_query, d_model), "k": (d_key, d_model), "v": (d_key, d_model), "o": (d_model, d_query)}
    for letter, shape in projections.items():
        found[f"{name}.attn.{letter}_proj.weight"] = shape
        if letter in attention["biases"]:
            found[f"{name}.attn.{letter}_proj.bias"] = shape[:1]
    found |= _norm(f"{name}.attn.q_norm", attention["qk_norm"], d_head)
    found |= _norm(f"{name}.attn.k_norm", attention["qk_norm"], d_head)
    maps = {"up": (mlp["d_mlp"], d_model), "down": (d_model, mlp["d_mlp"])}
    if mlp["type"] == "gated":
        maps["gate"] = maps["up"]
    for map_name, shape in maps.items():
        found[f"{name}.mlp.{map_name}.weight"] = shape
        if mlp["has_bias"]:
            found[f"{name}.mlp.{map_name}.bias"] = shape[:1]
    return found


def _norm_names(residual: Plain) -> list[str]:
    if residual["type"] == "parallel":
        return ["attn_norm"] if residual["shares_norm"] else ["attn_norm", "mlp_norm"]
    if residual["type"] == "no_shortcut" or residual["norm_at"] == "pre":
        return ["attn_norm", "mlp_norm"]
    if residual["norm_at"] == "post":
        return ["attn_post_norm", "mlp_post_norm"]
    return ["attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm"]


def _norm(name: str, norm: Plain | None, width: int) -> dict[str, tuple[int, ...]]:
    if norm is None or norm.get("gain") == "none":
        return {}
    found: dict[str, tuple[int, ...]] = {f"{name}.gain": (width,)}
    if norm["type"] == "layer_norm" and norm["has_bias"]:
        found[f"{name}.bias"] = (width,)
    return found


def draw(spec: Plain, seed: int) -> Weights:
    """Random weights, no two alike and none near its usual start, so that a term left out or taken twice shows.

    Matrices keep the size of what passes through them; gains lie around 1, also where the norm adds 1; biases around 0.
    """
    rng = np.random.default_rng(seed)
    return {name: _draw(rng, name, shape) for name, shape in shapes(spec).items()}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    noise: Array = rng.standard_normal(shape)
    if name.endswith(".weight"):
        return noise * float(1.2 / np.sqrt(shape[1]))
    if name.endswith(".gain"):
        return 1.0 + 0.3 * noise
    if name.endswith(".bias"):
        return 0.5 * noise
    if name.startswith("head.factor."):
        return 0.25 * noise  # so that T is far from the identity and can be inverted without losing many digits
    return noise
