"""Small specs to try a model on: each variant of each part, alone.

They are plain dicts, as `json.loads` of a written spec gives, so that this folder needs nothing of unembed. Sizes are
small, and odd where they may be; numbers (eps, theta, caps) lie where a wrong one shows. The next file to read is
mixtures.py.
"""

import copy
from typing import Any

from oracles.layers import Plain

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "relu_squared", "silu")
CAUSAL: Plain = {"type": "causal", "window": None}
BIDIRECTIONAL: Plain = {"type": "bidirectional"}
LAYER_NORM: Plain = {"type": "layer_norm", "eps": 1e-5, "has_bias": True}
TRANSFORM: Plain = {"activation": "gelu", "norm": LAYER_NORM}
ROTARY: Plain = {"type": "rotary", "theta": 50.0, "pairing": "half", "fraction": 1.0, "scaling": None}
SCALINGS: dict[str, Plain] = {
    "linear": {"type": "linear", "factor": 3.0},
    # Shorter than the sequences that are tried, so that theta does grow.
    "dynamic": {"type": "dynamic", "factor": 2.5, "original_context": 5},
    "llama3": {
        "type": "llama3",
        "factor": 8.0,
        "low_frequency_factor": 1.0,
        "high_frequency_factor": 4.0,
        "original_context": 40,
    },
    "yarn": {
        "type": "yarn",
        "factor": 4.0,
        "original_context": 40,
        "beta_fast": 3.0,
        "beta_slow": 0.5,
        "attention_factor": 1.2,
        "truncates": True,
    },
}
RESIDUALS: dict[str, Plain] = {
    "pre": {"type": "serial", "norm_at": "pre"},
    "post": {"type": "serial", "norm_at": "post"},
    "both": {"type": "serial", "norm_at": "both"},
    "parallel_one_norm": {"type": "parallel", "shares_norm": True},
    "parallel_two_norms": {"type": "parallel", "shares_norm": False},
    "no_shortcut": {"type": "no_shortcut"},
}
NORMS: dict[str, Plain] = {
    "layer_norm": LAYER_NORM,
    "layer_norm_no_bias": {"type": "layer_norm", "eps": 0.02, "has_bias": False},
    "rms_norm": {"type": "rms_norm", "eps": 0.01, "gain": "plain"},
    "rms_norm_no_gain": {"type": "rms_norm", "eps": 0.01, "gain": "none"},
    "rms_norm_one_plus": {"type": "rms_norm", "eps": 0.01, "gain": "one_plus"},
}


def base(n_layers: int = 2) -> Plain:
    """A plain pre-norm decoder, 12 wide with 4 heads of 6, without positions: what the variants change one thing of."""
    block: Plain = {
        "attention": {
            "n_heads": 4,
            "n_kv_heads": 4,
            "d_head": 6,
            "score_scale": 0.4,
            "score_softcap": None,
            "position": None,
            "sees": CAUSAL,
            "biases": [],
            "qk_norm": None,
        },
        "mlp": {"type": "plain", "d_mlp": 15, "activation": "gelu", "has_bias": True},
        "norm": LAYER_NORM,
        "residual": RESIDUALS["pre"],
    }
    embedding: Plain = {"vocab_size": 13, "d_model": 12, "position": None, "scale": None}
    embedding |= {"n_token_types": None, "norm": None, "token_dropout": None}
    return {
        "context_length": 12,
        "embedding": embedding,
        "blocks": [copy.deepcopy(block) for _ in range(n_layers)],
        "final_norm": LAYER_NORM,
        "head": {"type": "tied", "transform": None, "has_bias": False, "scale": None, "softcap": None},
    }


def changed(spec: Plain, **values: Any) -> Plain:
    """A copy with some values replaced; `block__attention__sees` reaches into every block, other names into the spec.

    >>> changed(base(), head__softcap=3.0)["head"]["softcap"]
    3.0
    """
    new = copy.deepcopy(spec)
    for path, value in values.items():
        first, *rest = path.split("__")
        for place in new["blocks"] if first == "block" else [new]:
            steps = rest if first == "block" else [first, *rest]
            for step in steps[:-1]:
                place = place[step]
            place[steps[-1]] = copy.deepcopy(value)
    return new


def variants() -> dict[str, Plain]:
    """Every variant that a spec knows, alone, by a name that says what is changed."""
    return {
        "plain": base(),
        "no_blocks": base(n_layers=0),
        **_position_variants(),
        **_attention_variants(),
        **{f"norm_{name}": changed(base(), block__norm=norm, final_norm=norm) for name, norm in NORMS.items()},
        "final_norm_none": changed(base(), final_norm=None),
        **{f"residual_{name}": changed(base(), block__residual=residual) for name, residual in RESIDUALS.items()},
        **{
            f"mlp_{kind}_{activation}_{'bias' if has_bias else 'no_bias'}": changed(
                base(n_layers=1),
                block__mlp__type=kind,
                block__mlp__activation=activation,
                block__mlp__has_bias=has_bias,
            )
            for kind in ("plain", "gated")
            for activation in ACTIVATIONS
            for has_bias in (True, False)
        },
        **_end_variants(),
    }


