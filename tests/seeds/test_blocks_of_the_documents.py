"""Figures of the source documents about a block: norms, where they stand, the gate, and what the shortcut is for.

Formulas are written out here a second time, on single vectors, and held against what the taps of a model show. The next
file to read is test_counts_of_the_documents.py.
"""

import math

import pytest
import torch

from oracles.specs import BIDIRECTIONAL, NORMS, RESIDUALS, base, changed
from small import small_model
from unembed.model.check import from_plain
from unembed.model.init import AndreaInit, Gpt2Init, ZeroOutInit, build
from unembed.model.presets.gpt import micro_spec
from unembed.model.taps import Edit, Recorder
from unembed.objectives import next_token_loss
from unembed.optim.adamw import AdamWConfig, make_adamw

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6]])
CLOSE = {"rtol": 1e-12, "atol": 1e-13}


def taps_of(model, ids=IDS):
    """Every named step of a forward."""
    recorder = Recorder()
    model(ids, tap=recorder, attention="explicit")
    return recorder.values


# --- norms ------------------------------------------------------------------------------------------------


def layer_norm(x, norm):
    """gain * (x - mean) / sqrt(variance + eps) + bias, one vector at a time, sums written out."""
    out = torch.empty_like(x)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in x.shape[:-1])):
        row = x[tuple(place)].tolist()
        mean = sum(row) / len(row)
        spread = math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + 1e-5)
        for i, v in enumerate(row):
            out[(*place, i)] = norm.gain[i] * (v - mean) / spread + norm.bias[i]
    return out


def test_layer_norm_is_the_formula_per_vector():
    """Mean and variance are of one vector, never of the batch; eps is 1e-5."""
    model = small_model()
    with torch.no_grad():
        seen = taps_of(model)
        torch.testing.assert_close(
            seen["blocks.1.attn_in"], layer_norm(seen["blocks.1.resid_pre"], model.blocks[1].attn_norm), **CLOSE
        )
        for row in range(2):
            alone = taps_of(model, IDS[row : row + 1])["final_norm"][0]
            torch.testing.assert_close(alone, seen["final_norm"][row], **CLOSE)


def test_rms_norm_is_the_formula_and_has_half_the_numbers():
    """y = g * x / sqrt(mean(x^2) + eps): no mean is taken off, no bias added, so a gain is all that it has."""
    model = small_model(changed(base(), block__norm=NORMS["rms_norm"], final_norm=NORMS["rms_norm"]))
    with torch.no_grad():
        seen = taps_of(model)
        for vector, got in zip(
            seen["blocks.0.resid_pre"].flatten(0, 1), seen["blocks.0.attn_in"].flatten(0, 1), strict=True
        ):
            size = math.sqrt(sum(float(v) ** 2 for v in vector) / 12 + 0.01)
            torch.testing.assert_close(got, model.blocks[0].attn_norm.gain * vector / size, **CLOSE)
    halves = [sum(p.numel() for p in m.blocks[0].attn_norm.parameters()) for m in (model, small_model())]
    assert halves == [12, 24]


# --- where the norm stands --------------------------------------------------------------------------------


def test_pre_norm_and_post_norm_are_their_formulas_and_both_learn():
    """Pre-LN is x + F(norm(x)), Post-LN norm(x + F(x)), for attention and then for the MLP."""
    for kind in ("pre", "post"):
        model = small_model(changed(base(), block__residual=RESIDUALS[kind]))
        seen, block = taps_of(model), model.blocks[1]
        steps = {name: seen[f"blocks.1.{name}"] for name in ("resid_pre", "attn_in", "attn_out", "resid_mid")}
        steps |= {name: seen[f"blocks.1.{name}"] for name in ("mlp_in", "mlp_out", "resid_post")}
        for start, into, out, end, norm in (
            ("resid_pre", "attn_in", "attn_out", "resid_mid", "attn"),
            ("resid_mid", "mlp_in", "mlp_out", "resid_post", "mlp"),
        ):
            if kind == "pre":
                normed = layer_norm(steps[start], getattr(block, f"{norm}_norm"))
                torch.testing.assert_close(steps[into], normed, **CLOSE)
                torch.testing.assert_close(steps[end], steps[start] + steps[out], **CLOSE)
            else:
                assert torch.equal(steps[into], steps[start])
                normed = layer_norm(steps[start] + steps[out], getattr(block, f"{norm}_post_norm"))
                torch.testing.assert_close(steps[end], normed, **CLOSE)
        next_token_loss(seen["logits"], IDS.roll(-1, 1)).mean().backward()
        assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in model.parameters())


def test_swiglu_is_w2_of_silu_w1_times_v():
    """W_2 (silu(W_1 x) * (V x)), the product entry by entry; the document's own formula is garbled."""
    model = small_model(
        changed(base(), block__mlp={"type": "gated", "d_mlp": 7, "activation": "silu", "has_bias": False})
    )
    mlp, seen = model.blocks[0].mlp, taps_of(model)
    x = seen["blocks.0.mlp_in"]
    gate = x @ mlp.gate.weight.T
    expected = (gate / (1 + torch.exp(-gate)) * (x @ mlp.up.weight.T)) @ mlp.down.weight.T
    torch.testing.assert_close(seen["blocks.0.mlp_out"], expected, **CLOSE)


# --- the shortcut -----------------------------------------------------------------------------------------


