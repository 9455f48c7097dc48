"""Rotary positions: q and k are turned by an angle that grows with the position, so scores feel only the distance.

A score of q at p and k at s depends on p - s alone, because both were turned by the same speeds. Nothing is added to
the embedding and values are not turned. Tables are made once per forward for each distinct spec (Gemma 3 has two), from
the positions; nothing is cached in the model. The next file to read is alibi.py.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unembed.model.spec import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling

# Of each rotated entry: the cosine of its pair's angle, and the sine, negative for the first of a pair.
Tables = tuple[Float[Tensor, "#batch pos 1 rotated"], Float[Tensor, "#batch pos 1 rotated"]]


def frequencies(
    spec: Rotary, d_head: int, n_tokens: Int[Tensor, "#batch"] | None = None
) -> Float[Tensor, "*batch pair"]:
    """Radians per position of each pair, in float64, after scaling. Local axis: pair, n_rotated / 2 of them.

    theta^(-2i/n) unscaled. `n_tokens` is the length of each sequence so far: only dynamic scaling looks at it, and then
    every sequence has its own frequencies.
    """
    n = spec.n_rotated(d_head)
    device = None if n_tokens is None else n_tokens.device
    exponents = torch.arange(0, n, 2, dtype=torch.float64, device=device) / n
    plain = spec.theta**-exponents
    match spec.scaling:
        case LinearScaling(factor=factor):
            return plain / factor
        case DynamicScaling() as scaling if n_tokens is not None:
            grown = n_tokens.double().clamp(min=scaling.original_context) / scaling.original_context
            theta = spec.theta * (scaling.factor * grown - (scaling.factor - 1)) ** (n / (n - 2))
            return theta[:, None] ** -exponents
        case Llama3Scaling() as scaling:
            return _llama3(scaling, plain)
        case YarnScaling() as scaling:
            return _yarn(scaling, plain, spec.theta)
        case _:
            return plain


def rotary_tables(
    spec: Rotary,
    d_head: int,
    positions: Int[Tensor, "#batch pos"],
    n_tokens: Int[Tensor, "#batch"],
    dtype: torch.dtype,
) -> Tables:
    """Cosine and sine of position * frequency, shaped to meet q and k. Angles are float64 before they are rounded."""
    speeds = frequencies(spec, d_head, n_tokens).to(positions.device)
    # dynamic scaling gives each sequence its own speeds [batch, pair]; the others share [pair]
    angles = positions[..., None].double() * (speeds[:, None, :] if speeds.ndim == 2 else speeds)
    amplitude = spec.scaling.attention_factor if isinstance(spec.scaling, YarnScaling) else 1.0
    cos, sin = (angles.cos() * amplitude).to(dtype), (angles.sin() * amplitude).to(dtype)
    if spec.pairing == "half":
        cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    else:
        cos, sin = torch.stack((cos, cos), -1).flatten(-2), torch.stack((-sin, sin), -1).flatten(-2)
    return cos[:, :, None, :], sin[:, :, None, :]


def rotate(
    spec: Rotary, x: Float[Tensor, "batch pos heads d_head"], tables: Tables
) -> Float[Tensor, "batch pos heads d_head"]:
    """Turns each pair (a, b) of each head into (a cos - b sin, b cos + a sin); `heads` is head or kv_head.

    `half` pairs entry i with i + n/2, `interleaved` 2i with 2i + 1. Entries beyond the rotated part pass unchanged.
    """
    cos, sin = tables
    n = cos.shape[-1]
    turned = x if n == x.shape[-1] else x[..., :n]
    is_half = spec.pairing == "half"
    other = turned.roll(n // 2, -1) if is_half else turned.reshape(*turned.shape[:-1], -1, 2).flip(-1).flatten(-2)
    out = turned * cos + other * sin
    return out if n == x.shape[-1] else torch.cat((out, x[..., n:]), dim=-1)


def _llama3(scaling: Llama3Scaling, plain: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    """Keeps pairs that turn often within the original context, slows the slow ones, and ramps between by wavelength.

    Source: Llama 3.1's reference code, `apply_scaling`; values checked against bug-reports A11.
    """
    turns = plain * scaling.original_context / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (kept + (1 - kept) / scaling.factor)


def _yarn(scaling: YarnScaling, plain: Float[Tensor, " pair"], theta: float) -> Float[Tensor, " pair"]:
    """Ramps over pair numbers between those that turn beta_fast and beta_slow times within the original context.

    Source: Peng et al. 2023, arXiv:2309.00071, section 3.2; rounding of the ramp's ends as in its published code.
    """
    n = 2 * plain.shape[-1]

    def pair_of(turns: float) -> float:
        return n * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncates:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    high = high + 0.001 if low == high else high
    ramp = (torch.arange(n // 2, dtype=torch.float64, device=plain.device) - low) / (high - low)
    divided = ramp.clamp(0, 1)
    return plain * (1 - divided) + plain / scaling.factor * divided
