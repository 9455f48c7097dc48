"""One of two processes that share a model by FSDP2, for test_gradients.py: it trains two micro-steps and says what it saw.

    python sharded.py RANK RENDEZVOUS OUT      RENDEZVOUS is a file that both can write, OUT where rank 0 writes its arrays

Blocks are units of their own and the shared table is in the root unit, as FSDP2 wants it for a parameter used at both ends.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from oracles.specs import base, changed
from small import small_model
from unembed.objectives import next_token_loss
from unembed.tying.parts import TableGradients

IDS = torch.tensor([[3, 1, 4, 1, 5], [8, 9, 7, 9, 3], [2, 2, 8, 0, 5], [6, 6, 1, 9, 4]])
TARGETS = torch.tensor([[1, 4, 1, 5, 9], [9, 7, 9, 3, 1], [2, 8, 0, 5, 11], [6, 1, 9, 4, 12]])
HEADS = ("tied", "untied")


def shared(rank: int, head: str) -> dict[str, np.ndarray]:
    """The parts of both ranks, averaged as FSDP2 averages gradients, and the gathered gradient that it has itself."""
    model = small_model(changed(base(), head__type=head))
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    with TableGradients() as parts:
        for micro in range(2):
            mine = slice(2 * micro + rank, 2 * micro + rank + 1)
            next_token_loss(model(IDS[mine], tap=parts), TARGETS[mine]).mean().div(2).backward()
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, torch.tensor(1.0, dtype=torch.float64))
    parts.scale_by(0.1 / (1.0 + 1e-6))
    found = {}
    for name, part in (("lookup", parts.lookup), ("projection", parts.projection)):
        dist.all_reduce(part)
        found[name] = (part / 2).numpy()
    tables = {"embed": model.embed.table} if head == "tied" else {"embed": model.embed.table, "head": model.head.table}
    return found | {name: table.grad.full_tensor().numpy() for name, table in tables.items()}


def main() -> None:
    rank, rendezvous, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    found = {f"{head}_{name}": value for head in HEADS for name, value in shared(rank, head).items()}
    if rank == 0:
        np.savez(out, **found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