def jacobians(kind):
    """dF/dx and dy/dx of the attention half of a tiny block at one position, F(x) being what it gives to the stream."""
    sizes = {"embedding__d_model": 3, "block__attention__d_head": 2, "block__attention__n_heads": 1}
    plain = changed(base(n_layers=1), **sizes, block__attention__n_kv_heads=1, block__attention__sees=BIDIRECTIONAL)
    model = small_model(changed(plain, block__residual=RESIDUALS[kind]), seed=3)

    def step(name):
        def of(x):
            recorder = Recorder([f"blocks.0.{name}"])
            start = Edit({"embed": lambda _: x[None, None]})

            class Both:
                def __call__(self, at, value):
                    return recorder(at, start(at, value))

                def inside(self, layer):
                    return recorder.inside(layer)

            model.hidden(torch.zeros(1, 1, dtype=torch.long), tap=Both())
            return recorder.values[f"blocks.0.{name}"][0, 0]

        return torch.autograd.functional.jacobian(of, torch.tensor([0.3, -1.1, 0.8], dtype=torch.float64))

    return step("attn_out"), step("resid_mid")


def test_derivative_of_a_residual_block_is_that_of_f_plus_one():
    """dy/dx = dF/dx + I with the shortcut; without it the I is missing."""
    inner, whole = jacobians("pre")
    assert inner.abs().max() > 0.1
    torch.testing.assert_close(whole, inner + torch.eye(3, dtype=torch.float64), **CLOSE)
    inner, whole = jacobians("no_shortcut")
    torch.testing.assert_close(whole, inner, **CLOSE)


def gradient_norms(kind, n_layers=12):
    """The norm of the loss's gradient at the input of each block, at the usual start."""
    spec = from_plain(changed(base(n_layers=n_layers), block__residual=RESIDUALS[kind]))
    model = build(spec, Gpt2Init(std=0.02), seed=0, dtype=torch.float64)
    recorder = Recorder(["blocks.*.resid_pre"])
    loss = next_token_loss(model(IDS, tap=recorder), IDS.roll(-1, 1)).mean()
    return [float(g.norm()) for g in torch.autograd.grad(loss, list(recorder.values.values()))]


def test_gradient_passes_twelve_blocks_with_the_shortcut_and_dies_without():
    """Through the I the gradient of the first block is as large as the last one's; without it a millionth is left of it."""
    through, cut = gradient_norms("pre"), gradient_norms("no_shortcut")
    assert 0.5 < through[0] / through[-1] < 2
    assert cut[0] / cut[-1] < 1e-6


def test_each_block_adds_a_little_to_one_stream():
    """The last stream is the first plus every update; at the start each update is short and hardly turns the stream."""
    spec = micro_spec(vocab_size=13, context_length=10, d_model=48, n_layers=12, n_heads=4)
    with torch.no_grad():
        seen = taps_of(build(spec, AndreaInit(), seed=0, dtype=torch.float64))
    updates = [seen[f"blocks.{layer}.{name}"] for layer in range(12) for name in ("attn_out", "mlp_out")]
    torch.testing.assert_close(seen["blocks.11.resid_post"], seen["blocks.0.resid_pre"] + sum(updates), **CLOSE)
    for layer in range(12):
        before, after = seen[f"blocks.{layer}.resid_pre"], seen[f"blocks.{layer}.resid_post"]
        share = (after - before).norm(dim=-1) / before.norm(dim=-1)
        assert 0.01 < share.mean() < 0.5
        assert torch.cosine_similarity(after, before, dim=-1).min() > 0.8
    with torch.no_grad():
        silent = taps_of(build(spec, ZeroOutInit(std=0.02), seed=0, dtype=torch.float64))
    assert torch.equal(silent["blocks.11.resid_post"], silent["blocks.0.resid_pre"])


# --- depth without warm-up --------------------------------------------------------------------------------


def last_loss(norm_at, n_layers, seed):
    """The loss after 40 steps of AdamW at 1e-2 from the first step on, on four short texts to be learnt by heart."""
    plain = changed(base(n_layers=n_layers), embedding__position={"type": "learned", "n_rows": 12, "offset": 0})
    plain = changed(plain, embedding__d_model=16, block__mlp__d_mlp=64, block__residual=RESIDUALS[norm_at])
    final_norm = plain["final_norm"] if norm_at == "pre" else None  # post-norm blocks end with theirs
    model = build(from_plain(changed(plain, final_norm=final_norm)), AndreaInit(), seed=seed)
    optimizer, _ = make_adamw(model, AdamWConfig(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0))
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    ids = torch.randint(13, (4, 12), generator=torch.Generator().manual_seed(0))
    for _ in range(40):
        optimizer.zero_grad()
        loss = next_token_loss(model(ids[:, :-1]), ids[:, 1:]).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("seed", [0, 1])
def test_48_pre_norm_layers_train_without_warm_up_and_48_post_norm_layers_do_not(seed):
    """Post-LN stays near the frequencies of single tokens, 2.3 nats, where Pre-LN learns; with 4 layers both learn."""
    pre, post = last_loss("pre", 48, seed), last_loss("post", 48, seed)
    assert pre < 1.9, (pre, post)
    assert post > 2.1, (pre, post)
    shallow = last_loss("post", 4, seed)
    assert shallow < 1.9, shallow
