"""What must hold of a model whatever its weights: where it may look, what a position is, and which numbers it survives.

Each property is checked on the whole model through its taps, in float64 unless half precision is the point, on both
attention paths where they could differ.
"""

import math

import pytest
import torch

from oracles.specs import BIDIRECTIONAL, NORMS, RESIDUALS, ROTARY, SCALINGS, base, changed, variants
from small import small_model
from unembed.errors import ShapeError
from unembed.model.check import from_plain
from unembed.model.masks import Keys, visibility
from unembed.model.norms import make_norm
from unembed.model.positions.alibi import slopes
from unembed.model.positions.rotary import frequencies, rotary_tables, rotate
from unembed.model.positions.sinusoidal import sinusoids
from unembed.model.spec import LayerNorm, Llama3Scaling, RmsNorm, Rotary, Sinusoidal
from unembed.model.taps import Recorder
from unembed.objectives import IGNORED, next_token_loss

VARIANTS = variants()
PATHS = ("fused", "explicit")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6]])
# Token dropout scales a whole sequence by its share of masks, and dynamic scaling turns it by its length.
CAUSAL_SPECS = [
    name for name in VARIANTS if name not in ("token_dropout", "embed_everything") and "bidirectional" not in name
]


def taps_of(model, ids, names, **options):
    tap = Recorder(names)
    with torch.no_grad():
        model(ids, tap=tap, attention="explicit", **options)
    return tap.values


# --- positions: only the distance counts -------------------------------------------------------------------

ROTARIES = {
    "half": ROTARY,
    "interleaved": {**ROTARY, "pairing": "interleaved"},
    "part": {**ROTARY, "fraction": 0.67},
    **{name: {**ROTARY, "scaling": SCALINGS[name]} for name in ("linear", "llama3", "yarn")},
}


@pytest.mark.parametrize("name", ROTARIES)
@pytest.mark.parametrize("shift", [1, 17, 4096])
def test_rotary_scores_depend_on_the_distance_only(name, shift, generator):
    """q at p and k at s, both moved on by the same number of places: every score stays, in every pair of places."""
    spec = from_plain(changed(base(), block__attention__position=ROTARIES[name])).blocks[0].attention.position
    q, k = torch.randn(2, 1, 20, 4, 6, generator=generator, dtype=torch.float64)

    def scores(first):
        at = torch.arange(first, first + 20)[None]
        tables = rotary_tables(spec, 6, at, torch.tensor([20]), torch.float64)
        return torch.einsum("bqhd,bkhd->bhqk", rotate(spec, q, tables), rotate(spec, k, tables))

    assert (scores(shift) - scores(0)).abs().max() <= 1e-9 * shift
    assert (scores(0) - torch.einsum("bqhd,bkhd->bhqk", q, k)).abs().max() > 0.1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("position", "half", "interleaved"),
    [
        (1, [-1.98411, 1.95990, 2.46238, 4.01980], [-1.14264, 1.92208, 2.95985, 4.02980]),
        (100, [2.38142, -2.28528, 2.08059, 3.84415], [1.87505, 1.21827, -1.74498, 4.68562]),
    ],
)
def test_rotary_worked_example(pairing, position, half, interleaved):
    """A10a: v = [1, 2, 3, 4], base 10,000, in both pairings."""
    spec = Rotary(theta=10_000.0, pairing=pairing, fraction=1.0, scaling=None)
    tables = rotary_tables(spec, 4, torch.tensor([[position]]), torch.tensor([position + 1]), torch.float64)
    got = rotate(spec, torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]], dtype=torch.float64), tables)
    assert got.flatten().tolist() == pytest.approx(half if pairing == "half" else interleaved, abs=6e-6)


def test_pairings_are_one_function_under_another_order_of_entries(generator):
    """A10b: interleaved entries 0, 1, 2, 3, ... are half-split entries 0, n/2, 1, n/2 + 1, ...: there and back, bit for bit."""
    x = torch.randn(1, 64, 2, 8, generator=generator, dtype=torch.float64)
    order = torch.arange(8).view(2, 4).T.flatten()
    specs = [Rotary(theta=10_000.0, pairing=pairing, fraction=1.0, scaling=None) for pairing in ("half", "interleaved")]
    half, interleaved = (rotary_tables(s, 8, torch.arange(64)[None], torch.tensor([64]), torch.float64) for s in specs)
    assert torch.equal(rotate(specs[0], x, half)[..., order], rotate(specs[1], x[..., order], interleaved))
    assert torch.equal(x[..., order][..., order.argsort()], x)


