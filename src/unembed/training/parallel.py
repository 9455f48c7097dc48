"""One model over many processes, applied from outside: the model's own files know nothing of it.

    none   one process has all of it
    ddp    every process has all of it, and gradients are averaged (PyTorch's DistributedDataParallel)
    fsdp   every process has a part of each tensor, and of its gradient and moments (PyTorch's fully_shard, "FSDP2")

Under fsdp a block is a unit: its parameters are gathered for its forward and its backward, and let go again. The embedding,
the final norm and the head are one unit together, because a tied table that were sharded in two units would become two
tables (A03). What is trained is the same in all three: process r of n takes the rows r B/n .. (r + 1) B/n of each batch that
one process would take, and the loss is divided by the tokens of all. Before it: processes.py. The next file to read is loop.py.

Source: torch.distributed.fsdp.fully_shard's documentation; Zhao et al. 2023, arXiv:2304.11277.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import msgspec
import torch
from torch import Tensor, nn

from unembed.checkpoints.files import Written
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import Checkpoint
from unembed.checkpoints.run.shards import spread, whole
from unembed.checkpoints.run.state import model_tensors, optimizer_tensors
from unembed.errors import UsageError
from unembed.model.init import Init, build, starting_values
from unembed.model.spec import PseudoInverseHead, TransformerSpec
from unembed.model.transformer import Transformer
from unembed.objectives import LossSum
from unembed.optim.muon import MuonConfig
from unembed.runtime import has_bfloat16
from unembed.training.blocks import prepare_blocks
from unembed.training.config import Kind, Precision, RunConfig, TrainingConfig
from unembed.training.forward import micro_loss
from unembed.training.processes import ALONE, Processes

# The halves of the model that others call by name: each must find the parameters gathered.
HALVES = ("hidden", "unembed", "normed")


class Parallel:
    """How a trainer's model is laid over its processes. `Parallel()` is one process that has everything."""

    def __init__(
        self,
        kind: Kind = "none",
        processes: Processes = ALONE,
        *,
        precision: Precision = "float32",
        device: str = "cpu",
    ) -> None:
        check_kind(kind, processes.n, is_launched=processes.is_launched)
        if precision == "bfloat16" and (why := has_bfloat16(device)) is not True:
            raise UsageError(f"precision is bfloat16, but {why}. Leave precision at float32 here")
        self.kind, self.processes, self.precision, self.device = kind, processes, precision, device
        self._mesh: Any = None
        self._averaging: nn.parallel.DistributedDataParallel | None = None

    def build(self, spec: TransformerSpec, init: Init, *, seed: int) -> Transformer:
        """The model at its start, where it will be trained. Its numbers are those of one process, bit for bit.

        Under fsdp it begins without memory, and no process ever holds more of it than its parts and one tensor.
        """
        if self.kind != "fsdp":
            return build(spec, init, seed=seed).to(self.device)
        with torch.device("meta"):
            model = Transformer(spec)
        self._shard(model)
        model.to_empty(device=self.device)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, value in starting_values(spec, init, seed=seed):
                parameter = parameters[name]
                parameter.copy_(spread(value.to(parameter.dtype), parameter))
        return model

    def prepared(self, model: Transformer, config: RunConfig) -> tuple[Callable[..., LossSum], str | None]:
        """What gives a micro-batch's loss (forward.py); and why the blocks are not compiled, if they should be."""
        training, why = config.training, None
        if training.compile and self.kind == "fsdp":
            training, why = msgspec.structs.replace(training, compile=False), "parallel=fsdp gathers each block anew"
        here = msgspec.structs.replace(training, batch_size=training.batch_size // self.processes.n)
        why = prepare_blocks(model, here, config.model.context_length) or why
        loss = partial(_in_type, self._cast, model)
        if self.kind != "ddp":
            return loss, why
        ids = None if self.device == "cpu" else [torch.device(self.device)]
        self._averaging = nn.parallel.DistributedDataParallel(_Loss(model, loss), device_ids=ids)
        return cast(Callable[..., LossSum], self._averaging), why

    @contextmanager
    def micro_step(self, model: Transformer, *, is_last: bool) -> Iterator[None]:
        """Around the forward and backward of one micro-batch: only the last one of a step sends gradients."""
        if self._averaging is not None:
            with nullcontext() if is_last else self._averaging.no_sync():
                yield
            return
        if self.kind == "fsdp":
            cast(Any, model).set_requires_gradient_sync(is_last)
        # From `hidden` on the table is gathered until the backward pass is over. A second entrance, at the head, would send
        # its gradient when the head's part is there, and again with the lookup's.
        entrances = {name: model.__dict__.pop(name) for name in HALVES[1:] if name in model.__dict__}
        try:
            yield
        finally:
            model.__dict__.update(entrances)

    @contextmanager
    def looking(self, model: Transformer) -> Iterator[None]:
        """Around forwards without a backward. Under fsdp embedding and head are gathered for all of them, in the type of the
        products, and let go at the end, so that parameters are parts again; else these forwards are in float32."""
        if self.kind != "fsdp":
            yield
            return
        sharded = cast(Any, model)
        sharded.unshard()
        try:
            yield
        finally:
            sharded.reshard()

    def norm(self, parameters: list[nn.Parameter]) -> Tensor:
        """The length of the whole gradient, the same number in every process."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        return whole(torch.nn.utils.get_total_norm(gradients, foreach=True))

    def save(
        self,
        run: RunFolder,
        step: int,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        state: Mapping[str, Any],
        *,
        keep: Callable[[list[int]], set[int]],
    ) -> None:
        """Saves a checkpoint: whole, by the first process, or under fsdp in parts, by all. `keep` says which ones stay."""
        if self.processes.n > 1:
            state = {**state, "processes": self.processes.n}
        weights, moments = model_tensors(model), optimizer_tensors(model, optimizer)
        if self.kind != "fsdp":
            self.processes.first(
                lambda: str(run.save_checkpoint(step, weights=weights, optimizer=moments, state=state))
            )
        else:
            self._save_parts(run, step, weights, moments, state)
        if self.processes.is_first:
            run.prune(keep=keep([checkpoint.step for checkpoint in run.checkpoints()]))

    def tensors_of(self, checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and optimizer's tensors of a checkpoint: under fsdp, of one in parts, only what this process needs."""
        if self.kind == "fsdp" and checkpoint.is_sharded:
            from unembed.checkpoints.run.distributed import read_parts

            weights, moments = (read_parts(folder, self._mesh) for folder in checkpoint.shard_folders())
            return weights, moments
        return checkpoint.weights(), checkpoint.optimizer()

    def _shard(self, model: Transformer) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = half if self.precision == "bfloat16" else MixedPrecisionPolicy()
        self._mesh = init_device_mesh(self.device.partition(":")[0], (self.processes.n,))
        for block in model.blocks:
            fully_shard(block, mesh=self._mesh, mp_policy=policy)
        fully_shard(model, mesh=self._mesh, mp_policy=policy)
        for name in HALVES:
            register_fsdp_forward_method(model, name)

    def _save_parts(
        self,
        run: RunFolder,
        step: int,
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
        state: Mapping[str, Any],
    ) -> None:
        from unembed.checkpoints.run.distributed import write_parts

        # single numbers, the same everywhere, such as step counts, are written by whoever PyTorch's planner chooses
        self.processes.first(lambda: run.begin_parts(step))
        own: dict[str, Any] = {}
        for folder, tensors in zip(run.unfinished_parts(step), (weights, moments), strict=True):
            for name, written in write_parts(folder, tensors, self.processes.rank).items():
                own[f"{folder.name}/{name}"] = {"n_bytes": written.n_bytes, "sha256": written.sha256}
        everybody = {name: Written(**one) for each in self.processes.gathered(own) for name, one in each.items()}
        self.processes.first(lambda: str(run.finish_parts(step, everybody, state)))

    def _cast(self) -> AbstractContextManager[Any]:
        if (
            self.precision == "float32" or self.kind == "fsdp"
        ):  # FSDP casts what it gathers, once instead of at each use
            return nullcontext()
        return torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16)


