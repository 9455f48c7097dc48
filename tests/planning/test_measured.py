"""Measured rates: every kind of piece is tried, in as many processes as will train, and a failing child is told."""

import msgspec
import pytest

from unembed.errors import SpecError
from unembed.model.presets import preset
from unembed.planning import measured, trying
from unembed.planning import plan as plan_module
from unembed.planning.measured import MOST_FLOPS, MOST_NUMBERS, measure, trimmed
from unembed.planning.pieces import Piece, pieces
from unembed.planning.plan import plan
from unembed.planning.rates import Seconds
from unembed.planning.setup import Setup
from unembed.planning.trying import Answer, Request, _work, answer


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


def work_of(piece: Piece) -> float:
    """Operations of a product and of attention, numbers of anything else."""
    if piece.kind == "attention":
        batch_size, n = piece.shape
        return 4.0 * batch_size * piece.what.n_heads * piece.what.d_head * n * n
    product = 1.0
    for size in piece.shape:
        product *= size
    return 2 * product if piece.kind == "product" else product


@pytest.mark.parametrize("name", ["mini-gpt", "gpt2", "llama-3.2-1b"])
def test_property_what_is_tried_is_bounded_and_counts_in_proportion(name):
    spec = preset(name).spec
    for piece in pieces(spec, 40_000, min(4096, spec.context_length)):
        tried, times = trimmed(piece)
        assert work_of(tried) * times == pytest.approx(work_of(piece))
        if piece.kind == "product":
            assert work_of(tried) <= MOST_FLOPS or tried.shape[0] == 128
        elif piece.kind not in ("attention", "lookup"):
            assert work_of(tried) <= MOST_NUMBERS
    (long,) = (p for p in pieces(preset("llama-3.2-1b").spec, 1, 131_072) if p.kind == "attention")
    assert trimmed(long)[0].shape == (1, 1562)  # 4 x 32 heads x 64 x 1,562^2 operations


def test_property_what_is_short_is_tried_as_it_is():
    for piece in pieces(preset("gpt2").spec, 1, 128):
        if piece.kind != "product":
            assert trimmed(piece) == (piece, 1.0)


def test_trimmed_pieces_are_multiplied_and_tried_once_each(monkeypatch):
    asked = []

    def answers(requests, folder, threads):
        asked.extend(requests[0].pieces)
        return [Answer(pieces=[(1.0, 2.0)] * len(asked), update=1.0, per_byte=0.0, per_call=0.0)]

    monkeypatch.setattr(measured, "_answers", answers)
    wanted = [Piece("norms", "add", (n << 20, 1 << 10)) for n in (1, 2)]
    found = measure(wanted)
    assert asked == [Piece("norms", "add", (1 << 14, 1 << 10))]
    assert [found.seconds(piece) for piece in wanted] == [Seconds(64.0, 128.0), Seconds(128.0, 256.0)]


def test_a_long_piece_is_tried_twice_after_the_first(monkeypatch):
    clock, tries = [0.0], []

    def work():
        tries.append(1)
        clock[0] += 3.0
        return 1.0, 2.0

    monkeypatch.setattr("unembed.planning.trying.time.perf_counter", lambda: clock[0])
    assert trying._median(work) == (1.0, 2.0)
    assert len(tries) == 3


def test_who_waits_for_cores_is_told_what_is_measured(monkeypatch):
    told = []

    def stand_in(pieces, *, processes, threads):
        assert told, "said before it is measured"
        raise SpecError("enough")

    monkeypatch.setattr(measured, "measure", stand_in)
    monkeypatch.setattr(plan_module, "_busy_with", lambda: "")  # other tests run beside this one
    with pytest.raises(SpecError, match="enough"):
        plan(preset("mini-gpt").spec, Setup(dtype="float32", context_length=32), device="cpu", notice=told.append)
    assert told == ["measuring this machine: 11 kinds of work, from a quarter of a second to a few seconds each"]


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


@pytest.mark.parametrize("answers", [True, False])
def test_a_child_that_dies_as_it_leaves_has_answered(tmp_path, monkeypatch, answers):
    """gloo's threads sometimes abort a process that is done; what it measured is there, and one that has nothing fails."""
    answer = msgspec.json.encode(Answer(pieces=[(1.0, 2.0)], update=3.0, per_byte=0.0, per_call=0.0))
    writes = f"if {answers}:\n    Path(sys.argv[2]).write_bytes({answer!r})\n"
    source = f"import os, sys\nfrom pathlib import Path\n{writes}os.abort()\n"
    (tmp_path / "dies_as_it_leaves.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(measured, "TRYING", "dies_as_it_leaves")
    piece = Piece("head", "product", (16, 16, 16))
    if answers:
        found = measure([piece])
        assert (found.update(2), found.seconds(piece)) == (6.0, Seconds(1.0, 2.0))
    else:
        with pytest.raises(SpecError, match="measuring this machine failed: no word"):
            measure([piece])
