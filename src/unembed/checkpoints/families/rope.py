"""Rotary positions as config.json describes them, in both of its forms, and back.

Since version 5 of transformers one object, `rope_parameters`, holds theta, the kind and its numbers; older files have
`rope_theta` beside a `rope_scaling` whose kind stands under `type` or `rope_type`. A kind that is not known stops the
load: parsed and forgotten scaling is right for short prompts and noise for long ones. The next file to read is gpt2.py.

Source: transformers, modeling_rope_utils.py, `RotaryEmbeddingConfigMixin` and the `_compute_*_parameters`.
"""

import math
from typing import Any

from unembed.checkpoints.accounting import ConfigReader
from unembed.model.spec import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling

Scaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling
_KINDS = {name: name for name in ("default", "linear", "dynamic", "llama3", "yarn")}


def read_rope(
    config: ConfigReader, *, d_head: int, context_length: int, default_fraction: float = 1.0, fraction_key: str = ""
) -> Rotary:
    """The rotary spec of a config that has one kind of positions. `fraction_key` is the older name of the turned share.

    Raises: CheckpointError for an unknown kind, a missing theta, or numbers that contradict each other.
    """
    new, old = config.group("rope_parameters"), config.group("rope_scaling")
    theta, fraction = config.number("rope_theta", None), None
    for key in filter(None, ("partial_rotary_factor", fraction_key)):
        fraction = config.number(key, None) or fraction
    if new is not None and old is not None:
        raise config.error("gives both rope_parameters and rope_scaling; which of the two holds cannot be told")
    inner = new or old
    scaling = None
    if inner is not None:
        theta = _agreed(config, "rope_theta", theta, inner.number("rope_theta", None))
        fraction = _agreed(config, "partial_rotary_factor", fraction, inner.number("partial_rotary_factor", None))
        scaling = read_scaling(inner, context_length)
    if theta is None:
        raise config.error("rope_theta is missing. The config must give it; theta decides every angle.")
    return rotary(theta=theta, fraction=default_fraction if fraction is None else fraction, scaling=scaling)


def rotary(*, theta: float, fraction: float = 1.0, scaling: Scaling | None = None) -> Rotary:
    """Rotary positions on half-split pairs, as every file of this format has them."""
    return Rotary(theta=theta, pairing="half", fraction=fraction, scaling=scaling)


def read_scaling(rope: ConfigReader, context_length: int) -> Scaling | None:
    """The scaling of one rope object, None for the plain kind. Raises: CheckpointError for a kind that is not known."""
    words = [word for key in ("rope_type", "type") if (word := rope.one_of(key, _KINDS, "default")) and key in rope]
    if len(set(words)) > 1:
        raise rope.error(f"rope_type and type are {words}; they must agree")
    kind = words[0] if words else "default"
    # where a file does not say, the trained length is that of the config
    original = rope.integer("original_max_position_embeddings", None)
    match kind:
        case "linear":
            rope.excuse({"original_max_position_embeddings": "linear scaling does not look at it"})
            return LinearScaling(factor=rope.number("factor"))
        case "dynamic":
            return DynamicScaling(factor=rope.number("factor"), original_context=original or context_length)
        case "llama3":
            if original is None:
                raise rope.error("original_max_position_embeddings is missing; llama3 scaling needs it")
            return Llama3Scaling(
                factor=rope.number("factor"),
                low_frequency_factor=rope.number("low_freq_factor"),
                high_frequency_factor=rope.number("high_freq_factor"),
                original_context=original,
            )
        case "yarn":
            return _yarn(rope, original or context_length)
        case _:
            rope.only("factor", 1.0, 1, reason="plain positions are not scaled")
            return None


def write_rope(position: Rotary) -> dict[str, Any]:
    """The `rope_parameters` of a rotary spec."""
    made: dict[str, Any] = {"rope_theta": position.theta}
    if position.fraction != 1.0:
        made["partial_rotary_factor"] = position.fraction
    match position.scaling:
        case None:
            return made | {"rope_type": "default"}
        case LinearScaling(factor=factor):
            return made | {"rope_type": "linear", "factor": factor}
        case DynamicScaling(factor=factor, original_context=original):
            return made | {"rope_type": "dynamic", "factor": factor, "original_max_position_embeddings": original}
        case Llama3Scaling() as scaling:
            return made | {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_frequency_factor,
                "high_freq_factor": scaling.high_frequency_factor,
                "original_max_position_embeddings": scaling.original_context,
            }
        case YarnScaling() as scaling:
            return made | {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "attention_factor": scaling.attention_factor,
                "truncate": scaling.truncates,
                "original_max_position_embeddings": scaling.original_context,
            }


def _yarn(rope: ConfigReader, original: int) -> YarnScaling:
    """arXiv:2309.00071; attention_factor is 0.1 ln(factor) + 1 unless the file gives it, or DeepSeek's two scales."""
    factor = rope.number("factor")
    given = rope.number("attention_factor", None)
    scale, scale_all = rope.number("mscale", None), rope.number("mscale_all_dim", None)
    if given is None:

        def amplitude(weight: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

        given = amplitude(scale) / amplitude(scale_all) if scale and scale_all else amplitude(1.0)
    return YarnScaling(
        factor=factor,
        original_context=original,
        beta_fast=rope.number("beta_fast", None) or 32.0,
        beta_slow=rope.number("beta_slow", None) or 1.0,
        attention_factor=given,
        truncates=rope.flag("truncate", True),
    )


def _agreed(config: ConfigReader, name: str, outer: float | None, inner: float | None) -> float | None:
    if outer is not None and inner is not None and outer != inner:
        raise config.error(f"{name} is {outer} in the config and {inner} inside its rope object; they must agree")
    return inner if outer is None else outer
