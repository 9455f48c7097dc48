"""Figures of the source documents about order: waves, turns, slopes, and what a model is without any of them.

Scores are read from a text of one token repeated: whatever then differs between two places comes from positions alone.
The next file to read is test_blocks_of_the_documents.py.
"""

import math

import pytest
import torch

from oracles.specs import BIDIRECTIONAL, base, changed
from small import small_model
from unembed.errors import ShapeError
from unembed.model.taps import Recorder

THETA = 10_000.0
WAVE = {"type": "sinusoidal", "theta": THETA}
TURN = {"type": "rotary", "theta": THETA, "pairing": "half", "fraction": 1.0, "scaling": None}
SLOPE = {"type": "alibi"}
ROT = {"q": "blocks.0.q_rot", "k": "blocks.0.k_rot"}
EVERYWHERE = {"block__attention__sees": BIDIRECTIONAL}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])


def taps_of(spec, ids):
    """A model of this spec, and every named step of its forward."""
    model, recorder = small_model(spec), Recorder(detach=True)
    with torch.no_grad():
        model(ids, tap=recorder, attention="explicit")
    return model, recorder.values


def repeated(n):
    return torch.full((1, n), 7)


def waves(n, d_model):
    """The first n sinusoidal positions, as a model adds them."""
    spec = changed(base(n_layers=0), embedding__position=WAVE, embedding__d_model=d_model)
    return taps_of(spec, repeated(n))[1]["pos_embed"][0]


# --- sinusoids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [4, 12, 7])
def test_sinusoid_is_the_formula(d_model):
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same."""
    got = waves(40, d_model)
    for p in range(40):
        for entry in range(d_model):
            angle = p / THETA ** (2 * (entry // 2) / d_model)
            expected = math.sin(angle) if entry % 2 == 0 else math.cos(angle)
            assert got[p, entry].item() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_sinusoid_k_places_on_is_a_rotation_that_depends_on_k_only(k):
    """PE(p + k) = M_k PE(p): a matrix fitted to the first places holds at all others, and it is a rotation."""
    table = waves(90, 6)
    turn = torch.linalg.lstsq(table[:40], table[k : 40 + k]).solution.T
    assert (table[k:] - table[:-k] @ turn.T).abs().max() < 1e-8
    torch.testing.assert_close(turn @ turn.T, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-8)
    assert torch.linalg.det(turn).item() == pytest.approx(1.0, abs=1e-8)
    assert (turn - torch.eye(6)).abs().max() > 0.1


# --- rotary -----------------------------------------------------------------------------------------------


def test_rotary_turns_pair_i_by_p_times_its_speed():
    """The angle of pair i at position p is p * 10000^(-2i/d), and no length changes."""
    _, seen = taps_of(changed(base(n_layers=1), block__attention__position=TURN), repeated(12))
    for name in ("q", "k"):
        before, after = (torch.complex(x[..., :3], x[..., 3:]) for x in (seen[f"blocks.0.{name}"], seen[ROT[name]]))
        for i in range(3):
            for p in range(12):
                turned = (after / before)[0, p, :, i]
                angle = p * THETA ** (-2 * i / 6)
                expected = torch.full_like(turned, complex(math.cos(angle), math.sin(angle)))
                torch.testing.assert_close(turned, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", [TURN, {**TURN, "pairing": "interleaved"}, SLOPE], ids=["half", "pairs", "alibi"])
def test_scores_depend_on_the_distance_only(position):
    """For one token repeated, the score of places p and s is a function of p - s, and not the same for all distances."""
    _, seen = taps_of(changed(base(n_layers=1), block__attention__position=position, **EVERYWHERE), repeated(12))
    scores = seen["blocks.0.attn_scores"][0]
    assert (scores[:, 1:, 1:] - scores[:, :-1, :-1]).abs().max() < 1e-12
    assert (scores[:, 0, 1:] - scores[:, 0, :1]).abs().amax(-1).min() > 1e-3


def test_rotary_is_applied_to_q_and_k_and_not_added_to_the_embedding():
    """The stream begins with the token's row alone, and values do not turn."""
    model, seen = taps_of(changed(base(n_layers=1), block__attention__position=TURN), IDS)
    assert "pos_embed" not in seen
    assert torch.equal(seen["blocks.0.resid_pre"], model.embed.table.detach()[IDS])
    for name in ("q", "k"):
        assert (seen[ROT[name]] - seen[f"blocks.0.{name}"])[0, 1:].abs().amax((-1, -2)).min() > 1e-3
    z = seen["blocks.0.attn_pattern"] @ seen["blocks.0.v"].transpose(1, 2)
    torch.testing.assert_close(seen["blocks.0.z"], z.transpose(1, 2), rtol=0, atol=1e-13)


# --- ALiBi ------------------------------------------------------------------------------------------------


def test_alibi_slopes_run_from_a_half_to_a_256th():
    """score - m * |i - j| with m = 2^(-8i/h): 1/2, 1/4, ..., 1/256 for 8 heads, in both directions."""
    heads = {"block__attention__n_heads": 8, "block__attention__n_kv_heads": 8}
    _, seen = taps_of(changed(base(n_layers=1), block__attention__position=SLOPE, **heads, **EVERYWHERE), repeated(9))
    scores = seen["blocks.0.attn_scores"][0]
    for head, slope in enumerate([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]):
        for i in range(9):
            for j in range(9):
                lost = (scores[head, i, i] - scores[head, i, j]).item()
                assert lost == pytest.approx(slope * abs(i - j), abs=1e-12)


# --- no order, and beyond the end -------------------------------------------------------------------------


def test_without_positions_the_input_is_a_set():
    """Order is invisible to a bidirectional model without positions: tokens shuffled, the scores are shuffled alike."""
    model = small_model(changed(base(), **EVERYWHERE))
    order = torch.tensor([4, 0, 9, 2, 7, 1, 8, 3, 6, 5])
    with torch.no_grad():
        torch.testing.assert_close(model(IDS[:, order]), model(IDS)[:, order], rtol=0, atol=1e-12)


def test_each_kind_of_position_makes_order_visible():
    """The control: with learned, sinusoidal, rotary or ALiBi positions the same shuffle shows."""
    order = torch.tensor([4, 0, 9, 2, 7, 1, 8, 3, 6, 5])
    table = {"type": "learned", "n_rows": 12, "offset": 0}
    for changes in (
        {"embedding__position": table},
        {"embedding__position": WAVE},
        {"block__attention__position": TURN},
        {"block__attention__position": SLOPE},
    ):
        model = small_model(changed(base(), **EVERYWHERE, **changes))
        with torch.no_grad():
            assert (model(IDS[:, order]) - model(IDS)[:, order]).abs().max() > 1e-3, changes


def test_computed_positions_reach_past_the_context_and_a_table_does_not():
    """Trained on 12 places, a model with ALiBi, rotary or sinusoidal positions can be tried on 48; a table ends."""
    ids = IDS.repeat(1, 5)[:, :48]
    for changes in (
        {"embedding__position": WAVE},
        {"block__attention__position": TURN},
        {"block__attention__position": SLOPE},
    ):
        model = small_model(changed(base(), **changes))
        with torch.no_grad():
            logits = model(ids)
            assert logits.isfinite().all()
            torch.testing.assert_close(logits[:, :10], model(IDS), rtol=0, atol=1e-11)
    learned = small_model(changed(base(), embedding__position={"type": "learned", "n_rows": 12, "offset": 0}))
    with pytest.raises(
        ShapeError, match="the sequence has 48 tokens, but the table of learned positions has room for 12"
    ):
        learned(ids)