def test_llama3_scaling_worked_example():
    """A11a, b: pairs that turn fast stay, slow ones are divided, a ramp between."""
    scaling = {"low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_context": 8192}
    plain = Rotary(theta=500_000.0, pairing="half", fraction=1.0, scaling=None)
    by_32 = Rotary(theta=500_000.0, pairing="half", fraction=1.0, scaling=Llama3Scaling(factor=32.0, **scaling))
    by_8 = Rotary(theta=500_000.0, pairing="half", fraction=1.0, scaling=Llama3Scaling(factor=8.0, **scaling))
    before, after = frequencies(plain, 64), frequencies(by_32, 64)
    assert torch.equal(before[:15], after[:15])
    assert after[[14, 15, 16, 17, 31]].tolist() == pytest.approx(
        [3.211446e-3, 1.290548e-3, 4.295568e-4, 9.708288e-5, 9.418307e-8], rel=1e-6
    )
    assert before[[15, 16, 17]].tolist() == pytest.approx([2.131120e-3, 1.414214e-3, 9.384739e-4], rel=1e-6)
    torch.testing.assert_close(after[18:], before[18:] / 32, rtol=1e-12, atol=0)
    ratio = frequencies(by_8, 128) / frequencies(plain, 128)
    assert ratio[:29].tolist() == [1.0] * 29
    assert ratio[[29, 31, 34]].tolist() == pytest.approx([0.82817, 0.49351, 0.19021], abs=5e-6)
    torch.testing.assert_close(ratio[35:], torch.full_like(ratio[35:], 0.125), rtol=1e-12, atol=0)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8, 12, 25])
def test_alibi_scores_fall_in_a_line_with_the_distance(n_heads):
    """The attention scores with and without positions differ by slope * distance, wherever the two tokens stand."""
    heads = {"block__attention__n_heads": n_heads, "block__attention__n_kv_heads": n_heads}
    plain = changed(base(n_layers=1), **heads)
    with_alibi = small_model(changed(plain, block__attention__position={"type": "alibi"}))
    scores = [
        taps_of(m, IDS, ["blocks.0.attn_scores"])["blocks.0.attn_scores"] for m in (small_model(plain), with_alibi)
    ]
    bias = scores[1] - scores[0]
    for head, slope in enumerate(slopes(n_heads)):
        for query in range(10):
            for key in range(query + 1):
                assert bias[0, head, query, key].item() == pytest.approx(-slope * (query - key), abs=1e-12)
    assert torch.isinf(scores[1][:, :, 2, 3:]).all()


def test_alibi_slopes_of_awkward_head_counts():
    """A12a: 8 heads run from 1/2 to 1/256; 6 and 12 take every other slope of the next power's."""
    assert slopes(8) == [2.0**-i for i in range(1, 9)]
    assert slopes(6) == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert slopes(12) == pytest.approx([*slopes(8), 0.70710678, 0.35355339, 0.17677670, 0.08838835], rel=1e-7)
    assert slopes(1) == [2.0**-8]


@pytest.mark.parametrize("d_model", [2, 6, 7, 12])
def test_sinusoids_of_p_plus_k_are_a_fixed_rotation(d_model):
    """PE(p + k) = R(k) PE(p) for every p, R made of k alone, a 2 x 2 turn for each pair."""
    spec = Sinusoidal(theta=100.0)

    def waves(first):
        return sinusoids(spec, torch.arange(first, first + 30)[None], torch.zeros(1, 30, d_model, dtype=torch.float64))[
            0
        ]

    n_whole = d_model // 2 * 2  # the last sine of an odd width has no cosine to turn with
    for k in (1, 5, 1000):
        turn = torch.zeros(n_whole, n_whole, dtype=torch.float64)
        for i in range(0, n_whole, 2):
            angle = k * 100.0 ** (-i / d_model)
            c, s = math.cos(angle), math.sin(angle)
            turn[i : i + 2, i : i + 2] = torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
        assert (waves(k)[:, :n_whole] - waves(0)[:, :n_whole] @ turn.T).abs().max() <= 1e-12 * k


