"""How a model is to be trained: on how many devices, shared in which way, with what batch and which of the savings.

Two kinds of sharing are planned. `ddp` keeps the whole model on each device and sums the gradients; `fsdp` cuts
weights, gradients and moments into as many parts as there are devices, gathers each block's weights before it runs,
forward and again on the way back, and hands each device its part of the summed gradient. The next file to read is
sharding.py.
"""

from typing import Any, Literal

import msgspec

from unembed.errors import UsageError

Parallel = Literal["none", "ddp", "fsdp"]
MOST_DEVICES = 1_000_000
# What the chunked loss holds at once in training (objectives/chunked.py), without importing torch for it.
SCORES_AT_ONCE = 1 << 23


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to train. Weights, moments and summed gradients are float32; `dtype` is that of products and activations.

    batch_size      sequences of one micro-batch on one device; a step does `accumulate` of them before the update
    recomputed      the share of the blocks' forward work that is done again on the way back: 1 where every block is
                    checkpointed, 0 where none is; what lies between keeps some results and not others
    compiles        passes over tensors are joined by torch.compile
    scores_at_once  logits that the chunked loss holds; None is the plain loss
    """

    devices: int = 1
    parallel: Parallel = "none"
    batch_size: int = 1
    context_length: int = 1024
    accumulate: int = 1
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    recomputed: float = 0.0
    compiles: bool = False
    scores_at_once: int | None = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one update, over all devices."""
        return self.devices * self.accumulate * self.batch_size * self.context_length


def plain_setup(**fields: Any) -> Setup:
    """A setup from plain values, checked. Raises: UsageError."""
    try:
        return check_setup(msgspec.convert(fields, Setup))
    except msgspec.ValidationError as error:
        raise UsageError(f"plan: {error}") from error


def check_setup(setup: Setup) -> Setup:
    """Refuses what cannot be: sizes below one, shares beyond one, several devices that share nothing. Raises: UsageError."""
    for name in ("devices", "batch_size", "context_length", "accumulate"):
        value = getattr(setup, name)
        if not 1 <= value <= MOST_DEVICES:
            raise UsageError(f"plan: {name} is {value:,}; it must be at least 1 and at most {MOST_DEVICES:,}")
    if not 0 <= setup.recomputed <= 1:
        raise UsageError(f"plan: recomputed is {setup.recomputed}; it is a share, from 0 to 1")
    if (setup.devices > 1) == (setup.parallel == "none"):
        expected = "ddp or fsdp" if setup.devices > 1 else "none"
        raise UsageError(f"plan: parallel is {setup.parallel} on {setup.devices} devices; expected {expected}")
    return setup
