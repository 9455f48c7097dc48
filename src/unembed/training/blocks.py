"""What is done to a model's blocks for training, from outside: run again in the backward pass, or compiled.

The model's own code stays the mathematics and knows of neither. Both hold for the passes that train and for no other: an
evaluation, a sample and a forward with a tap inside the blocks run each block as it is written, so they compile nothing
again and see each block once. The next file to read is forward.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unembed.model.attention import AttentionPath
from unembed.model.kv_cache import LayerCache
from unembed.model.masks import Visibility
from unembed.model.positions.rotary import Tables
from unembed.model.taps import Tap, no_tap
from unembed.model.transformer import Transformer
from unembed.training.config import TrainingConfig

Forward = Callable[..., Any]
MOST_OF_A_REASON = 160


def prepare_blocks(model: Transformer, training: TrainingConfig, context_length: int) -> str | None:
    """Does to the blocks what the settings say. Returns why they are not compiled, where that was asked for and failed."""
    why = None
    if training.compile:
        shape = (training.batch_size, context_length)
        ids = torch.zeros(shape, dtype=torch.int64, device=model.embed.table.device)
        why = compile_blocks(model, ids, training.dropout)
    if training.checkpoint_activations:
        recompute_blocks(model)
    return why


def recompute_blocks(model: Transformer) -> None:
    """Lets the backward pass run each block a second time, instead of keeping what the first run made inside it.

    What enters a block is all that is kept of it (activation checkpointing, arXiv:1604.06174). Loss and gradients are the
    same to the last bit, dropout too: the second run draws from the state of the generators at the first. It costs one
    forward pass of the blocks a step, about a quarter of their time.
    """
    for block in model.blocks:
        block.forward = partial(_in_training, _forward_of(block), partial(_twice, _trained_by(block)))


def compile_blocks(model: Transformer, ids: Tensor, dropout: float) -> str | None:
    """Compiles the blocks and tries a forward and a backward pass on ids of the shape that training will have.

    One graph serves all blocks alike, and no other shape comes by. Returns None, or why they cannot be compiled here: then
    they are as they were. No gradient is left behind, and no random number of the run is drawn.
    """
    before = [block.__dict__.get("forward") for block in model.blocks]
    for block in model.blocks:
        block.forward = partial(_in_training, _forward_of(block), torch.compile(_forward_of(block)))
    try:
        with torch.random.fork_rng([] if ids.device.type == "cpu" else [ids.device]):
            parameters = [p for p in model.blocks.parameters() if p.requires_grad]
            total = model.hidden(ids, dropout=dropout).sum()
            torch.autograd.grad(total, parameters, allow_unused=True)
    except (RuntimeError, OSError) as error:  # what the compiler and its compiler raise derives from these
        for block, forward in zip(model.blocks, before, strict=True):
            if forward is None:
                del block.forward
            else:
                block.forward = forward
        return _reason(error)
    return None


def _in_training(
    plain: Forward,
    prepared: Forward,
    resid: Float[Tensor, "batch pos d_model"],
    visibility: Visibility,
    tables: Tables | None,
    cache: LayerCache | None,
    tap: Tap,
    path: AttentionPath,
    dropout: float,
) -> Any:
    """The prepared forward in a pass that trains, the plain one in any other."""
    trains = torch.is_grad_enabled() and cache is None and tap is no_tap
    return (prepared if trains else plain)(resid, visibility, tables, cache, tap, path, dropout)


def _twice(forward: Forward, *inputs: Any) -> Any:
    """Keeps the inputs (the last is the dropout) and runs `forward` on them once more when the backward pass comes by."""
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=inputs[-1] > 0)


def _forward_of(block: torch.nn.Module) -> Forward:
    """The block's forward as it is written, whatever stands in its place by now."""
    found: Forward = block.forward
    while isinstance(found, partial):
        found = found.args[0]
    return found


def _trained_by(block: torch.nn.Module) -> Forward:
    """The forward that training uses by now: the compiled one, if it was compiled, otherwise the one that is written."""
    found: Forward = block.forward
    return found.args[1] if isinstance(found, partial) else found


def _reason(error: BaseException) -> str:
    """The cause of all causes in a line: a compiler's own error is wrapped in several others."""
    while error.__cause__ is not None:
        error = error.__cause__
    inner = getattr(error, "inner_exception", None)
    lines = [line for line in str(inner or error).splitlines() if line.strip()]
    told = " ".join(lines[0].split()) if lines else type(inner or error).__name__
    return told if len(told) <= MOST_OF_A_REASON else f"{told[: MOST_OF_A_REASON - 1]}…"
