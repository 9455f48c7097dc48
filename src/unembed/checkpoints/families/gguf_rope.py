"""Rotary scaling as GGUF files have it: a factor among the keys, or a tensor of divisors that hides Llama 3.1's numbers.

llama.cpp divides every pair's frequency by the factor and by its divisor; nothing of that may be dropped. Divisors do not
say which numbers made them: those that are published are recognised, ours are named by keys of our own, and all others stop
the load. Source: llama.cpp, src/llama-model.cpp, `load_hparams`. The next file to read is ../foreign/gguf.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.positions.rotary import frequencies
from unembed.model.spec import LinearScaling, Llama3Scaling, Rotary

FACTORS = "rope_freqs.weight"
# Under which config key the divisors stand, as a list; and the four numbers behind them in files that we write.
DIVISORS_KEY, OWN_PREFIX = "rope_freqs", "unembed."
_OWN = OWN_PREFIX + "llama3_scaling."
_TYPE, _FACTOR, _OLDER_FACTOR = "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"
# What is published: Llama 3.1 (8) and 3.2 (32); the other numbers are the same for all.
_PUBLISHED = tuple(
    Llama3Scaling(factor=factor, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192)
    for factor in (8.0, 32.0)
)
# llama.cpp's converter computes in float32, which is off by 5e-7 at most; an original context of 8193 is off by 1e-4.
_THEIR_TOLERANCE, _OWN_TOLERANCE = 1e-5, 1e-6


def read_scaling(
    config: ConfigReader, *, theta: float, d_head: int, decimal: Callable[[float], float]
) -> LinearScaling | Llama3Scaling | None:
    """The scaling of `llama` keys; `decimal` undoes the rounding of a number to float32. Raises: CheckpointError."""
    factor = _read_factor(config)
    divisors = config.numbers(DIVISORS_KEY)
    if divisors is None:
        return None if factor is None else LinearScaling(factor=decimal(factor))
    if factor not in (None, 1.0):
        raise config.error(
            f"scales its positions twice, by the factor {factor:g} ({_FACTOR}) and by {FACTORS}, and llama.cpp divides by "
            "both; no model here does. Ask for the model as a Hugging Face folder."
        )
    if len(divisors) != d_head // 2:
        raise config.error(
            f"{FACTORS} holds {len(divisors)} divisors, expected {d_head // 2}: one for each pair of a head of {d_head} "
            "numbers. The keys and the tensor are not of one model."
        )
    given = torch.tensor(divisors, dtype=torch.float64)
    if (own := _read_own(config, decimal)) is not None:
        if not torch.allclose(given, divisors_of(own, theta, d_head), rtol=_OWN_TOLERANCE, atol=0):
            raise config.error(
                f"{FACTORS} holds other divisors than {_OWN}factor and its neighbours give. Convert the model again."
            )
        return own
    for scaling in _PUBLISHED:
        if torch.allclose(given, divisors_of(scaling, theta, d_head), rtol=_THEIR_TOLERANCE, atol=0):
            return scaling
    raise config.error(
        f"{FACTORS} holds rotary divisors that belong to no published scaling (Llama 3.1 and 3.2 are known). Ask for the "
        "model as a Hugging Face folder, whose config.json names them."
    )


def write_scaling(position: Rotary, d_head: int) -> dict[str, Any]:
    """The keys of a rotary spec's scaling; none where it has no scaling, or one that GGUF has no word for."""
    scaling = position.scaling
    if isinstance(scaling, LinearScaling):
        return {_TYPE: "linear", _FACTOR: scaling.factor}
    if not isinstance(scaling, Llama3Scaling):
        return {}
    numbers = {name: getattr(scaling, name) for name in scaling.__struct_fields__}
    return {
        DIVISORS_KEY: divisors_of(scaling, position.theta, d_head).tolist(),
        **{_OWN + name: value for name, value in numbers.items()},
    }


def divisors_of(scaling: Llama3Scaling, theta: float, d_head: int) -> Float[Tensor, " pair"]:
    """What llama.cpp divides each pair's frequency by, in float64. Local axis: pair, d_head / 2 of them."""
    scaled = Rotary(theta=theta, pairing="half", fraction=1.0, scaling=scaling)
    plain = Rotary(theta=theta, pairing="half", fraction=1.0, scaling=None)
    return frequencies(plain, d_head) / frequencies(scaled, d_head)


def _read_factor(config: ConfigReader) -> float | None:
    """What all frequencies are divided by. llama.cpp takes `linear` where no type is given, and no factor for `none`."""
    if config.one_of(_TYPE, {"none": None, "linear": "linear"}, "linear") is None:
        reason = f"{_TYPE} is none, and llama.cpp then divides by no factor"
        config.excuse({_FACTOR: reason, _OLDER_FACTOR: reason})
        return None
    found: list[float] = [value for key in (_FACTOR, _OLDER_FACTOR) if (value := config.number(key, None)) is not None]
    if len(set(found)) > 1:
        raise config.error(f"{_FACTOR} is {found[0]:g} and {_OLDER_FACTOR} is {found[1]:g}; they must agree")
    if not found and _TYPE in config:
        raise config.error(f"{_TYPE} is linear and {_FACTOR} is missing")
    return found[0] if found else None


def _read_own(config: ConfigReader, decimal: Callable[[float], float]) -> Llama3Scaling | None:
    if not any(key.startswith(_OWN) for key in config):
        return None
    return Llama3Scaling(
        factor=decimal(config.number(_OWN + "factor")),
        low_frequency_factor=decimal(config.number(_OWN + "low_frequency_factor")),
        high_frequency_factor=decimal(config.number(_OWN + "high_frequency_factor")),
        original_context=config.integer(_OWN + "original_context"),
    )