class _Loss(nn.Module):
    """The loss as a module: DDP averages the gradients of a forward that is called through it, and of no other."""

    def __init__(self, model: Transformer, loss: Callable[..., LossSum]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any, **options: Any) -> LossSum:
        """As `micro_loss`, without the model."""
        return self.loss(*inputs, **options)


def _in_type(
    cast_of: Callable[[], AbstractContextManager[Any]], model: Transformer, *inputs: Any, **options: Any
) -> LossSum:
    """The forward alone: a backward pass takes the types of its forward by itself."""
    with cast_of():
        return micro_loss(model, *inputs, **options)


def check_kind(kind: Kind, n: int, *, is_launched: bool) -> None:
    """Refuses a kind that the start of `n` processes contradicts. Raises: UsageError."""
    if kind != "none" and not is_launched:
        raise UsageError(
            f"parallel is {kind}, but this is one process that nobody started beside others. Start several with "
            "torchrun --nproc-per-node 2 -m unembed train ..., or give --set parallel=none"
        )
    if kind == "none" and n > 1:
        raise UsageError(
            f"{n} processes were started, and parallel is none: each would train the same. Give --set parallel=ddp "
            "where the model fits into each of them, or --set parallel=fsdp to spread it"
        )


def check_shares(training: TrainingConfig, n: int, spec: TransformerSpec | None = None) -> None:
    """Refuses a training that `n` processes cannot share as it asks. Raises: UsageError."""
    check_batch(training.batch_size, n)
    if training.parallel == "fsdp" and isinstance(training.optimizer, MuonConfig):
        raise UsageError(
            "optimizer muon steps whole matrices, of which a process has only some rows under parallel=fsdp. Give "
            "--set parallel=ddp, or --set optimizer=adamw"
        )
    if training.parallel == "fsdp" and spec is not None and isinstance(spec.head, PseudoInverseHead):
        raise UsageError(
            "sharing pseudo_inverse keeps the columns of a whole table orthonormal, of which a process has only some rows "
            "under parallel=fsdp. Give --set parallel=ddp, or --set sharing=mapped"
        )


def check_batch(batch_size: int, n: int) -> None:
    """Refuses a batch that the processes cannot share evenly. Raises: UsageError."""
    if batch_size % n:
        below = batch_size // n * n
        near = " or ".join(str(size) for size in (below, below + n) if size)
        raise UsageError(
            f"batch_size is {batch_size}, and {n} processes cannot share it evenly; a batch is shared by rows, so "
            f"that the run sees what one process would. Try batch_size={near}, or another number of processes"
        )
