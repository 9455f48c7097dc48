"""What the processes of a test do together, one function each; each returns plain values, which the test compares.

A job that runs in one process is the oracle of the same job in several: it is the trainer as it has always been.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from oracles.specs import base, changed
from small import run_config, tokens
from tying.models import Tiny, tied
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import Checkpoint
from unembed.checkpoints.run.shards import local, whole
from unembed.checkpoints.run.state import model_tensors, optimizer_tensors
from unembed.corpora.windows import TokenSplit
from unembed.objectives import IGNORED
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.training import parallel
from unembed.training.config import RunConfig, TyingConfig
from unembed.training.loop import Trainer
from unembed.training.parallel import Parallel
from unembed.training.processes import Processes, joined
from unembed.training.samples import Sampler
from unembed.tying import examine
from unembed.tying.watch import TableWatch

EVERY = 5  # steps between two notes of the table's gradients


class Holes(TokenSplit):
    """Windows of which two in three have one label alone, by their place in the whole batch (A05)."""

    def batch(self, seed: int, step: int, batch_size: int, context_length: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super().batch(seed, step, batch_size, context_length)
        number = step * batch_size + np.arange(batch_size)
        targets = targets.copy()
        targets[number % 3 != 0, 1:] = IGNORED
        return inputs, targets


def config_of(*, head: str = "tied", wide: bool = False, **training: Any) -> RunConfig:
    spec = changed(base(), head__type=head)
    if wide:  # every width divides by four, as those of real models do
        spec = changed(spec, embedding__vocab_size=64, embedding__d_model=16)
    return run_config(spec, **{"batch_size": 4, "steps": 50, **training})


def trainer_of(config: RunConfig, processes: Processes, *, split: str = "tokens", **rest: Any) -> Trainer:
    shared = Parallel(config.training.parallel, processes)
    model = shared.build(config.model, config.init, seed=config.seed)
    train = tokens(400)
    train = Holes(train.name, train.ids) if split == "holes" else train
    watch = TableWatch(
        model, gradient_every=config.training.tying.gradient_every, group=processes if processes.n > 1 else None
    )
    return Trainer(model, config, train, tokens(60, seed=1), watch=watch, parallel=shared, **rest)


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def trained(out: str, steps: int, kind: str = "none", **options: Any) -> dict[str, Any]:
    """Losses, norms and both tables after every step; weights and moments at the end go into a file of rank 0."""
    split, head = options.pop("split", "tokens"), options.pop("head", "tied")
    config = config_of(head=head, parallel=kind, tying=TyingConfig(gradient_every=EVERY), steps=steps, **options)
    found: dict[str, Any] = {"losses": [], "norms": [], "tables": [], "ties": [], "notes": []}
    with joined(os.environ, "cpu") as processes:
        trainer = trainer_of(config, processes, split=split)
        update = trainer.watch.after_update
        trainer.watch.after_update = lambda *given: found["notes"].append(update(*given))  # type: ignore[method-assign]
        for _ in range(steps):
            loss, norm = trainer.step()
            found["losses"].append(loss)
            found["norms"].append(norm)
            found["tables"].append(
                [digest(whole(table)) for table in (trainer.model.embed.table, trainer.model.unembed_table())]
            )
            found["ties"].append(trainer.model.unembed_table() is trainer.model.embed.table)
        found["val"] = trainer.evaluate()
        keep_arrays(trainer, out, processes)
    return found


def memory(kind: str = "fsdp", head: str = "tied") -> dict[str, Any]:
    """The bytes of parameters and moments that this process holds after a step, by the memory that lies under them."""
    with joined(os.environ, "cpu") as processes:
        trainer = trainer_of(config_of(head=head, wide=True, parallel=kind), processes)
        loss, _ = trainer.step()
        held = {}
        for name, tensors in (
            ("weights", model_tensors(trainer.model)),
            ("moments", optimizer_tensors(trainer.model, trainer.optimizer)),
        ):
            parts = [local(tensor) for tensor in tensors.values() if tensor.ndim]
            held[name] = sum(
                {part.untyped_storage()._cdata: part.untyped_storage().nbytes() for part in parts}.values()
            )
        return {**held, "loss": loss, "table": digest(whole(trainer.model.embed.table))}


def messages(kind: str, accumulate: int) -> int:
    """How many messages with gradients one step sends: reduce-scatters of FSDP2, buckets of DDP."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    sent = [0]

    def averaged(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        sent[0] += 1
        return allreduce_hook(None, bucket)

    def counted(before: Any) -> Any:
        def instead(*inputs: Any, **options: Any) -> Any:
            sent[0] += 1
            return before(*inputs, **options)

        return instead

    with joined(os.environ, "cpu") as processes:
        for name in (
            "reduce_scatter_tensor",
            "reduce_scatter_single",
        ):  # of older versions of PyTorch and of newer ones
            if hasattr(dist, name):
                setattr(dist, name, counted(getattr(dist, name)))
        trainer = trainer_of(config_of(parallel=kind, accumulate=accumulate), processes)
        trainer.prepare()
        if trainer.parallel._averaging is not None:
            trainer.parallel._averaging.register_comm_hook(None, averaged)
        trainer.step()
        return sent[0]


def half(kind: str) -> dict[str, Any]:
    """A step with products in bfloat16, as if this processor had them: its loss, and the types of what is kept."""
    parallel.has_bfloat16 = lambda device: True  # type: ignore[assignment]
    with joined(os.environ, "cpu") as processes:
        config = config_of(parallel=kind, precision="bfloat16")
        shared = Parallel(config.training.parallel, processes, precision="bfloat16")
        model = shared.build(config.model, config.init, seed=config.seed)
        trainer = Trainer(model, config, tokens(400), tokens(60, seed=1), parallel=shared)
        loss, _ = trainer.step()
        kept = [*model.parameters(), *optimizer_tensors(model, trainer.optimizer).values()]
        trainer.sampler = Sampler(seed=1)
        model.tokenizer, model.start_ids = CharacterTokenizer("abcdefghijklm"), (1,)
        trainer._sample()  # its cache is in the type of the products
        return {"loss": loss, "val": trainer.evaluate(), "types": sorted({str(one.dtype) for one in kept})}


def saved(run: str, out: str, steps: int) -> None:
    """Trains under fsdp and saves a checkpoint in parts into a run; what is in memory goes into a file of rank 0."""
    with joined(os.environ, "cpu") as processes:
        folder = processes.first(lambda: str(RunFolder.create(Path(run), description={}).path))
        trainer = trainer_of(config_of(parallel="fsdp"), processes, run=RunFolder.open(folder))
        for _ in range(steps):
            trainer.step()
        trainer._save()
        keep_arrays(trainer, out, processes)


def taken_up(checkpoint: str, out: str, step: int, kind: str) -> None:
    """Takes a checkpoint up, of any number of processes, and writes down what is in memory then."""
    with joined(os.environ, "cpu") as processes:
        trainer = trainer_of(config_of(parallel=kind), processes)
        found = Checkpoint(Path(checkpoint), step)
        trainer.resume(*trainer.parallel.tensors_of(found), found.state, checkpoint)
        assert trainer.step_number == step
        keep_arrays(trainer, out, processes)


def keep_arrays(trainer: Trainer, out: str, processes: Processes) -> None:
    everything = {**model_tensors(trainer.model), **optimizer_tensors(trainer.model, trainer.optimizer)}
    arrays = {name: whole(value).numpy() for name, value in everything.items()}
    if processes.is_first:
        np.savez(out, **arrays)


def plain_steps(out: str, head: str = "tied", kind: str = "none") -> list[float]:
    """A03a: three steps of plain gradient descent; the largest difference between the two tables after each."""
    with joined(os.environ, "cpu") as processes:
        trainer = trainer_of(config_of(head=head, parallel=kind, clip_norm=None), processes)
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)  # type: ignore[assignment]
        gaps = []
        for _ in range(3):
            trainer.step()
            embed, scores = whole(trainer.model.embed.table), whole(trainer.model.unembed_table())
            gaps.append(float((embed - scores).abs().max()))
        keep_arrays(trainer, out, processes)
        return gaps


