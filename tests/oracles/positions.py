"""Where a token stands, said in four ways: table rows, sinusoids, turned pairs, and scores that fall with distance.

One position or one head at a time, from the papers; scalings as transformers' modeling_rope_utils.py computes them,
since the published files mean those. The next file to read is attention.py.
"""

import math

import numpy as np

from oracles.layers import Array, Plain


def positions_of(mask_row: list[bool]) -> list[int]:
    """The number of real tokens before each real token; padding takes the place of the real token before it, or 0.

    >>> positions_of([False, False, True, True, True])
    [0, 0, 0, 1, 2]
    """
    positions, seen = [], 0
    for is_real in mask_row:
        seen += is_real
        positions.append(max(seen - 1, 0))
    return positions


def sinusoid(position: int, d_model: int, theta: float) -> Array:
    """PE(p, 2i) = sin(p / theta^(2i/d)), PE(p, 2i+1) = cos(p / theta^(2i/d)); an odd width ends with a sine.

    Source: arXiv:1706.03762, section 3.5.
    """
    vector = np.zeros(d_model)
    for entry in range(d_model):
        i = entry // 2
        angle = position / theta ** (2 * i / d_model)
        vector[entry] = math.sin(angle) if entry % 2 == 0 else math.cos(angle)
    return vector


def frequencies(rotary: Plain, d_head: int, n_tokens: int) -> tuple[list[float], float]:
    """The angle per position of each pair, and the factor on its sine and cosine; only `dynamic` looks at n_tokens.

    Unscaled: theta^(-2i/n) for pair i of n/2, n the rotated entries (arXiv:2104.09864, equation 15).
    """
    n = int(d_head * rotary["fraction"])
    theta, scaling = rotary["theta"], rotary["scaling"]
    plain: list[float] = [theta ** (-2 * i / n) for i in range(n // 2)]
    if scaling is None:
        return plain, 1.0
    if scaling["type"] == "linear":
        return [f / scaling["factor"] for f in plain], 1.0
    if scaling["type"] == "dynamic":
        factor, original = scaling["factor"], scaling["original_context"]
        length = max(n_tokens, original)
        grown = theta * (factor * length / original - (factor - 1)) ** (n / (n - 2))
        return [grown ** (-2 * i / n) for i in range(n // 2)], 1.0
    if scaling["type"] == "llama3":
        return [_llama3(f, scaling) for f in plain], 1.0
    assert scaling["type"] == "yarn", scaling
    return _yarn(plain, theta, n, scaling), scaling["attention_factor"]


def _llama3(frequency: float, scaling: Plain) -> float:
    """Long wavelengths are divided, short ones kept, with a ramp between (Llama 3.1's reference code, `apply_scaling`)."""
    original: float = scaling["original_context"]
    low: float = scaling["low_frequency_factor"]
    high: float = scaling["high_frequency_factor"]
    factor: float = scaling["factor"]
    wavelength = 2 * math.pi / frequency
    if wavelength > original / low:
        return frequency / factor
    if wavelength < original / high:
        return frequency
    kept = (original / wavelength - low) / (high - low)
    return (1 - kept) * frequency / factor + kept * frequency


def _yarn(plain: list[float], theta: float, n: int, scaling: Plain) -> list[float]:
    """Pairs that turn more than beta_fast times in the original context are kept, less than beta_slow divided.

    The ramp runs over pair numbers, between the pairs that turn just so often (arXiv:2309.00071, section 3.2).
    """

    def pair_that_turns(times: float) -> float:
        return n * math.log(scaling["original_context"] / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_that_turns(scaling["beta_fast"]), pair_that_turns(scaling["beta_slow"])
    if scaling["truncates"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    if low == high:
        high += 0.001
    mixed = []
    for i, frequency in enumerate(plain):
        divided = min(max((i - low) / (high - low), 0.0), 1.0)
        mixed.append(divided * frequency / scaling["factor"] + (1 - divided) * frequency)
    return mixed


def rotate(vector: Array, position: int, rotary: Plain, n_tokens: int) -> Array:
    """Turns pair i of one head's vector by position * frequency_i; what is not in a pair passes unchanged.

    >>> one = {"theta": 10000.0, "pairing": "half", "fraction": 1.0, "scaling": None}
    >>> rotate(np.array([1.0, 2.0, 3.0, 4.0]), 1, one, 2).round(5).tolist()
    [-1.98411, 1.9599, 2.46238, 4.0198]
    >>> rotate(np.array([1.0, 2.0, 3.0, 4.0]), 1, {**one, "pairing": "interleaved"}, 2).round(5).tolist()
    [-1.14264, 1.92208, 2.95985, 4.0298]
    """
    turned = vector.copy()
    angles, factor = frequencies(rotary, len(vector), n_tokens)
    for i, frequency in enumerate(angles):
        first, second = (i, i + len(angles)) if rotary["pairing"] == "half" else (2 * i, 2 * i + 1)
        cos, sin = factor * math.cos(position * frequency), factor * math.sin(position * frequency)
        turned[first] = vector[first] * cos - vector[second] * sin
        turned[second] = vector[first] * sin + vector[second] * cos
    return turned


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8i/h), i = 1..h, for h a power of two; else those of the power below, then every other one of the power above.

    Source: arXiv:2108.12409, section 3, and `get_slopes` of its code.

    >>> alibi_slopes(6)
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    below = 1
    while below * 2 <= n_heads:
        below *= 2
    slopes = [2.0 ** (-8 * i / below) for i in range(1, below + 1)]
    doubled = [2.0 ** (-8 * i / (2 * below)) for i in range(1, 2 * below + 1)]
    return slopes + doubled[0::2][: n_heads - below]
