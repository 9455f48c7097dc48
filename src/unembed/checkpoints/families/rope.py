"""Rotary positions as config.json describes them, in both of its forms, and back.

Since version 5 of transformers one object, `rope_parameters`, holds theta, the kind and its numbers; older files have
`rope_theta` beside a `rope_scaling` whose kind stands under `type` or `rope_type`. A kind that is not known stops the
load: parsed and forgotten scaling is right for short prompts and noise for long ones. The next file to read is gpt2.py.

Source: transformers, modeling_rope_utils.py, `RotaryEmbeddingConfigMixin` and the `_compute_*_parameters`.
"""

import math
from collections.abc import Sequence
from typing import Any

from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.spec import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling

Scaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling
_KINDS = {name: name for name in ("default", "linear", "dynamic", "llama3", "yarn")}


def read_rope(
    config: ConfigReader,
    *,
    context_length: int,
    turns_part: bool = False,
    older_theta: str = "rope_theta",
    older_fraction: str = "partial_rotary_factor",
    unsaid_theta: float | None = None,
) -> Rotary:
    """The rotary spec of a config that has one kind of positions. `older_...` are a family's first names of the two numbers.

    turns_part    the family turns a share of each head; the others turn all of it, whatever a file says, so it must say 1
    unsaid_theta  what a file means that has no theta because it was written before the key existed

    Raises: CheckpointError for an unknown kind, a missing theta, or numbers that contradict each other.
    """
    new, old = config.group("rope_parameters"), config.group("rope_scaling")
    if new is not None and old is not None:
        raise config.error("gives both rope_parameters and rope_scaling; which of the two holds cannot be told")
    groups = [group for group in (new, old) if group is not None]
    theta = _agreed(config, groups, "rope_theta", older_theta)
    fraction = _agreed(config, groups, "partial_rotary_factor", older_fraction) if turns_part else 1.0
    if theta is None and unsaid_theta is None:
        raise config.error("rope_theta is missing, in the config and in rope_parameters. Theta decides every angle.")
    if fraction is None:
        raise config.error(
            "partial_rotary_factor is missing, in the config and in rope_parameters: what share of a head turns?"
        )
    if not turns_part:
        for reader in (config, *groups):
            reader.only("partial_rotary_factor", 1.0, 1, reason="this family turns whole heads")
    scaling = read_scaling(groups[0], context_length) if groups else None
    return rotary(theta=theta or unsaid_theta or 0.0, fraction=fraction, scaling=scaling)


def read_rope_group(rope: ConfigReader, context_length: int) -> Rotary:
    """The rotary spec of one rope object that holds everything, as Gemma 3 has one for each kind of layer."""
    rope.only("partial_rotary_factor", 1.0, 1, reason="this family turns whole heads")
    return rotary(theta=rope.number("rope_theta"), scaling=read_scaling(rope, context_length))


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
            if original not in (None, context_length):
                raise rope.error(
                    f"original_max_position_embeddings is {original}, but dynamic scaling grows from "
                    f"max_position_embeddings, {context_length}; programs disagree about which of the two holds"
                )
            return DynamicScaling(factor=rope.number("factor"), original_context=context_length)
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
            rope.only("factor", 1.0, 1, reason="rope_type is default, and plain positions are not scaled")
            return None


def write_rope(position: Rotary, *, turns_part: bool = False) -> dict[str, Any]:
    """The `rope_parameters` of a rotary spec; a family that turns whole heads does not name the share."""
    made: dict[str, Any] = {"rope_theta": position.theta}
    if turns_part:
        made["partial_rotary_factor"] = position.fraction
    match position.scaling:
        case None:
            return made | {"rope_type": "default"}
        case LinearScaling(factor=factor):
            return made | {"rope_type": "linear", "factor": factor}
        case DynamicScaling(factor=factor):
            return made | {"rope_type": "dynamic", "factor": factor}
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


def _agreed(config: ConfigReader, groups: Sequence[ConfigReader], key: str, older: str) -> float | None:
    """A number that may stand in the config, under an older name too, and inside its rope object; None if nowhere."""
    found = {name: config.number(name, None) for name in dict.fromkeys((key, older))}
    found |= {f"{key} inside the rope object": group.number(key, None) for group in groups}
    given = {name: value for name, value in found.items() if value is not None}
    if len(set(given.values())) > 1:
        raise config.error(f"{' and '.join(f'{name} = {value}' for name, value in given.items())}: they must agree")
    return next(iter(given.values()), None)
