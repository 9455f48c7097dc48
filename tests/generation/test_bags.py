"""How a matrix is cut for decoding: every row in one block, little to fill up, the same bits however it is cut."""

import pytest
import torch

from unembed.generation.weights.bags import Blocks, cut
from unembed.generation.weights.packing import KINDS, Columns, pack

WIDTHS = (*range(1, 70), 96, 192, 255, 384, 576, 768, 960, 1000, 2304, 3072, 11008, 32000, 50257, 49152, 262144)


@pytest.mark.parametrize("to_width", WIDTHS)
def test_blocks_hold_every_row_once(to_width):
    blocks = cut(to_width, 8)
    assert blocks.n * blocks.width >= to_width
    assert blocks.width % 16 == 0
    if to_width >= 384:
        assert blocks.n % 2 == 0
        assert blocks.n * blocks.width <= 1.04 * to_width + 32
        assert 192 <= blocks.width <= 400


@pytest.mark.parametrize(("to_width", "from_width"), [(1, 1), (37, 5), (500, 3), (64, 1024), (33, 1025), (40, 2600)])
def test_arranging_and_weighing_give_the_product(to_width, from_width):
    """By hand, in whole numbers, so that each sum is exact: row by row, and by the kernel."""
    generator = torch.Generator().manual_seed(to_width)
    weight = torch.randint(-8, 9, (to_width, from_width), generator=generator).float()
    x = torch.randint(-8, 9, (1, from_width), generator=generator).float()
    blocks = cut(to_width, from_width)
    rows, begins = blocks.places(in_pieces=True)
    assert rows.tolist() == list(range(blocks.n * from_width))
    weighted = blocks.arranged(weight) * blocks.weights(x)[:, None]
    ends = [*begins.tolist()[1:], len(rows)]
    longest = max(end - begin for begin, end in zip(begins.tolist(), ends, strict=True))
    assert longest <= 1024
    sums = torch.stack([weighted[begin:end].sum(0) for begin, end in zip(begins.tolist(), ends, strict=True)])
    assert torch.equal(blocks.result(sums), x @ weight.T)
    assert torch.equal(Columns(weight, None, torch.float32).product(x), x @ weight.T)


def test_how_it_is_cut_changes_no_bit(monkeypatch):
    weight, x = torch.randn(700, 900), torch.randn(1, 900)
    found = Columns(weight, None, torch.float32).product(x)
    for n, width in ((1, 704), (7, 112), (44, 16)):
        monkeypatch.setattr(
            "unembed.generation.weights.packing.cut", lambda to, of, n=n, width=width: Blocks(to, of, n, width)
        )
        assert torch.equal(Columns(weight, None, torch.float32).product(x), found)


def test_threads_change_no_bit(monkeypatch):
    """Neither where it is cut nor what comes of it, in bytes too, whose steps are those of a block."""
    weight, x = torch.randn(700, 900), torch.randn(1, 900)
    found = [pack(kind, weight, None, "w").product(x) for kind in KINDS]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    for kind, one in zip(KINDS, found, strict=True):
        assert torch.equal(pack(kind, weight, None, "w").product(x), one)


def test_a_mode_leaves_nothing_behind():
    """What is made while tensors are faked must not be met by those that come after."""
    fake = torch._subclasses.fake_tensor.FakeTensorMode()
    with fake:
        cut(640, 77).places(in_pieces=True)
    rows, begins = cut(640, 77).places(in_pieces=True)
    assert type(rows) is type(begins) is torch.Tensor
    with torch.device("meta"):
        cut(640, 78).places(in_pieces=True)
    assert all(one.device.type == "cpu" for one in cut(640, 78).places(in_pieces=True))