def examined() -> dict[str, Any]:
    """The doctor's verdicts on models that two processes share in right and wrong ways, and whether the head follows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with joined(os.environ, "cpu") as processes:
        mesh = init_device_mesh("cpu", (processes.n,))

        def sharded(model: nn.Module, *parts: str) -> nn.Module:
            for part in parts:
                fully_shard(model.get_submodule(part), mesh=mesh)
            return model

        def told(model: nn.Module, **options: Any) -> dict[str, Any]:
            found = examine(model, embed="wte", head="lm_head", **options).values
            by_name = {check["name"]: check["detail"] for check in found["checks"]}
            follows = head_follows(model, processes) if isinstance(model, Tiny) else None
            return {"verdict": found["verdict"], "sharded": by_name.get("sharded"), "follows": follows}

        def late(*, is_sharded_first: bool) -> nn.Module:
            with torch.device("meta"):
                model = tied()
            if is_sharded_first:
                sharded(model, "")
            model.to_empty(device="cpu")
            with torch.no_grad():
                for number, parameter in enumerate(model.parameters()):
                    local(parameter).copy_(torch.sin(torch.arange(parameter.numel()) + number)[: local(parameter).numel()]
                                           .view(local(parameter).shape))  # fmt: skip
            return model if is_sharded_first else sharded(model, "")

        ddp = nn.parallel.DistributedDataParallel
        found = {
            "whole": told(sharded(tied(), "")),
            "apart": told(sharded(tied(), "wte", "lm_head"), means_tied=True),
            "late": told(late(is_sharded_first=True), means_tied=True),
            "too late": told(late(is_sharded_first=False), means_tied=True),
            "untied": told(sharded(Tiny(), "")),
            "ddp": told(ddp(tied())),
            "ddp, untied": told(ddp(Tiny()), means_tied=True),
        }
        for kind in ("fsdp", "ddp"):
            trainer = trainer_of(config_of(parallel=kind), processes)
            trainer.step()
            values = examine(trainer.model, trainer.optimizer).values
            found[f"ours, {kind}"] = {"verdict": values["verdict"], "checks": values["checks"]}
        return found


@torch.no_grad()
def head_follows(model: Tiny, processes: Processes) -> bool:
    """Whether the scores are made with the table that embeds, after every process has doubled its rows of that alone."""
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

    register_fsdp_forward_method(model, "hidden")
    ids = torch.tensor([[1, 2, 3]])
    local(model.wte.weight).mul_(2.0)
    scores, hidden = model(ids), model.hidden(ids)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    (differ,) = processes.any_of([not torch.allclose(scores, hidden @ whole(model.wte.weight).T, atol=1e-6)])
    return not differ
