"""Watches one forward and notes which matrix ids are looked up in, and which one makes the scores.

Nothing is attached to the model: a mode of PyTorch sees each function call while it lasts, and two ids are put through. A
scoring matrix that the forward makes for itself is asked two things more: does autograd lead from it to the table, and is it
another one when the table is another one (put in its place for one call, the table itself is never written). Before it:
tables.py. The next file to read is live_evidence.py.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

LOG = logging.getLogger(__name__)


class Depends(NamedTuple):
    """Whether a matrix that the forward makes follows the table, and whether its gradient leads there."""

    moves: bool
    learns: bool


class Seen(NamedTuple):
    """What a forward used: the matrix that ids are looked up in, and the last one of its size that was multiplied with."""

    table: Tensor
    scores: Tensor | None
    depends: Depends


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None
        self.scores: Tensor | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [one for one in [*args, *(kwargs or {}).values()] if isinstance(one, Tensor)]
        name = getattr(func, "__name__", "")
        if name == "embedding" or (name in ("index_select", "__getitem__") and self.table is None):
            self._look(tensors)
        elif self.table is not None and isinstance(out, Tensor) and name in _PRODUCTS:
            self._score(tensors, out)
        return out

    def _look(self, tensors: list[Tensor]) -> None:
        """The largest table that ids are looked up in: positions and token types have fewer rows."""
        for one in tensors:
            if one.ndim == 2 and one.is_floating_point() and (self.table is None or one.numel() > self.table.numel()):
                self.table = one

    def _score(self, tensors: list[Tensor], out: Tensor) -> None:
        assert self.table is not None
        rows, width = self.table.shape
        for one in tensors:
            if tuple(one.shape) in ((rows, width), (width, rows)) and rows in out.shape and one.is_floating_point():
                self.scores = one


_PRODUCTS = frozenset(
    ("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "einsum", "bmm", "baddbmm", "mv")
)


def watch(root: nn.Module) -> Seen | None:
    """Runs `root` over the ids 0, 1; None where it takes no such input, or looks nothing up."""
    if any(isinstance(one, nn.Embedding) and one.max_norm is not None for one in root.modules()):
        return None  # such a table is rescaled by being looked up in
    first = _run(root)
    if first is None or first.table is None:
        return None
    table, scores = first.table, first.scores
    depends = Depends(False, False)
    names = [name for name, one in root.named_parameters() if one is table]
    if scores is not None and names:
        learns = any(leaf is table for leaf in _leaves(scores))
        # without numbers nothing can be seen to move, and autograd's word is all there is
        depends = Depends(learns if scores.is_meta else _moves(root, names[0], table, scores), learns)
    return Seen(table, scores, depends)


def _moves(root: nn.Module, name: str, table: Tensor, scores: Tensor) -> bool:
    with torch.no_grad():
        other = {name: table + 1 + table.abs()}
    again = _run(root, other)
    return again is not None and again.scores is not None and not torch.equal(again.scores, scores)


def _run(root: nn.Module, replaced: dict[str, Tensor] | None = None) -> _Watch | None:
    device = next((one.device for one in root.parameters()), torch.device("cpu"))
    ids = torch.arange(2, device=device)[None]
    seen = _Watch()
    with _undisturbed(root), torch.enable_grad(), seen:
        try:
            root(ids) if replaced is None else torch.func.functional_call(root, replaced, (ids,))
        except Exception as error:  # whatever a stranger's forward raises for an input that it was not made for
            if seen.table is None:
                LOG.debug("a forward over two ids raised %s: %s", type(error).__name__, error)
                return None
    return seen


@contextmanager
def _undisturbed(root: nn.Module) -> Iterator[None]:
    """Leaves training modes and random numbers as they were: the forward drops nothing and counts no batch."""
    were = [(module, module.training) for module in root.modules()]
    with torch.random.fork_rng(devices=[]):
        try:
            for module, _ in were:
                module.training = False
            yield
        finally:
            for module, training in were:
                module.training = training


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    """The parameters that autograd leads to from a tensor."""
    if tensor.grad_fn is None:
        return
    waiting: list[Any] = [tensor.grad_fn]
    known = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in known:
            continue
        known.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            yield leaf
        waiting += [following for following, _ in node.next_functions]
