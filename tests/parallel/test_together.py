"""Several processes train what one process trains: losses, tables, memory, and the parts that each of them draws.

The oracle is the same job in one process (jobs.py). All processes of this file come from one interpreter (ranks.py).
"""

import numpy as np
import pytest
import torch

from parallel.ranks import Ranks
from small import run_config, tokens
from unembed.training.forward import own_batch
from unembed.training.processes import Processes

STEPS = 50
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with Ranks(tmp_path_factory.mktemp("ranks")) as started:
        yield started


def relative(found, expected):
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, expected, strict=True))


def arrays(path):
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_property_the_parts_of_all_processes_are_the_batch_of_one(n):
    config = run_config(batch_size=6, accumulate=2)
    for step, micro in [(0, 0), (0, 1), (3, 1)]:
        whole = own_batch(tokens(400), config, step, micro, Processes(), CPU)
        parts = [own_batch(tokens(400), config, step, micro, Processes(rank, n), CPU) for rank in range(n)]
        for side in (0, 1):
            assert np.concatenate([part[side].numpy() for part in parts]).tolist() == whole[side].tolist()
        assert sum(part[2] for part in parts) == whole[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("fsdp", {"accumulate": 2}),
        ("ddp", {"accumulate": 2}),
        ("fsdp", {"head": "untied", "chunked_loss": True, "checkpoint_activations": True}),
    ],
    ids=["fsdp", "ddp", "fsdp untied, chunked, run again"],
)
def test_two_processes_have_the_losses_of_one_for_fifty_steps(ranks, tmp_path, kind, options):
    given = {"steps": STEPS, **options}
    (alone,) = ranks.call(1, "trained", {"out": str(tmp_path / "alone.npz"), **given})
    first, second = ranks.call(2, "trained", {"out": str(tmp_path / "two.npz"), "kind": kind, **given})
    assert len(set(alone["losses"])) == STEPS
    assert alone["losses"][-1] < 0.8 * alone["losses"][0]  # it learns, so the comparison is of something
    for both in (first, second):
        assert relative(both["losses"], alone["losses"]) < 1e-6
        assert relative(both["norms"], alone["norms"]) < 1e-5
        assert abs(both["val"] - alone["val"]) < 1e-6
    assert first["tables"] == second["tables"]  # gathered on either, after every step, to the bit
    is_tied = options.get("head") != "untied"
    assert first["ties"] == [is_tied] * STEPS
    assert all((embed == scores) is is_tied for embed, scores in first["tables"])
    ours, theirs = arrays(tmp_path / "two.npz"), arrays(tmp_path / "alone.npz")
    assert set(ours) == set(theirs)
    assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) < 1e-4
    same_notes(first["notes"], alone["notes"])
    assert first["notes"] == second["notes"]


def same_notes(found, expected):
    """What the watch saw of the table's two gradients: every fifth step, of all tokens, whoever had them."""
    noted = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    assert len(noted) == STEPS // 5
    for ours, theirs in noted:
        assert ours["rows"] == theirs["rows"]
        assert ours["by_frequency"]["rows"] == theirs["by_frequency"]["rows"]
        for name in ("lookup_norm", "projection_norm", "sum_norm", "update_norm", "lookup_gain_nats"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-7), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_a_batch_whose_labels_lie_unevenly_is_weighed_by_tokens(ranks, tmp_path, kind):
    """A05b: a mean of the processes' means would be off by tens of percent here."""
    given = {"steps": 5, "split": "holes", "accumulate": 2}
    (alone,) = ranks.call(1, "trained", {"out": str(tmp_path / "alone.npz"), **given})
    found = ranks.call(2, "trained", {"out": str(tmp_path / "two.npz"), "kind": kind, **given})
    for each in found:
        assert relative(each["losses"], alone["losses"]) < 1e-6
        assert relative(each["norms"], alone["norms"]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("head", ["tied", "untied"])
def test_three_plain_steps_leave_one_table_one(ranks, tmp_path, head):
    """A03a: no difference between the two uses on any process, and the weights of the run that is not shared out."""
    options = {"head": head}
    ranks.call(1, "plain_steps", {"out": str(tmp_path / "alone.npz"), **options})
    for kind in ("fsdp", "ddp"):
        gaps = ranks.call(2, "plain_steps", {"out": str(tmp_path / f"{kind}.npz"), "kind": kind, **options})
        assert all((gap == 0) is (head == "tied") for each in gaps for gap in each)
        ours, theirs = arrays(tmp_path / f"{kind}.npz"), arrays(tmp_path / "alone.npz")
        assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_each_process_holds_its_share_of_weights_and_moments(ranks, n):
    (alone,) = ranks.call(1, "memory", {"kind": "none"})
    found = ranks.call(n, "memory")
    for each in found:
        assert each["weights"] == pytest.approx(alone["weights"] / n, rel=0.1)
        assert each["moments"] == pytest.approx(alone["moments"] / n, rel=0.1)
        assert each["loss"] == pytest.approx(alone["loss"], rel=1e-6)
    assert len({each["table"] for each in found}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_gradients_travel_once_a_step_however_many_passes_it_adds_up(ranks, kind):
    once, thrice = (ranks.call(2, "messages", {"kind": kind, "accumulate": n}) for n in (1, 3))
    assert once == thrice
    # two blocks and the unit of embedding, norm and head; DDP's first bucket holds all of so small a model
    assert once == ([3, 3] if kind == "fsdp" else [1, 1])


@pytest.mark.slow
def test_half_precision_is_of_products_alone_on_every_process(ranks, tmp_path):
    (alone,) = ranks.call(1, "trained", {"out": str(tmp_path / "alone.npz"), "steps": 1})
    for kind in ("fsdp", "ddp"):
        for each in ranks.call(2, "half", {"kind": kind}):
            assert each["types"] == ["torch.float32"]
            assert each["loss"] != pytest.approx(alone["losses"][0], rel=1e-6)
            assert each["loss"] == pytest.approx(alone["losses"][0], rel=2e-2)
            assert each["val"] == pytest.approx(alone["val"], rel=5e-2)
