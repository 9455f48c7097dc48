"""What a training step takes in memory, in bytes and by part, from the spec alone: nothing is allocated.

The largest part is often what autograd keeps from the forward pass for the backward one. kept.py, the next file to
read, lists it; here it is added up with weights, gradients, optimizer states and the loss, and followed through the
step to its highest moment. That is what tensors take. A process takes more: see `process_peak`.
"""

from typing import Literal

import msgspec

from unembed.errors import SpecError
from unembed.model.counts import BYTES_PER_NUMBER, TensorInfo, count, tensors
from unembed.model.spec import Block, GatedMlp, TransformerSpec
from unembed.planning.kept import FLOAT32, INT64, Batch, kept_by_block, kept_by_embedding, kept_by_head, vector_bytes

# Moments that an optimizer keeps for each parameter, in the parameter's own number type.
STATES_PER_PARAMETER = {"sgd": 0, "momentum": 1, "adamw": 2}

# Two measurements on a CPU under Linux, torch 2.13, in a process that gives freed tensors back (runtime.give_memory_back; one
# that does not keeps up to half as much again). What the first training steps bring into memory of torch's own code and
# buffers; and what its checkpointing imports with the first block that it runs again.
FIRST_STEP_BYTES = 40_000_000
CHECKPOINTING_BYTES = 90_000_000


class TrainingShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a training step is fed and the choices that trade time for memory.

    batch_size, context_length   of one micro-batch; every position is real and has a target
    dtype                 of weights, gradients, states and activations; the loss works in float32 all the same
    scores_at_once        logits that the chunked loss holds, cut over tokens; None is the plain loss, which holds all
    checkpoints_blocks    keep only what enters each block, and run the block again in the backward pass
    accumulates           the gradients of earlier micro-batches are there while this one runs
    """

    batch_size: int
    context_length: int
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    optimizer: Literal["sgd", "momentum", "adamw"] = "adamw"
    scores_at_once: int | None = None
    checkpoints_blocks: bool = False
    accumulates: bool = False


class TrainingMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes by part. The parts are not all there at once, so `peak` is less than their sum.

    activations   kept at the end of the forward pass: `embedding`, then `stream` (what flows between attention, MLP and
                  norms), `attention`, `mlp` and `norms` over all blocks, then `head`
    loss          the most that logits, log-probabilities and the gradients of both take at once
    workspace     the most that the backward pass of one block holds besides (and the block's own activations, if it has
                  to be run again)
    peak          the most that all tensors take at once
    peak_at       the moment of the peak: the backward pass of the `loss` or of the `blocks`, or its `end`
    process_peak  by how much a fresh process on a CPU grows that gives freed tensors back: the peak, and torch's own memory
    """

    weights: int
    gradients: int
    optimizer_states: int
    activations: dict[str, int]
    loss: int
    workspace: int
    peak: int
    peak_at: Literal["loss", "blocks", "end"]
    process_peak: int


def weight_bytes(spec: TransformerSpec) -> dict[str, int]:
    """What the parameters take in memory or in a file, by number type.

    >>> from unembed.model.presets import preset
    >>> weight_bytes(preset("gpt2").spec)["bfloat16"]
    248879616
    """
    return {dtype: count(spec).parameters * size for dtype, size in BYTES_PER_NUMBER.items()}


def training_memory(spec: TransformerSpec, shape: TrainingShape) -> TrainingMemory:
    """Adds up what a training step on fused attention takes, without padding and dropout, and finds its peak.

    Three moments are compared. At the loss all activations are kept. Then, from the last block to the first,
    activations go and gradients come. At the end all gradients are there, and for a moment a tied table has three: the
    head's, the embedding's, and their sum; the chunked loss's own is fresh, and takes the embedding's up in place.
    Raises: SpecError when a size is not positive or the number type or optimizer is not one of those above.
    """
    _check(shape)
    size = BYTES_PER_NUMBER[shape.dtype]
    batch = Batch(shape.batch_size, shape.context_length, size)
    weights = count(spec).parameters * size
    states = STATES_PER_PARAMETER[shape.optimizer] * weights
    blocks = [kept_by_block(block, spec.embedding.d_model, batch) for block in spec.blocks]
    entering = vector_bytes(spec.embedding.d_model, batch)
    activations = {"embedding": kept_by_embedding(spec, batch)}
    for part in ("stream", "attention", "mlp", "norms"):
        activations[part] = 0 if shape.checkpoints_blocks else sum(block[part] for block in blocks)
    if shape.checkpoints_blocks:
        activations["stream"] = spec.n_layers * entering
    # the chunked loss has used what enters the last product, and keeps its gradient instead
    activations["head"] = kept_by_head(spec, batch) - (0 if shape.scores_at_once is None else entering)

    loss = _loss(spec, shape, batch)
    held = weights + states + (weights if shape.accumulates else 0)
    at_loss = held + sum(activations.values()) + loss
    at_blocks, workspace = _highest_block(spec, shape, batch, [sum(block.values()) for block in blocks])
    table = count(spec).table_parameters * size
    more = (2 if shape.scores_at_once is None else 1) if spec.ties_embeddings else 1 if shape.accumulates else 0
    at_end = weights + states + weights + more * table
    moments = {"loss": at_loss, "blocks": held + activations["embedding"] + at_blocks, "end": at_end}
    peak_at = max(moments, key=moments.__getitem__)
    return TrainingMemory(
        weights=weights,
        gradients=weights,
        optimizer_states=states,
        activations=activations,
        loss=loss,
        workspace=workspace,
        peak=moments[peak_at],
        peak_at=msgspec.convert(peak_at, Literal["loss", "blocks", "end"]),
        process_peak=moments[peak_at] + FIRST_STEP_BYTES + (CHECKPOINTING_BYTES if shape.checkpoints_blocks else 0),
    )