def _position_variants() -> dict[str, Plain]:
    table = {"type": "learned", "n_rows": 12, "offset": 0}
    offset = {"type": "learned", "n_rows": 15, "offset": 2}
    wave = {"type": "sinusoidal", "theta": 100.0}
    found = {
        "learned": changed(base(), embedding__position=table),
        "learned_offset": changed(base(), embedding__position=offset),
        "sinusoidal": changed(base(), embedding__position=wave),
        "sinusoidal_odd_width": changed(base(), embedding__position=wave, embedding__d_model=11),
        "rotary": changed(base(), block__attention__position=ROTARY),
        "rotary_interleaved": changed(base(), block__attention__position={**ROTARY, "pairing": "interleaved"}),
        "rotary_fraction": changed(base(), block__attention__position={**ROTARY, "fraction": 0.67}),
        "rotary_interleaved_fraction": changed(
            base(), block__attention__position={**ROTARY, "pairing": "interleaved", "fraction": 0.67}
        ),
        "yarn_not_truncated": changed(
            base(), block__attention__position={**ROTARY, "scaling": {**SCALINGS["yarn"], "truncates": False}}
        ),
        "rotary_theta_per_layer": changed(base(), block__attention__position=ROTARY),
    }
    found["rotary_theta_per_layer"]["blocks"][1]["attention"]["position"]["theta"] = 7.0
    for name, scaling in SCALINGS.items():
        found[f"rotary_{name}"] = changed(base(), block__attention__position={**ROTARY, "scaling": scaling})
    for n_heads in (1, 3, 4, 6):
        heads = {"block__attention__n_heads": n_heads, "block__attention__n_kv_heads": n_heads}
        found[f"alibi_{n_heads}_heads"] = changed(base(), block__attention__position={"type": "alibi"}, **heads)
    both_ways = changed(base(), block__attention__position={"type": "alibi"}, block__attention__sees=BIDIRECTIONAL)
    return {**found, "alibi_bidirectional": both_ways}


def _attention_variants() -> dict[str, Plain]:
    found = {
        "grouped_query": changed(base(), block__attention__n_kv_heads=2),
        "multi_query": changed(base(), block__attention__n_kv_heads=1),
        "narrow_heads": changed(base(), block__attention__d_head=1),
        "score_softcap": changed(base(), block__attention__score_softcap=0.8),
        "bidirectional": changed(base(), block__attention__sees=BIDIRECTIONAL),
        "window_per_layer": changed(base(), block__attention__sees={"type": "causal", "window": 3}),
    }
    found["window_per_layer"]["blocks"][1]["attention"]["sees"]["window"] = None
    for window in (1, 3, 12):
        sees = {"type": "causal", "window": window}
        found[f"window_{window}"] = changed(base(), block__attention__sees=sees)
    for biases in (["q"], ["k"], ["v"], ["o"], ["q", "k", "v"], ["q", "k", "v", "o"]):
        found[f"biases_{''.join(biases)}"] = changed(base(), block__attention__biases=biases)
    for name, norm in NORMS.items():
        found[f"qk_{name}"] = changed(base(), block__attention__qk_norm=norm, block__attention__position=ROTARY)
    return found


def _end_variants() -> dict[str, Plain]:
    dropout = {"mask_id": 4, "trained_share": 0.12}
    learned = {"type": "learned", "n_rows": 12, "offset": 0}
    found = {
        "embed_scale": changed(base(), embedding__scale=3.5),
        "embed_norm": changed(base(), embedding__norm=LAYER_NORM),
        "token_types": changed(base(), embedding__n_token_types=3),
        "token_dropout": changed(base(), embedding__token_dropout=dropout, embedding__position=learned),
        "embed_everything": changed(
            base(),
            embedding__token_dropout=dropout,
            embedding__position=learned,
            embedding__scale=0.5,
            embedding__norm=NORMS["rms_norm"],
            embedding__n_token_types=2,
        ),
    }
    for kind in ("tied", "untied", "mapped", "pseudo_inverse"):
        head: Plain = {"type": kind, "transform": None, "has_bias": False, "scale": None, "softcap": None}
        found |= {
            f"{kind}_head": changed(base(), head=head),
            f"{kind}_head_bias": changed(base(), head={**head, "has_bias": True}),
            f"{kind}_head_scale": changed(base(), head={**head, "scale": 0.3}),
            f"{kind}_head_softcap": changed(base(), head={**head, "softcap": 1.5}),
            f"{kind}_head_transform": changed(base(), head={**head, "transform": TRANSFORM}),
            f"{kind}_head_everything": changed(
                base(), head={"type": kind, "transform": TRANSFORM, "has_bias": True, "scale": 0.3, "softcap": 1.5}
            ),
        }
    return found
