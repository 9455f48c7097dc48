"""Random mixtures of all that specs.py tries alone: faults that need two variants to meet are found here.

Like every spec of this folder they are plain dicts, valid by construction. The next file to read is mutations.py.
"""

import copy
from typing import Any

import numpy as np

from oracles.layers import Plain
from oracles.specs import ACTIVATIONS, BIDIRECTIONAL, CAUSAL, NORMS, RESIDUALS, SCALINGS


def random_spec(seed: int) -> Plain:
    """One random mixture of 1 to 3 layers, each layer of its own kind; the same seed gives the same spec."""
    rng = np.random.default_rng(seed)

    def one_of(*choices: Any) -> Any:
        return copy.deepcopy(choices[rng.integers(len(choices))])

    def any_norm(may_be_none: bool = False) -> Plain | None:
        norm: Plain | None = one_of(*NORMS.values(), *([None] * 2 if may_be_none else []))
        return norm if norm is None else {**norm, "eps": float(10.0 ** rng.uniform(-6, -1.5))}

    def maybe(low: float, high: float) -> float | None:
        return float(rng.uniform(low, high)) if rng.random() < 0.4 else None

    vocab_size, context_length = int(rng.integers(11, 24)), int(rng.integers(12, 17))
    offset = int(rng.integers(0, 3))
    learned = {"type": "learned", "n_rows": context_length + offset + int(rng.integers(0, 3)), "offset": offset}
    sinusoidal = {"type": "sinusoidal", "theta": float(10 ** rng.uniform(1, 4))}
    dropout = {"mask_id": int(rng.integers(vocab_size)), "trained_share": float(rng.uniform(0.05, 0.3))}
    n_kv_heads = int(rng.integers(1, 4))
    has_alibi, sees_all, n_layers = rng.random() < 0.25, rng.random() < 0.3, int(rng.integers(1, 4))
    blocks = []
    for _ in range(n_layers):
        d_head = one_of(4, 6, 8)
        rotary = _random_rotary(rng, d_head)
        attention: Plain = {
            "n_heads": n_kv_heads * int(rng.integers(1, 4)),
            "n_kv_heads": n_kv_heads,
            "d_head": d_head,
            "score_scale": float(rng.uniform(0.2, 0.8)),
            "score_softcap": None if has_alibi else maybe(0.5, 5.0),
            "position": {"type": "alibi"} if has_alibi else one_of(None, rotary, rotary),
            "sees": BIDIRECTIONAL
            if sees_all
            else one_of(CAUSAL, {"type": "causal", "window": int(rng.integers(1, 8))}),
            "biases": [name for name in "qkvo" if rng.random() < 0.5],
            "qk_norm": any_norm(may_be_none=True),
        }
        mlp: Plain = {
            "type": one_of("plain", "gated"),
            "d_mlp": int(rng.integers(5, 33)),
            "has_bias": one_of(True, False),
        }
        mlp["activation"] = one_of(*ACTIVATIONS)
        residual = one_of(*RESIDUALS.values())
        blocks.append({"attention": attention, "mlp": mlp, "norm": any_norm(), "residual": residual})
    head: Plain = {"type": one_of("tied", "untied", "mapped", "pseudo_inverse"), "has_bias": one_of(True, False)}
    head |= {"transform": None, "scale": maybe(0.2, 3.0), "softcap": maybe(1.0, 20.0)}
    if rng.random() < 0.3:
        head["transform"] = {"activation": one_of(*ACTIVATIONS), "norm": any_norm()}
    d_model = int(rng.integers(8, 25))
    return {
        "context_length": context_length,
        "embedding": {
            "vocab_size": vocab_size,
            # orthonormal columns are no more than rows
            "d_model": min(d_model, vocab_size) if head["type"] == "pseudo_inverse" else d_model,
            "scale": maybe(0.5, 4.0),
            "position": one_of(None, learned, sinusoidal),
            "n_token_types": one_of(None, None, 2, 3),
            "norm": any_norm(may_be_none=True),
            "token_dropout": dropout if rng.random() < 0.25 else None,
        },
        "blocks": blocks,
        "final_norm": any_norm(may_be_none=True),
        "head": head,
    }


def _random_rotary(rng: np.random.Generator, d_head: int) -> Plain:
    scaling: Plain | None = [None, *SCALINGS.values()][rng.integers(len(SCALINGS) + 1)]
    # An even number of turned entries; dynamic scaling raises theta by n / (n - 2), so it needs more than one pair.
    fewest = 4 if scaling is not None and scaling["type"] == "dynamic" else 2
    n_rotated = d_head if rng.random() < 0.6 else int(rng.choice(range(fewest, d_head + 1, 2)))
    pairing = "half" if rng.random() < 0.5 else "interleaved"
    rotary: Plain = {"type": "rotary", "theta": float(10 ** rng.uniform(1, 4)), "pairing": pairing}
    if scaling is not None and scaling["type"] == "yarn":
        scaling = {**scaling, "truncates": bool(rng.random() < 0.5)}
    return {**rotary, "fraction": n_rotated / d_head, "scaling": copy.deepcopy(scaling)}