def test_sinusoids_worked_example():
    """A12b: width 5 at position 1 and width 3 at position 0, with theta 10,000."""
    spec = Sinusoidal(theta=10_000.0)

    def at(position, width):
        return (
            sinusoids(spec, torch.tensor([[position]]), torch.zeros(1, 1, width, dtype=torch.float64))
            .flatten()
            .tolist()
        )

    assert at(1, 5) == pytest.approx([0.841471, 0.540302, 0.025116, 0.999685, 0.000631], abs=5e-7)
    assert at(0, 3) == [0.0, 1.0, 0.0]


# --- order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_bidirectional_model_without_positions_is_permutation_equivariant(path, generator):
    """Without positions the input is a set: shuffled tokens give shuffled scores, and nothing else changes."""
    model = small_model(changed(base(), block__attention__sees=BIDIRECTIONAL))
    order = torch.randperm(10, generator=generator)
    with torch.no_grad():
        there, shuffled = model(IDS, attention=path), model(IDS[:, order], attention=path)
    torch.testing.assert_close(shuffled, there[:, order], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["learned", "sinusoidal", "rotary", "alibi"])
def test_each_kind_of_position_breaks_that_symmetry(name, generator):
    """The control of the test above: with positions, order shows."""
    plain = changed(VARIANTS["alibi_4_heads" if name == "alibi" else name], block__attention__sees=BIDIRECTIONAL)
    model = small_model(plain)
    order = torch.randperm(10, generator=generator)
    with torch.no_grad():
        assert (model(IDS[:, order]) - model(IDS)[:, order]).abs().max() > 1e-3


# --- who sees whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CAUSAL_SPECS)
def test_causal_logits_do_not_depend_on_later_tokens(name, path):
    """Other tokens from place 6 on: the logits before it keep every bit that rounding leaves them."""
    model = small_model(VARIANTS[name])
    other = IDS.clone()
    other[:, 6:] = (other[:, 6:] + 5) % 13
    with torch.no_grad():
        a, b = model(IDS, attention=path), model(other, attention=path)
    assert (a[:, :6] - b[:, :6]).abs().max() <= 1e-13 * a.abs().max()
    assert (a[:, 6:] - b[:, 6:]).abs().max() > 1e-6


@pytest.mark.parametrize("window", [1, 2, 3, 9, 10, 11])
def test_window_shows_exactly_w_keys(window):
    """A query sees itself and the window - 1 keys before it, or all that there are."""
    model = small_model(changed(base(), block__attention__sees={"type": "causal", "window": window}))
    patterns = taps_of(model, IDS, ["blocks.*.attn_pattern"])
    for pattern in patterns.values():
        for query in range(10):
            first = max(0, query - window + 1)
            seen = pattern[:, :, query] > 0
            assert seen[..., first : query + 1].all()
            assert seen.sum(-1).eq(query + 1 - first).all()


@pytest.mark.parametrize("path", PATHS)
def test_window_hides_what_lies_before_it_in_one_layer_and_reaches_back_by_layers(path):
    """One layer of window 3 cannot feel the token three back; two layers can, and no further than four back."""
    for n_layers, reach in ((1, 2), (2, 4)):
        model = small_model(changed(base(n_layers=n_layers), block__attention__sees={"type": "causal", "window": 3}))
        other = IDS.clone()
        other[:, 2] = (other[:, 2] + 5) % 13
        with torch.no_grad():
            differs = (model(IDS, attention=path) - model(other, attention=path)).abs().amax(-1) > 1e-9
        assert differs[0].nonzero()[:, 0].tolist() == list(range(2, 2 + reach + 1))


