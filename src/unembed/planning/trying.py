"""Tries pieces of work on this machine and says how long each took: one child process of measured.py.

    python -m unembed.planning.trying REQUEST ANSWER      reads one file, writes the other

Every piece is run as training runs it: the same kernels, float32, forward with a graph and back through it. Several
children wait for each other before each piece, so that all of them are at the same work. The next file to read is
step_time.py, which adds the pieces up.
"""

import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from unembed.model.mlp import activate
from unembed.model.norms import make_norm
from unembed.model.positions.rotary import rotate
from unembed.model.product import product
from unembed.model.spec import Attention, Causal, LayerNorm, RmsNorm, Rotary
from unembed.planning.pieces import Piece

# Of one piece: at least so many tries, and then until so many seconds are spent on it or so many tries are made.
LEAST_TRIES, MOST_TRIES, SECONDS_EACH = 5, 200, 0.25
# A long piece varies less: two tries are enough when they have taken so long.
LONG_TRIES, LONG_SECONDS = 2, 1.0
UPDATE_NUMBERS = 1 << 22
MESSAGE_BYTES = (1 << 12, 1 << 24)
_MEETING = timedelta(seconds=60)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What one child is asked to try, and with whom: `port` is where the processes meet, 0 for one alone."""

    pieces: list[Piece]
    threads: int
    rank: int
    processes: int
    port: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: of each piece forward and back, of the update per parameter, of a message per byte and per call."""

    pieces: list[tuple[float, float]]
    update: float
    per_byte: float
    per_call: float


def answer(request: Request) -> Answer:
    """Tries everything that is asked for."""
    torch.set_num_threads(request.threads)
    if request.processes > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{request.port}",
            rank=request.rank,
            world_size=request.processes,
            timeout=_MEETING,
        )
    found = []
    for piece in request.pieces:
        work = _work(piece)
        _meet(request)
        found.append(_median(work))
    _meet(request)
    update = _median(_update_work())[0] / UPDATE_NUMBERS
    per_byte, per_call = _messages() if request.processes > 1 else (0.0, 0.0)
    return Answer(pieces=found, update=update, per_byte=per_byte, per_call=per_call)


def _meet(request: Request) -> None:
    if request.processes > 1:
        dist.barrier()


def _median(work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """The middle of several tries, the first one being thrown away, forward and back apart."""
    work()
    tries: list[tuple[float, float]] = []
    began = time.perf_counter()
    while len(tries) < MOST_TRIES:
        tries.append(work())
        took = time.perf_counter() - began
        if (len(tries) >= LEAST_TRIES and took >= SECONDS_EACH) or (len(tries) >= LONG_TRIES and took >= LONG_SECONDS):
            break
    return statistics.median(one for one, _ in tries), statistics.median(two for _, two in tries)


def _work(piece: Piece) -> Callable[[], tuple[float, float]]:
    """A function that does a piece once and says how long both ways took."""
    rows, width = piece.shape[:2]
    what: Any = piece.what
    match piece.kind:
        case "product":
            return _timed(product, _leaf(rows, width), _leaf(piece.shape[2], width))
        case "attention":
            return _attention(what, rows, width)
        case "norm":
            assert isinstance(what, LayerNorm | RmsNorm)
            norm = make_norm(what, width)
            for parameter in norm.parameters():
                torch.nn.init.ones_(parameter)
            return _timed(lambda x, *_: norm(x), _leaf(rows, width), *norm.parameters())
        case "add":
            return _timed(torch.add, _leaf(rows, width), _leaf(rows, width))
        case "gate":
            return _timed(torch.mul, _leaf(rows, width), _leaf(rows, width))
        case "activate":
            return _timed(lambda x: activate(what, x), _leaf(rows, width))
        case "rotate":
            d_head = int(what)
            angles = torch.linspace(0, 1, rows * d_head).reshape(1, rows, 1, d_head)
            rotary = Rotary(theta=1e4, pairing="half", fraction=1.0, scaling=None)
            tables = angles.cos(), angles.sin()
            return _timed(lambda x: rotate(rotary, x, tables), _leaf(1, rows, width // d_head, d_head))
        case "lookup":
            ids = torch.arange(rows) % int(what)
            return _timed(lambda table: F.embedding(ids, table), _leaf(int(what), width))
        case "loss":
            targets = torch.arange(rows) % width
            return _timed(lambda logits: F.cross_entropy(logits, targets, reduction="sum"), _leaf(rows, width))


def _attention(attention: Attention, batch_size: int, n: int) -> Callable[[], tuple[float, float]]:
    q, k, v = (
        _leaf(batch_size, heads, n, attention.d_head)
        for heads in (attention.n_heads, attention.n_kv_heads, attention.n_kv_heads)
    )
    is_causal, is_grouped = isinstance(attention.sees, Causal), attention.n_heads != attention.n_kv_heads
    return _timed(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=is_grouped), q, k, v
    )


def _leaf(*shape: int) -> Tensor:
    """Numbers of ordinary size, all different: a kernel may take less time for zeros or denormals."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def _timed(function: Callable[..., Tensor], *given: Tensor) -> Callable[[], tuple[float, float]]:
    turned = torch.ones_like(function(*given))

    def once() -> tuple[float, float]:
        began = time.perf_counter()
        out = function(*given)
        between = time.perf_counter()
        torch.autograd.grad(out, given, turned)
        return between - began, time.perf_counter() - between

    return once


def _update_work() -> Callable[[], tuple[float, float]]:
    """Clipping and AdamW over as many numbers as no cache holds."""
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, UPDATE_NUMBERS))
    parameter.grad = gradient = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW([parameter], lr=1e-9, fused=True)

    def once() -> tuple[float, float]:
        began = time.perf_counter()
        norm = torch.nn.utils.get_total_norm([gradient])
        torch.nn.utils.clip_grads_with_norm_([parameter], 1.0, norm, foreach=True)
        optimizer.step()
        return time.perf_counter() - began, 0.0

    return once


def _messages() -> tuple[float, float]:
    """Seconds per byte that a device sends, and per call, from an all-reduce of a small and of a large message."""
    n, took, sent = dist.get_world_size(), [], []
    for n_bytes in MESSAGE_BYTES:
        message = torch.ones(n_bytes // 4)

        def once(message: Tensor = message) -> tuple[float, float]:
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(message)
            message.fill_(1.0)
            return time.perf_counter() - began, 0.0

        took.append(_counted(once))
        sent.append(2 * (n - 1) / n * n_bytes)
    per_byte = max(0.0, took[1] - took[0]) / (sent[1] - sent[0])
    return per_byte, max(0.0, took[0] - sent[0] * per_byte)


def _counted(once: Callable[[], tuple[float, float]], tries: int = 9) -> float:
    """The middle of a fixed number of tries: all processes must do as many."""
    once()
    return statistics.median(once()[0] for _ in range(tries))


if __name__ == "__main__":
    asked = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Request)
    answered = Path(sys.argv[2])
    # whole or not there: whoever asked takes it even if this process dies while gloo's threads are taken down
    begun = answered.with_suffix(".begun")
    begun.write_bytes(msgspec.json.encode(answer(asked)))
    begun.replace(answered)
    if dist.is_initialized():
        dist.destroy_process_group()
