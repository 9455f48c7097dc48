"""Claim: a run that was stopped at one checkpoint and taken up again arrives at the next one, bit for bit."""

import itertools

import msgspec
import torch

from unembed.checkpoints.load import CONFIG_KEY, CONVERTED_KEY, THREADS_KEY
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import Checkpoint
from unembed.checkpoints.run.state import model_tensors, optimizer_tensors
from unembed.corpora.shards import TokenShards
from unembed.model.init import build
from unembed.runtime import has_bfloat16, set_threads
from unembed.training.config import config_of
from unembed.training.loop import Trainer
from unembed.training.parallel import Parallel
from unembed.tying.watch import TableWatch
from unembed.verify.claim import Claim, Subject, judged, skipped

NAME = "exact resume"
DATA = "data"
# Training steps that are done at most; checkpoints further apart than that are not bridged.
MOST_STEPS = 500


def claim(subject: Subject) -> Claim:
    """Trains from one stored checkpoint to the next stored one, in memory, and compares weights and moments."""
    run = subject.run
    if run is not None and CONVERTED_KEY in run.description:
        return skipped(NAME, "convert wrote this folder: weights without a training, so there is nothing to resume")
    if run is None or CONFIG_KEY not in run.description or "training" not in run.description[CONFIG_KEY]:
        return skipped(NAME, "this model is no run, so there is nothing to resume")
    pair = _nearest(run.checkpoints())
    if pair is None:
        return skipped(NAME, f"the run keeps no two checkpoints at most {MOST_STEPS} steps apart")
    if not (run.path / DATA).is_dir():
        return skipped(NAME, f"the run's {DATA} folder is gone, and training needs it")
    first, second = pair
    if (most := max(one.state.get("processes", 1) for one in pair)) > 1:
        return skipped(NAME, f"{most} processes trained there, whose sums round otherwise than one process's")
    if (why := _cannot_round_alike(run)) is not None:
        return skipped(NAME, why)
    noted, in_force = run.description.get(THREADS_KEY), set_threads(None)
    try:
        # sums are rounded by the number of threads, so this has to be the run's own
        set_threads(noted if type(noted) is int and noted >= 1 else None)
        changed = _differing(run, first, second)
    finally:
        set_threads(in_force)
    detail = f"trained again from step {first.step} to {second.step}; weights and both moments against the stored ones"
    if changed:
        detail += (
            f"; {len(changed)} differ: {changed[:3]}. Other versions ({run.description.get('versions')}), settings changed on "
            "the way, or another number of threads can do that as well as a damaged file"
        )
    return judged(NAME, float(len(changed)), 0.0, detail)


def _cannot_round_alike(run: RunFolder) -> str | None:
    """Why a run in half precision cannot be trained again as it was; None where it can."""
    training = config_of(run.description, run.path).training
    if training.precision != "bfloat16":
        return None
    if training.parallel == "fsdp":
        return "the run gathered its weights in bfloat16 (parallel=fsdp), which rounds otherwise than one process does"
    why = has_bfloat16("cpu")
    return None if why is True else f"the run's precision is bfloat16, but {why}"


def _nearest(checkpoints: list[Checkpoint]) -> tuple[Checkpoint, Checkpoint] | None:
    """The last two neighbours that are close enough."""
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.step)
    close = [pair for pair in itertools.pairwise(ordered) if pair[1].step - pair[0].step <= MOST_STEPS]
    return close[-1] if close else None


def _differing(run: RunFolder, first: Checkpoint, second: Checkpoint) -> list[str]:
    config = config_of(run.description, run.path)
    shards = TokenShards.open(run.path / DATA)
    model = build(config.model, config.init, seed=config.seed)
    watch = TableWatch(model, **msgspec.structs.asdict(config.training.tying))
    # products are rounded by the run's precision: in float32 a sound run of bfloat16 would differ everywhere
    parallel = Parallel(precision=config.training.precision)
    trainer = Trainer(model, config, shards.train, shards.val, watch=watch, parallel=parallel)
    trainer.resume(first.weights(), first.optimizer(), first.state, str(first.path))
    while trainer.step_number < second.step:
        trainer.step()
    pairs = [
        (model_tensors(trainer.model), second.weights()),
        (optimizer_tensors(trainer.model, trainer.optimizer), second.optimizer()),
    ]
    return [
        name
        for ours, stored in pairs
        for name in sorted(ours.keys() | stored.keys())
        if name not in ours or name not in stored or not torch.equal(ours[name], stored[name])
    ]
