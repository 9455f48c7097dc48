"""Faults that users of other tools met, tried on the whole model: a right function is worth nothing if no layer calls it.

The same faults are tried part by part elsewhere: rotary, ALiBi, sinusoids, norms, padding and tables that end in
test_properties.py; caches in ../generation/test_decode.py; ignored labels in ../training/test_loop.py; the lens in
../lenses/test_logit_lens.py. The next file to read is test_properties.py.
"""

import math

import pytest
import torch

from oracles.specs import LAYER_NORM, ROTARY, base, changed
from small import small_model
from unembed.model.kv_cache import KvCache
from unembed.model.taps import Recorder
from unembed.objectives import chunked_next_token_loss, next_token_loss

N_POS = 64
IDS = torch.randint(13, (1, N_POS), generator=torch.Generator().manual_seed(0))


# --- rotary layouts ---------------------------------------------------------------------------------------


def interleaved_rows(rows, d_head, n_rotated):
    """The rows of a q or k matrix for interleaved pairs, from those for half-split pairs: entry i + n/2 comes after i."""
    order = torch.arange(n_rotated).view(2, -1).T.flatten()
    order = torch.cat([order, torch.arange(n_rotated, d_head)])
    heads = rows.unflatten(0, (-1, d_head))
    there = heads[:, order]
    assert torch.equal(there[:, order.argsort()], heads)  # there and back, to the last bit
    return there.flatten(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_each_rotary_layout_with_its_own_rows_gives_the_same_logits_and_the_wrong_one_does_not(fraction, dtype):
    """Rows reordered and pairing changed together: equal at places 0 to 63. One without the other: only place 0 is equal."""
    plain = changed(base(), block__attention__d_head=8, block__attention__n_kv_heads=2)
    plain = changed(plain, block__attention__biases=["q", "k"], context_length=N_POS)
    half, pairs = (
        changed(
            plain, block__attention__position={**ROTARY, "theta": 10_000.0, "pairing": pairing, "fraction": fraction}
        )
        for pairing in ("half", "interleaved")
    )
    model, other, mistaken = (small_model(spec, dtype=dtype) for spec in (half, pairs, pairs))
    state = model.state_dict()
    moved = {
        name: interleaved_rows(value, 8, int(8 * fraction)) if "q_proj" in name or "k_proj" in name else value
        for name, value in state.items()
    }
    other.load_state_dict(moved)
    mistaken.load_state_dict(state)
    with torch.no_grad():
        expected, right, wrong = model(IDS), other(IDS), mistaken(IDS)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    assert (right - expected).abs().max() <= tolerance
    assert (wrong - expected)[:, 0].abs().max() <= tolerance
    assert (wrong - expected)[:, 20:].abs().max() > 0.1


# --- Llama 3's scaling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d_head", "factor", "pair_to_speed"),
    [
        (
            64,
            32.0,
            {0: 1.0, 14: 3.211446e-3, 15: 1.290548e-3, 16: 4.295568e-4, 17: 9.708288e-5, 31: 9.418307e-8},
        ),
        (
            128,
            8.0,
            {
                28: 500_000 ** (-28 / 64),
                29: 500_000 ** (-29 / 64) * 0.82817,
                31: 500_000 ** (-31 / 64) * 0.49351,
                34: 500_000 ** (-34 / 64) * 0.19021,
                63: 500_000 ** (-63 / 64) / 8,
            },
        ),
    ],
)
def test_scaled_rotary_speeds_reach_the_queries_and_keys_of_every_layer(d_head, factor, pair_to_speed):
    """Long texts degrade when a scaling is read and never used: the angles are measured where attention takes them up."""
    scaling = {"type": "llama3", "factor": factor, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
    position = {**ROTARY, "theta": 500_000.0, "scaling": {**scaling, "original_context": 8192}}
    model = small_model(changed(base(), block__attention__d_head=d_head, block__attention__position=position))
    seen = Recorder(detach=True)
    model(IDS[:, :12], tap=seen)
    for layer in range(2):
        for name in ("q", "k"):
            before, after = (
                torch.complex(*seen.values[f"blocks.{layer}.{one}"].chunk(2, dim=-1)) for one in (name, f"{name}_rot")
            )
            # at place 1 the angle is the speed itself, in every head
            speeds = (after / before)[0, 1].angle()
            for pair, speed in pair_to_speed.items():
                assert speeds[:, pair].tolist() == pytest.approx([speed] * 4, rel=1e-5), pair


# --- the mask when a cache already holds keys -------------------------------------------------------------


@pytest.mark.parametrize("position", [None, ROTARY, {"type": "alibi"}], ids=["none", "rotary", "alibi"])
@pytest.mark.parametrize(
    ("n_held", "window", "visible"),
    [
        (3, None, ["11110", "11111"]),
        (4, None, ["11111"]),
        (2, None, ["11100", "11110", "11111"]),
        (0, None, ["10000", "11000", "11100", "11110", "11111"]),
        (3, 2, ["00110", "00011"]),
        (4, 1, ["00001"]),
    ],
)
def test_new_queries_see_what_the_cache_holds_and_themselves(n_held, window, visible, position):
    """Two new queries over five keys see 1 1 1 1 0 and 1 1 1 1 1; a mask hung top-left would show the first one key only."""
    sees = {"type": "causal", "window": window}
    model = small_model(changed(base(), block__attention__sees=sees, block__attention__position=position))
    cache = KvCache(model.spec, batch=1, capacity=5, dtype=torch.float64, device=torch.device("cpu"))
    seen = Recorder(["blocks.*.attn_pattern"])
    with torch.no_grad():
        if n_held:
            model(IDS[:, :n_held], cache=cache)
        model(IDS[:, n_held:5], cache=cache, tap=seen, attention="explicit")
    assert len(seen.values) == 2
    for pattern in seen.values.values():
        for head in pattern[0]:
            assert ["".join(str(int(share > 0)) for share in row) for row in head] == visible


# --- numbers that half precision cannot hold --------------------------------------------------------------


def test_loss_in_pieces_of_half_precision_scores_as_large_as_60000_is_exact():
    """Scores 60,000 and 0 in float16: class 0 costs 0.0 and class 1 60,000, in one piece, in many, and in the plain loss."""
    head = {"type": "untied", "transform": None, "has_bias": False, "scale": None, "softcap": None}
    plain = changed(base(n_layers=0), final_norm=None, head=head, embedding__vocab_size=2, embedding__d_model=2)
    model = small_model(plain, dtype=torch.float16)
    with torch.no_grad():
        model.head.table.copy_(torch.tensor([[60_000.0, 0.0], [0.0, 0.0]]))
    resid = torch.tensor([[[1.0, 0.0]]], dtype=torch.float16)
    for target, expected in ((0, 0.0), (1, 60_000.0)):
        targets = torch.tensor([[target]])
        losses = [next_token_loss(model.unembed(resid), targets).total]
        for over in ("tokens", "vocabulary"):
            losses += [
                chunked_next_token_loss(model, resid, targets, over=over, scores_at_once=n).total for n in (1, 9)
            ]
        assert [loss.item() for loss in losses] == [expected] * 5


@pytest.mark.parametrize(
    "norm", [LAYER_NORM, {"type": "rms_norm", "eps": 1e-6, "gain": "one_plus"}], ids=["layer", "rms"]
)
@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_model_whose_stream_squares_beyond_float16_answers_like_the_float32_model(norm, path):
    """Entries around 1,000 square to a million, beyond 65,504: a norm that squares in float16 gives wrong answers, not NaN."""
    plain = changed(base(), embedding__scale=400.0, block__norm=norm, final_norm=norm, head__scale=0.1)
    half, single = (small_model(plain, dtype=dtype) for dtype in (torch.float16, torch.float32))
    seen = Recorder(["blocks.1.resid_post"])
    with torch.no_grad():
        got, expected = half(IDS[:, :12], tap=seen, attention=path), single(IDS[:, :12], attention=path)
    assert seen.values["blocks.1.resid_post"].abs().max() > math.sqrt(65_504)
    assert (got.float() - expected).norm() <= 0.02 * expected.norm()
