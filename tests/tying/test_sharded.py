"""The sharded model: FSDP2 over one process of a test, on which a tie holds or comes apart as it would on many.

A03 of the bug reports. The process group is one of its own, made and destroyed here.
"""

import pytest
import torch
import torch.distributed as dist

import unembed
from oracles import nudge
from tying.models import Tiny, tied

fsdp = pytest.importorskip("torch.distributed.fsdp")


@pytest.fixture(scope="module")
def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def resharded(model):
    """A forward from the shards: FSDP keeps the whole of the outermost module's parameters after one."""

    def scores(ids):
        model.reshard()
        return model(ids)

    return scores


def checks(found):
    return {one["name"]: (one["status"], one["detail"]) for one in found.values["checks"]}


def examined(model, **options):
    return unembed.tying.examine(model, embed="wte", head="lm_head", **options)


def test_sharded_as_a_whole_the_table_stays_one(mesh):
    model = tied()
    fsdp.fully_shard(model, mesh=mesh)
    found = examined(model)
    assert found.values["verdict"] == "Tied: one parameter, wte.weight, embeds and scores."
    assert checks(found)["sharded"] == ("ok", "one sharded parameter, of which [13, 12] is here")
    assert unembed.tying.examine(model).values["verdict"] == found.values["verdict"]
    assert nudge.moves(model, model.wte.weight, scores=resharded(model)) is True


def test_sharded_part_by_part_one_table_becomes_two(mesh):
    """Each part makes a sharded parameter of its own, without a word, and a forward runs; PyTorch refuses the whole alone."""
    model = tied()
    for part in (model.wte, model.lm_head):
        fsdp.fully_shard(part, mesh=mesh)
    found = examined(model, means_tied=True)
    assert found.values["verdict"] == (
        "Not tied: lm_head.weight is an equal copy of wte.weight and will drift apart from it with the first training step, "
        "although the caller says tied."
    )
    assert checks(found)["sharded"] == ("unknown", "two sharded parameters; compared are the parts of this process")
    assert checks(found)["config"][0] == "broken"

    def scores(ids):
        model.wte.reshard()
        model.lm_head.reshard()
        return model(ids)

    assert nudge.moves(model, model.wte.weight, scores=scores) is False


def test_one_matrix_sharded_and_the_other_not(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    model = tied()
    model.wte.weight = torch.nn.Parameter(distribute_tensor(model.wte.weight.detach().clone(), mesh, [Shard(0)]))
    found = examined(model)
    assert found.values["tied"] is False
    assert checks(found)["sharded"] == ("unknown", "wte.weight is sharded and the other matrix is not")


def test_sharded_and_untied(mesh):
    model = Tiny()
    fsdp.fully_shard(model, mesh=mesh)
    found = examined(model)
    assert found.values["verdict"] == "Not tied: wte.weight and lm_head.weight are two matrices."
    assert nudge.moves(model, model.wte.weight, scores=resharded(model)) is False


def test_an_optimizer_made_before_sharding_holds_the_whole_table(mesh):
    model = tied()
    optimizer = torch.optim.AdamW(model.parameters())
    fsdp.fully_shard(model, mesh=mesh)
    found = examined(model, optimizer=optimizer)
    assert found.values["verdict"].startswith(
        "Tied: one parameter, wte.weight, embeds and scores, but the optimizer does not"
    )
