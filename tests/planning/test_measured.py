"""Measured rates: every kind of piece is tried, in as many processes as will train, and a failing child is told."""

import pytest

from unembed.errors import SpecError
from unembed.model.presets import preset
from unembed.planning import measured
from unembed.planning.measured import measure
from unembed.planning.pieces import Piece, pieces
from unembed.planning.trying import Request, _work, answer


def test_every_piece_of_every_kind_of_model_can_be_tried():
    """Not timed: each is run once, forward and back."""
    kinds = set()
    for name in ("mini-gpt", "llama-3.2-1b", "qwen3-0.6b", "gemma-2-2b"):
        for piece in pieces(preset(name).spec, 1, 8):
            if piece.kind not in kinds and max(piece.shape) < 10_000:
                forward, backward = _work(piece)()
                assert forward > 0
                assert backward > 0
                kinds.add(piece.kind)
    assert kinds >= {"product", "attention", "norm", "add", "rotate", "activate", "gate", "lookup"}
    assert min(_work(Piece("loss", "loss", (4, 30)))()) > 0


def test_a_larger_product_takes_longer(monkeypatch):
    monkeypatch.setattr("unembed.planning.trying.SECONDS_EACH", 0.02)
    small, large = (Piece("mlp", "product", (n, n, n)) for n in (32, 512))
    found = answer(Request(pieces=[small, large], threads=1, rank=0, processes=1, port=0))
    assert sum(found.pieces[1]) > 10 * sum(found.pieces[0])
    assert found.update > 0
    assert (found.per_byte, found.per_call) == (0.0, 0.0)


@pytest.mark.slow
def test_two_processes_try_at_once_and_time_their_messages():
    wanted = [Piece("mlp", "product", (64, 64, 64)), Piece("norms", "add", (64, 64))]
    found = measure(wanted, processes=2)
    assert all(min(found.seconds(piece)) > 0 for piece in wanted)
    assert found.collective(10**6, 1) > found.collective(10**3, 1) > 0
    assert found.update(2000) == 2 * found.update(1000)


def test_a_child_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(measured.sys, "executable", "/bin/false")
    with pytest.raises(SpecError, match="measuring this machine failed: no word"):
        measure([Piece("norms", "add", (4, 4))])


def test_more_processes_than_cores_are_refused():
    with pytest.raises(SpecError, match=r"100000 processes were asked for and there are \d+ cores"):
        measure([], processes=100_000)