def test_mask_positions_count_real_tokens():
    """A14a: with mask 0 0 1 1 1 the real tokens stand at 0, 1, 2; a learned table's rows 0, 1, 2 are read."""
    model = small_model(VARIANTS["learned"])
    mask = torch.tensor([[False, False, True, True, True]])
    rows = taps_of(model, IDS[:1, :5], ["pos_embed"], mask=mask)["pos_embed"]
    assert torch.equal(rows[0, 2:], model.embed.pos_table[:3])


# --- padding ----------------------------------------------------------------------------------------------

POSITIONS = ("plain", "learned", "learned_offset", "sinusoidal", "sinusoidal_odd_width", "rotary", "rotary_dynamic")
POSITIONS += ("rotary_yarn", "alibi_3_heads", "alibi_bidirectional", "window_3", "bidirectional", "grouped_query")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", POSITIONS)
def test_padded_left_or_right_equals_alone(name, path):
    """A14b: lengths 1, 3, 7 in one batch, padded on either side or on both."""
    model = small_model(VARIANTS[name])
    prompts = [[5], [1, 2, 3], [9, 8, 7, 6, 5, 4, 3]]
    for n_left in (lambda blank: blank, lambda blank: 0, lambda blank: blank // 2):
        rows, masks = [], []
        for prompt in prompts:
            blank = 9 - len(prompt)
            left = n_left(blank)
            rows.append([0] * left + prompt + [0] * (blank - left))
            masks.append([False] * left + [True] * len(prompt) + [False] * (blank - left))
        mask = torch.tensor(masks)
        with torch.no_grad():
            together = model(torch.tensor(rows), mask=mask, attention=path)
            for row, prompt in enumerate(prompts):
                alone = model(torch.tensor([prompt]), attention=path)[0]
                assert (together[row, mask[row]] - alone).abs().max() <= 1e-11 * alone.abs().max()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", POSITIONS)
def test_full_mask_is_no_mask(name, path):
    model = small_model(VARIANTS[name])
    with torch.no_grad():
        masked = model(IDS, mask=torch.ones_like(IDS, dtype=torch.bool), attention=path)
        torch.testing.assert_close(masked, model(IDS, attention=path), rtol=0, atol=1e-11)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "name", ["plain", "bidirectional", "alibi_3_heads", "score_softcap", "window_3", "token_dropout"]
)
def test_row_without_visible_keys_gives_zeros_and_finite_gradients(name, path):
    """A06b: a sequence of padding alone. Its heads give zeros, the gradients are finite, the other rows are unchanged."""
    model = small_model(VARIANTS[name])
    mask = torch.ones_like(IDS, dtype=torch.bool)
    mask[1] = False
    tap = Recorder(["blocks.*.z"])
    logits = model(IDS, mask=mask, tap=tap, attention=path)
    assert all((z[1] == 0).all() for z in tap.values.values())
    assert logits.isfinite().all()
    targets = IDS.clone()
    targets[1, :5] = IGNORED
    next_token_loss(logits, targets).mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        torch.testing.assert_close(logits[:1], model(IDS[:1], attention=path), rtol=0, atol=1e-11)


def test_padding_queries_of_a_left_padded_row_see_nothing_of_other_rows():
    """Each row's queries meet that row's keys only: another neighbour changes no bit."""
    model = small_model(VARIANTS["rotary"])
    mask = torch.tensor([[False] * 4 + [True] * 6, [True] * 10])
    other = IDS.clone()
    other[1] = (other[1] + 3) % 13
    with torch.no_grad():
        assert torch.equal(model(IDS, mask=mask)[0], model(other, mask=mask)[0])


def test_query_whose_window_holds_no_real_key_sees_all_and_is_zeroed():
    """The mask in use: no softmax runs over nothing, and has_view says whose output must not count."""
    attention = from_plain(VARIANTS["window_3"]).blocks[0].attention
    keys = Keys(torch.tensor([[0, 5]]), torch.tensor([[0, 1]]), torch.tensor([[True, True]]))
    seen = visibility(attention, keys, torch.float32)
    assert seen.has_view.flatten().tolist() == [True, True]
    narrow = from_plain(VARIANTS["window_1"]).blocks[0].attention
    seen = visibility(narrow, keys, torch.float32)
    assert seen.has_view.flatten().tolist() == [True, False]
    assert seen.visible[0, 0].tolist() == [[True, False], [True, True]]