def _loss(spec: TransformerSpec, shape: TrainingShape, batch: Batch) -> int:
    """Log-probabilities, their gradient and the logits' gradient at once; later the logits' and the table's.

    The chunked loss makes the gradients of the table and of what enters the head beside one buffer of scores, and scales
    them in place when the loss turns back. The targets are there in both.
    """
    vocab_size, d_model = spec.embedding.vocab_size, spec.embedding.d_model
    n_tokens, is_capped = batch.n_tokens, spec.head.softcap is not None
    gradients = (vocab_size + n_tokens) * d_model
    if shape.scores_at_once is not None:
        buffer = min(n_tokens, max(1, shape.scores_at_once // vocab_size)) * vocab_size * (2 if is_capped else 1)
        return FLOAT32 * (gradients + buffer) + INT64 * n_tokens
    logits = n_tokens * vocab_size
    capped = logits * batch.number_bytes if is_capped else 0
    plain = max(3 * logits * FLOAT32, logits * FLOAT32 + gradients * batch.number_bytes)
    return plain + capped + INT64 * n_tokens


def _highest_block(spec: TransformerSpec, shape: TrainingShape, batch: Batch, kept: list[int]) -> tuple[int, int]:
    """The most that activations, new gradients and workspace take while the blocks turn back, and the largest workspace."""
    new = {"head": 0}
    for tensor in tensors(spec):
        owner = _owner(tensor)
        new[owner] = new.get(owner, 0) + batch.number_bytes * tensor.n_numbers
    done = 0 if shape.accumulates else new["head"]
    if spec.ties_embeddings and not shape.accumulates:
        done += batch.number_bytes * spec.embedding.vocab_size * spec.embedding.d_model
    entering = vector_bytes(spec.embedding.d_model, batch)
    below = spec.n_layers * entering if shape.checkpoints_blocks else sum(kept)
    highest, largest = 0, 0
    for layer in reversed(range(spec.n_layers)):
        again = kept[layer] - entering if shape.checkpoints_blocks else 0
        workspace = again + _turning_back(spec.blocks[layer], spec.embedding.d_model, batch)
        highest, largest = max(highest, done + below + workspace), max(largest, workspace)
        below -= entering if shape.checkpoints_blocks else kept[layer]
        done += 0 if shape.accumulates else new[f"blocks.{layer}"]
    return highest, largest


def _turning_back(block: Block, d_model: int, batch: Batch) -> int:
    """Gradients in flight, less what of the block's insides has gone by then: those of the stream on both ways, and

    in the MLP    of its inside, when what `down` took in has gone
    in attention  of q, k, v (turned or not) and z, when all of the MLP has gone
    """
    attention, n_inside = block.attention, 2 if isinstance(block.mlp, GatedMlp) else 1
    width = (3 * attention.n_heads + 4 * attention.n_kv_heads) * attention.d_head
    in_attention = vector_bytes(width, batch) - kept_by_block(block, d_model, batch)["mlp"]
    return vector_bytes(2 * d_model, batch) + max(vector_bytes(n_inside * block.mlp.d_mlp, batch), in_attention)


def _owner(tensor: TensorInfo) -> str:
    """`blocks.3`, `embed`, or `head` for all that comes after the blocks."""
    path = tensor.name.split(".")
    return ".".join(path[:2]) if path[0] == "blocks" else "embed" if path[0] == "embed" else "head"


def _check(shape: TrainingShape) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(shape), TrainingShape)
    except msgspec.ValidationError as error:
        raise SpecError(f"training shape: {error}") from error
    for name in ("batch_size", "context_length", "scores_at_once"):
        value = getattr(shape, name)
        if value is not None and value < 1:
            raise SpecError(f"training shape: {name} is {value}; it must be at least 1")
