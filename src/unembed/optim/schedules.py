"""How the learning rate moves over a run: warm-up, then a cosine or a plateau, then down.

A rate is a pure function of the step, so a resumed run has nothing to restore. The next file to read is
training/config.py.
"""

import math

import msgspec


class Cosine(msgspec.Struct, tag="cosine", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Linear warm-up, then half a cosine from `peak`, so fast that the step after the last would stand at `floor`.

    Source: nanoGPT's train.py, get_lr.
    """

    peak: float
    floor: float
    warmup_steps: int


class Plateau(msgspec.Struct, tag="plateau", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Linear warm-up, `peak` held, then a straight line over the last `decay_steps` (warmup-stable-decay).

    Like the cosine, the line would reach `floor` at the step after the last.
    Source: Hu et al. 2024, arXiv:2404.06395, section 4.
    """

    peak: float
    floor: float
    warmup_steps: int
    decay_steps: int


Schedule = Cosine | Plateau
NAMES = ("cosine", "plateau")
# The share of a run over which a plateau's rate falls where nobody says another.
DECAY_SHARE = 0.6


def schedule_of(name: str, like: Schedule, n_steps: int) -> Schedule:
    """The schedule of a name, with the numbers that it has in common with another.

    >>> schedule_of("plateau", Cosine(peak=1.0, floor=0.0, warmup_steps=2), 10).decay_steps
    6
    """
    numbers = {name: getattr(like, name) for name in Cosine.__struct_fields__}
    if name == "cosine":
        return Cosine(**numbers)
    return like if isinstance(like, Plateau) else Plateau(**numbers, decay_steps=max(1, round(DECAY_SHARE * n_steps)))


def learning_rate(schedule: Schedule, step: int, n_steps: int) -> float:
    """The rate of step `step`, counted from 0, in a run of `n_steps`.

    Warm-up rises in equal parts and reaches the peak at step `warmup_steps`; step 0 already moves a little.

    >>> [learning_rate(Cosine(peak=1.0, floor=0.0, warmup_steps=2), s, 6) for s in (0, 1, 2, 4)]
    [0.3333333333333333, 0.6666666666666666, 1.0, 0.5]
    """
    if step < schedule.warmup_steps:
        return schedule.peak * (step + 1) / (schedule.warmup_steps + 1)
    if isinstance(schedule, Cosine):
        progress = (step - schedule.warmup_steps) / max(1, n_steps - schedule.warmup_steps)
        return schedule.floor + (schedule.peak - schedule.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    left = max(0, n_steps - step)
    share = min(1.0, left / schedule.decay_steps) if schedule.decay_steps else 1.0
    return schedule.floor + (schedule.peak - schedule.floor) * share
