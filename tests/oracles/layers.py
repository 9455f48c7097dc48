"""The pieces of a model that look at one vector at a time: norms, activations, linear maps and the MLP.

All of tests/oracles is float64 NumPy written from the papers' formulas, slowly and plainly, and imports nothing of
unembed: a fault in the package cannot hide in a helper that both share. A spec is the plain dict that its JSON reads as;
weights are a dict name -> float64 array. The next files to read are positions.py, attention.py and transformer.py.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Plain = dict[str, Any]
Weights = dict[str, Array]


def linear(x: Array, weights: Weights, name: str, has_bias: bool) -> Array:
    """W x + b for one vector x; W is stored [out, in]."""
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if has_bias else y


def norm(x: Array, spec: Plain, weights: Weights, name: str) -> Array:
    """The norm of one vector.

    LayerNorm: g_i (x_i - mu) / sqrt(sigma^2 + eps) + b_i, sigma^2 the biased variance (arXiv:1607.06450, equation 3).
    RMSNorm: g_i x_i / sqrt(1/n sum x_i^2 + eps), g_i being 1, the gain, or 1 + gain (arXiv:1910.07467, equation 4).
    """
    n = len(x)
    if spec["type"] == "layer_norm":
        mean = sum(x) / n
        variance = sum((value - mean) ** 2 for value in x) / n
        y = weights[f"{name}.gain"] * (x - mean) / math.sqrt(variance + spec["eps"])
        return y + weights[f"{name}.bias"] if spec["has_bias"] else y
    y = x / math.sqrt(sum(value * value for value in x) / n + spec["eps"])
    if spec["gain"] == "none":
        return y
    return y * (weights[f"{name}.gain"] + (1.0 if spec["gain"] == "one_plus" else 0.0))


def gelu(x: float) -> float:
    """x Phi(x), Phi the normal distribution function (arXiv:1606.08415, section 2)."""
    return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: float) -> float:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the approximation of the same section; GPT-2 and Gemma."""
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: float) -> float:
    """max(x, 0)."""
    return max(x, 0.0)


def relu_squared(x: float) -> float:
    """max(x, 0)^2 (Primer, arXiv:2109.08668, section 4)."""
    return max(x, 0.0) ** 2


def silu(x: float) -> float:
    """x / (1 + e^-x), written so that no exponential overflows."""
    if x >= 0:
        return x / (1.0 + math.exp(-x))
    return x * math.exp(x) / (1.0 + math.exp(x))


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "relu_squared": relu_squared,
    "silu": silu,
}


def activate(x: Array, name: str) -> Array:
    """The activation of each entry."""
    return np.array([ACTIVATIONS[name](float(value)) for value in x])


def mlp(x: Array, spec: Plain, weights: Weights, name: str) -> dict[str, Array]:
    """down(act(up x)), or gated down(act(gate x) * up x) (arXiv:2002.05202, equation 5), of one vector, step by step."""
    up = linear(x, weights, f"{name}.up", spec["has_bias"])
    steps = {"mlp_pre": up}
    if spec["type"] == "gated":
        steps = {"mlp_pre": linear(x, weights, f"{name}.gate", spec["has_bias"]), "mlp_up": up}
    steps["mlp_act"] = activate(steps["mlp_pre"], spec["activation"]) * steps.get("mlp_up", 1.0)
    steps["mlp_out"] = linear(steps["mlp_act"], weights, f"{name}.down", spec["has_bias"])
    return steps


def softcap(x: float, cap: float | None) -> float:
    """cap * tanh(x / cap), or x itself (Gemma 2 report, arXiv:2408.00118, section 2)."""
    return x if cap is None else cap * math.tanh(x / cap)