# --- norms and number types -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NORMS)
def test_norms_ignore_the_batch(name, generator):
    """Each vector on its own: alone, among others, and beside a huge one it comes out with the same bits."""
    model = small_model(changed(base(), final_norm=NORMS[name]))
    x = torch.randn(4, 3, 12, generator=generator, dtype=torch.float64)
    together = model.normed(x)
    x[1:] *= 1e6
    assert torch.equal(model.normed(x)[0], together[0])
    assert torch.equal(model.normed(x[:1, 2:])[0, 0], together[0, 2])


def test_layer_norm_gives_mean_0_and_variance_1(generator):
    norm = make_norm(LayerNorm(eps=1e-5, has_bias=True), 64).double()
    torch.nn.init.ones_(norm.gain)
    torch.nn.init.zeros_(norm.bias)
    y = norm(torch.randn(5, 64, generator=generator, dtype=torch.float64) * 7 + 3)
    assert y.mean(-1).abs().max() < 1e-12
    torch.testing.assert_close(y.var(-1, unbiased=False), torch.ones(5, dtype=torch.float64), rtol=1e-5, atol=0)


def norms_with_gain_1(width, dtype):
    """LayerNorm and every RMSNorm, all multiplying by 1."""
    specs = [LayerNorm(eps=1e-5, has_bias=True), *(RmsNorm(eps=1e-6, gain=g) for g in ("none", "plain", "one_plus"))]
    for spec in specs:
        norm = make_norm(spec, width)
        for name, parameter in norm.named_parameters():
            starts_at_1 = name == "gain" and getattr(spec, "gain", "") != "one_plus"
            torch.nn.init.constant_(parameter, 1.0 if starts_at_1 else 0.0)
        yield spec, norm.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_norms_of_eight_times_300_do_not_overflow(dtype):
    """A09a: 300^2 is beyond float16; RMSNorm gives ones, LayerNorm zeros."""
    for spec, norm in norms_with_gain_1(8, dtype):
        y = norm(torch.full((1, 8), 300.0, dtype=dtype))
        assert y.dtype == dtype
        expected = 0.0 if isinstance(spec, LayerNorm) else 1.0
        assert (y.float() - expected).abs().max() <= 0.002, spec


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_norms_of_zero_are_zero_forward_and_finite_backward(dtype):
    """A09b."""
    for spec, norm in norms_with_gain_1(8, dtype):
        x = torch.zeros(2, 8, dtype=dtype, requires_grad=True)
        y = norm(x)
        assert (y == 0).all(), spec
        y.sum().backward()
        assert x.grad.isfinite().all(), spec
        assert all(p.grad.isfinite().all() for p in norm.parameters()), spec


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["plain", "rotary", "alibi_3_heads", "norm_rms_norm_one_plus", "score_softcap"])
def test_half_precision_stays_near_the_float32_model(name, path):
    """bfloat16 keeps 8 bits: through two layers the logits stay within a few per cent of their size."""
    exact, half = small_model(VARIANTS[name], dtype=torch.float32), small_model(VARIANTS[name], dtype=torch.bfloat16)
    with torch.no_grad():
        wide, narrow = exact(IDS, attention=path), half(IDS, attention=path)
    assert narrow.dtype == torch.bfloat16
    assert (narrow.float() - wide).norm() <= 0.1 * wide.norm()


# --- awkward sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("d_model", "n_heads", "n_kv_heads", "d_head", "position"),
    [
        (5, 3, 1, 7, None),
        (5, 3, 3, 2, ROTARY),
        (1, 1, 1, 1, None),
        (7, 5, 5, 3, {"type": "alibi"}),
        (3, 12, 4, 2, {"type": "alibi"}),
        (11, 6, 2, 6, {**ROTARY, "fraction": 0.34}),
    ],
)
def test_odd_widths_and_head_counts_work(path, d_model, n_heads, n_kv_heads, d_head, position):
    """No width need be a multiple of another: forward, backward, and causality all the same."""
    plain = changed(
        base(),
        embedding__d_model=d_model,
        embedding__position={"type": "sinusoidal", "theta": 100.0},
        block__attention__n_heads=n_heads,
        block__attention__n_kv_heads=n_kv_heads,
        block__attention__d_head=d_head,
        block__attention__position=position,
        block__mlp__d_mlp=3,
        block__norm=NORMS["rms_norm"],
        block__residual=RESIDUALS["both"],
    )
    model = small_model(plain)
    logits = model(IDS, attention=path)
    next_token_loss(logits, IDS).mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        torch.testing.assert_close(model(IDS[:, :4], attention=path), logits[:, :4].detach(), rtol=0, atol=1e-11)


