"""How much memory the steps of a run take, said before they begin, and a process that keeps to it.

Nothing is said of what planning/memory.py does not count: dropout's masks, compiled blocks, mixed precision, other
optimizers than AdamW. The next file to read is ../planning/memory.py.
"""

from unembed.objectives.chunked import SCORES_AT_ONCE
from unembed.optim.adamw import AdamWConfig
from unembed.planning.memory import TrainingMemory, TrainingShape, training_memory
from unembed.runtime import available_memory, give_memory_back, keep_freed_memory
from unembed.training.config import RunConfig

# Below this a run takes little beside what Python and torch take themselves.
WORTH_SAYING = 300_000_000
# Where so many times the plan is free, a run keeps what it frees.
ROOM_TO_KEEP = 2


def planned(config: RunConfig) -> TrainingMemory | None:
    """What a step of the run takes, by part; None where that is not counted."""
    training = config.training
    is_plain = training.precision == "float32" and isinstance(training.optimizer, AdamWConfig)
    if training.dropout > 0 or training.compile or not is_plain:
        return None
    return _counted(config)


def _counted(config: RunConfig) -> TrainingMemory:
    """As if the optimizer were AdamW, the blocks not compiled, and no dropout."""
    training = config.training
    return training_memory(
        config.model,
        TrainingShape(
            batch_size=training.batch_size,
            context_length=config.model.context_length,
            scores_at_once=SCORES_AT_ONCE if training.chunked_loss else None,
            checkpoints_blocks=training.checkpoint_activations,
            accumulates=training.accumulate > 1,
        ),
    )


def keep_to_plan(config: RunConfig, *, n_processes: int = 1) -> None:
    """Lets the process keep what it frees, a sixth faster and up to half larger than planned, where there is room.

    A large run gives it back where less than twice the plan is free, and where blocks are run again, which is asked for to
    save memory. `n_processes` share the machine.
    """
    peak = _counted(config).process_peak
    free = available_memory()
    is_short = free is not None and free < ROOM_TO_KEEP * n_processes * peak
    if peak >= WORTH_SAYING and (config.training.checkpoint_activations or is_short):
        give_memory_back()
    else:
        keep_freed_memory()


def memory_sentence(config: RunConfig) -> str | None:
    """What is said of a run that takes much: the total, its largest parts, and the settings that would save some of it."""
    memory = planned(config)
    if memory is None or memory.process_peak < WORTH_SAYING:
        return None
    parts = {
        "weights, gradients and optimizer": memory.weights + memory.gradients + memory.optimizer_states,
        "activations": sum(memory.activations.values()),
        "scores and loss": memory.loss,
    }
    told = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in parts.items())
    training, saving = config.training, []
    if parts["scores and loss"] > memory.process_peak / 4 and not training.chunked_loss:
        saving.append("chunked_loss=true")
    if parts["activations"] > memory.process_peak / 4 and not training.checkpoint_activations:
        saving.append("checkpoint_activations=true")
    less = f"; less with --set {' --set '.join(saving)}" if saving else ""
    if not training.checkpoint_activations:
        less += "; where twice that is free, up to half more is kept between steps, for speed"
    return f"memory: steps take about {memory.process_peak / 1e6:,.0f} MB on a CPU ({told}, not all at once){less}"
