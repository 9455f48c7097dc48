"""What one device holds and sends when a model is trained on several: bytes by part, from the spec alone.

Sent per step and device, N devices, W bytes of weights in the products' type, G bytes of gradients in float32:

    ddp    all-reduce of G                                              2 (N - 1) / N * G
    fsdp   gather W forward and back, for each micro-batch, and scatter G   (N - 1) / N * (2 W + G)

(Rajbhandari et al. 2020, arXiv:1910.02054, section 7, with both types told apart.) A tied table is gathered once for both
its uses, since embedding and head are one unit. The next file to read is step_time.py.
"""

import msgspec

from unembed.model.counts import count, tensors
from unembed.model.spec import TransformerSpec
from unembed.planning.memory import CHECKPOINTING_BYTES, FIRST_STEP_BYTES, TrainingShape, training_memory
from unembed.planning.rates import BYTES
from unembed.planning.setup import Setup

# What gloo, and what wraps a model, bring into a process of several (measured on a tiny model, torch 2.13).
GROUP_BYTES = 30_000_000


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one device by part; `peak` is the most that is there at once, so less than the sum.

    gathered    whole weights, in the products' type, of what runs now: embedding and head, and two blocks, since the next
                one's are fetched meanwhile; alone or with ddp in half precision a second copy of all, and with ddp
                the buckets of all gradients
    process     on cores: torch's own code and buffers, and freed pieces that the allocator keeps
    """

    weights: int
    gradients: int
    optimizer_states: int
    gathered: int
    activations: int
    loss: int
    workspace: int
    process: int
    peak: int
    peak_at: str


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one device sends in a step, and in how many calls, forward and back."""

    forward_bytes: int
    forward_calls: int
    backward_bytes: int
    backward_calls: int

    @property
    def total_bytes(self) -> int:
        """Of the whole step."""
        return self.forward_bytes + self.backward_bytes


def units(spec: TransformerSpec) -> tuple[int, list[int]]:
    """Numbers in what is gathered together: embedding, final norm and head as one; each block."""
    blocks, root = [0] * spec.n_layers, 0
    for tensor in tensors(spec):
        path = tensor.name.split(".")
        if path[0] == "blocks":
            blocks[int(path[1])] += tensor.n_numbers
        else:
            root += tensor.n_numbers
    return root, blocks


def device_memory(spec: TransformerSpec, setup: Setup, *, on_cores: bool = False) -> DeviceMemory:
    """What one device holds; alone and in float32 that is training_memory's estimate, moment by moment."""
    shape = TrainingShape(
        batch_size=setup.batch_size,
        context_length=setup.context_length,
        dtype=setup.dtype,
        scores_at_once=setup.scores_at_once,
        checkpoints_blocks=setup.recomputed == 1,
        accumulates=setup.accumulate > 1,
    )
    found = training_memory(spec, shape)
    parameters, (root, blocks) = count(spec).parameters, units(spec)
    parts = setup.devices if setup.parallel == "fsdp" else 1
    own, size = -(-parameters // parts), BYTES[setup.dtype]
    # checkpointing some results and not others keeps a share of what checkpointing none keeps
    whole = sum(found.activations.values())
    if 0 < setup.recomputed < 1:
        least = sum(training_memory(spec, msgspec.structs.replace(shape, checkpoints_blocks=True)).activations.values())
        whole = int(whole - setup.recomputed * (whole - least))
    if parts > 1:
        two = sum(sorted(blocks)[-2:])
        gathered, unsharded = (root + two) * size, max([*blocks, root]) * size
    else:
        gathered, unsharded = (0 if setup.dtype == "float32" else parameters * size), 0
        if setup.parallel == "ddp":
            gathered += 4 * parameters  # the buckets in which gradients travel
    if setup.parallel == "none" and setup.dtype == "float32" and setup.recomputed in (0, 1):
        peak, peak_at = found.peak, str(found.peak_at)
    else:
        fixed = 4 * own * 3 + gathered + (4 * own if setup.accumulate > 1 else 0)
        moments = {
            "loss": fixed + whole + found.loss,
            "blocks": fixed + whole + found.workspace + unsharded + 4 * own * (setup.accumulate == 1),
            "end": fixed + 4 * own * (setup.accumulate == 1),
        }
        peak_at = max(moments, key=moments.__getitem__)
        peak = moments[peak_at]
    process = 0
    if on_cores:
        process = FIRST_STEP_BYTES + (CHECKPOINTING_BYTES if setup.recomputed > 0 else 0)
        process += GROUP_BYTES if setup.devices > 1 else 0
    return DeviceMemory(
        weights=4 * own,
        gradients=4 * own,
        optimizer_states=8 * own,
        gathered=gathered,
        activations=whole,
        loss=found.loss,
        workspace=found.workspace,
        process=process,
        peak=peak + process,
        peak_at=peak_at,
    )


def traffic(spec: TransformerSpec, setup: Setup) -> Traffic:
    """What one device sends in a step."""
    n, parameters, n_units = setup.devices, count(spec).parameters, spec.n_layers + 1
    share = (n - 1) / n
    if setup.parallel == "fsdp":
        gather = int(share * parameters * BYTES[setup.dtype])
        return Traffic(
            forward_bytes=setup.accumulate * gather,
            forward_calls=setup.accumulate * n_units,
            backward_bytes=setup.accumulate * gather + int(share * parameters * 4),
            backward_calls=(setup.accumulate + 1) * n_units,
        )
    if setup.parallel == "ddp":
        # buckets of 25 MiB, torch's default
        n_buckets = max(1, -(-parameters * 4 // (25 * 2**20)))
        sent = int(2 * share * parameters * 4)
        return Traffic(forward_bytes=0, forward_calls=0, backward_bytes=sent, backward_calls=n_buckets)
    return Traffic(forward_bytes=0, forward_calls=0, backward_bytes=0, backward_calls=0)


def largest_batch(spec: TransformerSpec, setup: Setup, memory_bytes: int, *, on_cores: bool = False) -> int:
    """The largest micro-batch whose peak fits, 0 where not even one sequence does. The peak grows with the batch."""

    def fits(batch_size: int) -> bool:
        tried = msgspec.structs.replace(setup, batch_size=batch_size)
        return device_memory(spec, tried, on_cores=on_cores).peak <= memory_bytes

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high) and high < 1 << 20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