def test_one_token_and_no_layers():
    assert small_model(VARIANTS["rotary"])(IDS[:, :1]).shape == (2, 1, 13)
    model = small_model(VARIANTS["no_blocks"])
    expected = model.normed(model.embed.table[IDS]) @ model.embed.table.T
    torch.testing.assert_close(model(IDS), expected, rtol=1e-12, atol=0)


# --- A13: a table of positions ends -----------------------------------------------------------------------


def test_learned_table_refuses_one_token_too_many_and_serves_the_next_call():
    """A13a: a table of 16 names 16 and 17 before anything is looked up."""
    model = small_model(
        changed(base(), context_length=16, embedding__position={"type": "learned", "n_rows": 16, "offset": 0})
    )
    seventeen = torch.zeros(1, 17, dtype=torch.long)
    with pytest.raises(
        ShapeError, match="the sequence has 17 tokens, but the table of learned positions has room for 16"
    ):
        model(seventeen)
    with pytest.raises(ShapeError, match="has 17 tokens"):  # all real, so the mask does not help
        model(seventeen, mask=torch.ones_like(seventeen, dtype=torch.bool))
    padded = torch.ones_like(seventeen, dtype=torch.bool)
    padded[0, 0] = False
    assert model(seventeen, mask=padded).shape == (1, 17, 13)  # sixteen of them are real
    assert model(seventeen[:, :16]).shape == (1, 16, 13)


def test_learned_table_with_reserved_rows_is_shorter_than_it_looks():
    """A13b: 514 rows of which 2 are reserved take 512 tokens; position 0 reads row 2."""
    position = {"type": "learned", "n_rows": 514, "offset": 2}
    model = small_model(changed(base(n_layers=0), context_length=512, embedding__position=position))
    assert model(torch.zeros(1, 512, dtype=torch.long)).shape == (1, 512, 13)
    with pytest.raises(
        ShapeError, match=r"513 tokens, .* room for 512 \(514 rows, the first 2 reserved\). .* windows of 512"
    ):
        model(torch.zeros(1, 513, dtype=torch.long))
    mask = torch.tensor([[True, True, True, True, False, False]])
    rows = taps_of(model, torch.tensor([[0, 5, 6, 2, 1, 1]]), ["pos_embed"], mask=mask)["pos_embed"]
    assert torch.equal(rows[0, :4], model.embed.pos_table[2:6])


@pytest.mark.usefixtures("unchecked")
def test_shapes_and_ids_that_do_not_fit_are_refused_by_name():
    model = small_model()
    with pytest.raises(
        ShapeError, match=r"model: ids of shape \[3\]; both must be \[batch, pos\]. One text is ids\[None\]"
    ):
        model(torch.tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match=r"model: ids of shape \[2, 10\], mask of shape \[2, 9\]"):
        model(IDS, mask=torch.ones(2, 9, dtype=torch.bool))
    with pytest.raises(ShapeError, match="embed: ids run from 0 to 13, but the table has 13 rows"):
        model(torch.tensor([[0, 13]]))
    with pytest.raises(ShapeError, match="embed: ids run from -1 to 4"):
        model(torch.tensor([[4, -1]]))
    with pytest.raises(
        ShapeError, match=r"unembed: the stream is 5 wide, the table 12. Was it taken from another model?"
    ):
        model.unembed(torch.zeros(1, 2, 5, dtype=torch.float64))


def test_forward_is_unembed_of_hidden():
    for name in ("untied_head_everything", "tied_head_everything", "final_norm_none"):
        model = small_model(VARIANTS[name])
        with torch.no_grad():
            assert torch.equal(model(IDS), model.unembed(model.hidden(IDS)))
