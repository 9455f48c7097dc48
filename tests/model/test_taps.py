"""Taps: they change nothing unless asked to, have the names that they promise, leave nothing behind, and compile away."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from oracles.specs import NORMS, RESIDUALS, ROTARY, base, changed, variants
from small import small_model
from unembed.errors import TapError
from unembed.model.check import from_json, to_json
from unembed.model.init import Gpt2Init, build
from unembed.model.presets.gpt import gpt_spec
from unembed.model.taps import Edit, NoTap, Recorder, check_names, no_tap, tap_names
from unembed.objectives import next_token_loss

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [8, 9, 7, 9, 3, 2, 3, 8]])
TARGETS = IDS.roll(-1, 1)
VARIANTS = variants()
NAMED = (
    "plain",
    "learned",
    "rotary_fraction",
    "alibi_3_heads",
    "grouped_query",
    "window_3",
    "score_softcap",
    "residual_post",
    "residual_both",
    "residual_parallel_one_norm",
    "residual_no_shortcut",
    "mlp_gated_silu_bias",
    "untied_head_everything",
    "embed_everything",
)


class Identity:
    """Looks at every step and returns the very tensor that came."""

    def __call__(self, name, value):
        return value

    def inside(self, layer):
        return self


def loss_and_gradients(model, tap=no_tap, attention="fused"):
    model.zero_grad()
    loss = next_token_loss(model(IDS, tap=tap, attention=attention), TARGETS).mean()
    loss.backward()
    return loss.detach().clone(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", NAMED)
def test_looking_changes_no_bit(name, attention):
    """Identity, a recorder of everything and edits that do nothing leave loss and every gradient bit-equal."""
    model = small_model(VARIANTS[name], dtype=torch.float32)
    loss, gradients = loss_and_gradients(model, attention=attention)
    nothing = Edit({tap: lambda value: value for tap in tap_names(model.spec, attention=attention)})
    for tap in (Identity(), Recorder(), Recorder(detach=True), nothing):
        loss_seen, gradients_seen = loss_and_gradients(model, tap, attention)
        assert torch.equal(loss, loss_seen)
        assert all(torch.equal(gradients[key], gradients_seen[key]) for key in gradients)


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", NAMED)
def test_recorder_sees_the_promised_names_in_order(name, attention):
    model, tap = small_model(VARIANTS[name]), Recorder()
    model(IDS, tap=tap, attention=attention)
    assert list(tap.values) == tap_names(model.spec, attention=attention)
    check_names(model.spec, tap.values, attention=attention)


def test_recorder_keeps_what_is_named_and_stars_stand_for_layers():
    model = small_model(VARIANTS["plain"])
    tap = Recorder(["embed", "blocks.*.resid_post", "blocks.1.z"])
    model(IDS, tap=tap)
    assert list(tap.values) == ["embed", "blocks.0.resid_post", "blocks.1.z", "blocks.1.resid_post"]
    assert tap.values["embed"].requires_grad
    assert tap.values["blocks.0.resid_post"].shape == (2, 8, 12)
    detached = Recorder(["logits"], detach=True)
    logits = model(IDS, tap=detached)
    assert not detached.values["logits"].requires_grad
    assert torch.equal(detached.values["logits"], logits)


def test_recorded_tensors_carry_gradients():
    """The gradient at a residual stream, against a finite change of it."""
    model, tap = small_model(), Recorder(["blocks.0.resid_post"])
    loss = next_token_loss(model(IDS, tap=tap), TARGETS).mean()
    (gradient,) = torch.autograd.grad(loss, tap.values["blocks.0.resid_post"])
    nudge = torch.zeros(2, 8, 12, dtype=torch.float64)
    nudge[1, 3, 5] = 1e-6
    with torch.no_grad():
        up = next_token_loss(model(IDS, tap=Edit({"blocks.0.resid_post": lambda r: r + nudge})), TARGETS).mean()
        down = next_token_loss(model(IDS, tap=Edit({"blocks.0.resid_post": lambda r: r - nudge})), TARGETS).mean()
    assert float((up - down) / 2e-6) == pytest.approx(gradient[1, 3, 5].item(), rel=1e-6)


# --- edits ------------------------------------------------------------------------------------------------


def test_edit_replaces_a_step_for_what_comes_after():
    """Without what attention and MLP add, every block is the identity: the logits are those of the embedding."""
    model = small_model(VARIANTS["plain"])
    nothing = {f"blocks.{i}.{name}": torch.zeros_like for i in range(2) for name in ("attn_out", "mlp_out")}
    tap = Recorder(["embed"])
    model(IDS, tap=tap)
    assert torch.equal(model(IDS, tap=Edit(nothing)), model.unembed(tap.values["embed"]))
    assert not torch.equal(model(IDS, tap=Edit(nothing)), model(IDS))


def test_edit_of_the_table_acts_on_one_use_only():
    model = small_model(VARIANTS["plain"])
    table = model.embed.table.detach().clone()
    doubled = model(IDS, tap=Edit({"unembed.table": lambda t: 2 * t}))
    torch.testing.assert_close(doubled, 2 * model(IDS), rtol=1e-12, atol=0)
    moved = model(IDS, tap=Edit({"embed.table": lambda t: t.flip(0)}))
    assert not torch.allclose(moved, model(IDS))
    assert torch.equal(model.embed.table, table)


def test_edit_that_changes_a_shape_is_refused():
    model = small_model()
    with pytest.raises(
        TapError, match=r"tap blocks.1.mlp_out: the edit returned shape \[2, 8\], but the step has \[2, 8, 12\]"
    ):
        model(IDS, tap=Edit({"blocks.1.mlp_out": lambda value: value[..., 0]}))


# --- A27a: nothing is left behind -------------------------------------------------------------------------


def hooks(model):
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    on_modules = sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)
    return on_modules + sum(len(p._backward_hooks or {}) for p in model.parameters())


@pytest.mark.parametrize("where", ["embed.table", "blocks.0.attn_pattern", "blocks.1.resid_mid", "logits"])
def test_raising_tap_leaves_nothing_behind(where):
    model = small_model()
    before, n_hooks = model(IDS), hooks(model)

    def broken(value):
        raise RuntimeError("a wrong edit")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="a wrong edit"):
            model(IDS, tap=Edit({where: broken}), attention="explicit")
    assert hooks(model) == n_hooks == 0
    assert torch.equal(model(IDS), before)


def test_raising_tap_leaves_a_cache_where_it_was():
    from unembed.model.kv_cache import KvCache

    model = small_model(changed(base(), block__attention__position=ROTARY))
    cache = KvCache(model.spec, batch=2, capacity=8, dtype=torch.float64, device=IDS.device)
    mask = torch.tensor([[True] * 4, [False] * 2 + [True] * 2])
    model(IDS[:, :4], mask=mask, cache=cache)

    def broken(value):
        raise RuntimeError("a wrong edit")

    with pytest.raises(RuntimeError, match="a wrong edit"):
        model(IDS[:, 4:], cache=cache, tap=Edit({"blocks.1.q": broken}))
    assert (cache.length, cache.n_real().tolist()) == (4, [4, 2])
    whole = model(IDS, mask=torch.cat([mask, torch.ones(2, 4, dtype=torch.bool)], dim=1))
    torch.testing.assert_close(model(IDS[:, 4:], cache=cache), whole[:, 4:], rtol=0, atol=1e-12)


# --- names that do not exist ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "name", "attention", "message"),
    [
        (
            "plain",
            "blocks.0.attn_pattern",
            "fused",
            "the fused attention path has no such step; run with attention='explicit'",
        ),
        ("plain", "blocks.*.attn_scores", "fused", "the fused attention path has no such step"),
        (
            "residual_parallel_one_norm",
            "blocks.1.resid_mid",
            "explicit",
            "parallel blocks add attention and MLP at once",
        ),
        ("plain", "blocks.2.z", "explicit", "this model has, among others: embed.table, embed, blocks.0.resid_pre"),
        ("plain", "resid_post", "explicit", r"among others: .*, \.\.\., logits"),
        ("plain", "pos_embed", "explicit", "among others"),
        ("plain", "blocks.0.q_rot", "explicit", "among others"),
        ("plain", "blocks.0.mlp_up", "explicit", "among others"),
        ("plain", "", "explicit", "tap ''"),
        ("plain", "blocks.0_z", "explicit", "among others"),
    ],
)
def test_names_that_no_forward_calls_are_refused_with_a_reason(variant, name, attention, message):
    spec = small_model(VARIANTS[variant]).spec
    with pytest.raises(TapError, match=message):
        check_names(spec, ["embed", name], attention=attention)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("blocks.0.resid_pst", "Did you mean blocks.0.resid_post"),
        ("blocks.*.mlp_put", r"Did you mean blocks.\*.mlp_out"),
        ("logitz", "Did you mean logits?"),
        ("blocks.9.z", "Did you mean blocks.1.z"),
    ],
)
def test_forward_refuses_names_that_it_would_never_call(name, hint):
    """Silence would look like a step that had no effect."""
    model = small_model(VARIANTS["plain"])
    for tap in (Recorder([name]), Edit({name: torch.zeros_like})):
        for run in (model, model.hidden, lambda ids, tap: model.unembed(model.hidden(ids), tap=tap)):
            with pytest.raises(TapError, match=hint):
                run(IDS, tap=tap)


def test_a_tap_is_held_against_each_model_and_path_that_it_meets():
    plain, parallel = small_model(VARIANTS["plain"]), small_model(VARIANTS["residual_parallel_one_norm"])
    tap = Recorder(["blocks.0.resid_mid"])
    plain(IDS, tap=tap)
    plain(IDS, tap=tap)
    with pytest.raises(TapError, match="parallel blocks add attention and MLP at once"):
        parallel(IDS, tap=tap)
    pattern = Recorder(["blocks.0.attn_pattern"])
    plain(IDS, tap=pattern, attention="explicit")
    with pytest.raises(TapError, match="run with attention='explicit'"):
        plain(IDS, tap=pattern)


def test_edit_of_all_layers_at_once_and_the_exact_name_wins():
    model = small_model(VARIANTS["plain"])
    one_by_one = {f"blocks.{i}.{name}": torch.zeros_like for i in range(2) for name in ("attn_out", "mlp_out")}
    at_once = Edit({"blocks.*.attn_out": torch.zeros_like, "blocks.*.mlp_out": torch.zeros_like})
    assert torch.equal(model(IDS, tap=at_once), model(IDS, tap=Edit(one_by_one)))
    called = []
    edits = {
        "blocks.*.z": lambda value: called.append("star") or value,
        "blocks.1.z": lambda value: called.append("exact") or value,
    }
    model(IDS, tap=Edit(edits))
    assert called == ["star", "exact"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recorder("logits"), r"got the text 'logits', expected a list of names. Write \['logits'\]"),
        (lambda: Recorder([3]), "3 is no name"),
        (lambda: Edit({"logits": 0}), "tap 'logits': its edit is no function"),
    ],
)
def test_taps_that_cannot_be_are_refused(make, message):
    with pytest.raises(TapError, match=message):
        make()


@pytest.mark.usefixtures("unchecked")
def test_edit_that_forgets_to_return_is_told_so():
    with pytest.raises(
        TapError, match=r"tap logits: the edit returned NoneType, expected a tensor. Does it end in a ret"
    ):
        small_model()(IDS, tap=Edit({"logits": lambda value: None}))


def test_names_of_all_layers_at_once_are_known():
    spec = small_model(VARIANTS["rotary"]).spec
    check_names(spec, ["blocks.*.q_rot", "blocks.0.attn_pattern", "embed.table", "unembed.table"])


def test_block_holds_no_blocks():
    for tap in (Recorder(), Edit({})):
        with pytest.raises(TapError, match=r"tap blocks.3.: a block holds no blocks, so it has no layer 0"):
            tap.inside(3).inside(0)
    assert isinstance(no_tap.inside(7), NoTap)
    assert no_tap.inside(7) is no_tap


# --- the two gradients that meet in the table -------------------------------------------------------------


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", ["plain", "embed_everything", "tied_head_everything", "untied_head", "embed_scale"])
def test_gradients_of_the_two_uses_sum_to_the_tables(name, attention):
    """Tied: gradient of the table = through embedding + through un-embedding (1e-12). Untied: each table has its own."""
    model, tap = small_model(VARIANTS[name]), Recorder(["embed.table", "unembed.table"])
    loss = next_token_loss(model(IDS, tap=tap, attention=attention), TARGETS).mean()
    uses = torch.autograd.grad(loss, [tap.values["embed.table"], tap.values["unembed.table"]], retain_graph=True)
    loss.backward()
    assert all(use.abs().max() > 1e-4 for use in uses)
    if model.spec.ties_embeddings:
        whole = model.embed.table.grad
        assert (uses[0] + uses[1] - whole).abs().max() <= 1e-12 * whole.abs().max()
    else:
        assert torch.equal(uses[0], model.embed.table.grad)
        assert torch.equal(uses[1], model.head.table.grad)


def test_each_use_is_that_of_an_untied_copy():
    """A03b: the gradient of each use, measured on a model whose head has a table of its own with equal numbers."""
    tied = small_model(VARIANTS["plain"])
    untied = small_model(VARIANTS["untied_head"])
    untied.load_state_dict({**tied.state_dict(), "head.table": tied.embed.table.detach().clone()})
    tap = Recorder(["embed.table", "unembed.table"])
    loss = next_token_loss(tied(IDS, tap=tap), TARGETS).mean()
    uses = torch.autograd.grad(loss, [tap.values["embed.table"], tap.values["unembed.table"]])
    next_token_loss(untied(IDS), TARGETS).mean().backward()
    torch.testing.assert_close(uses[0], untied.embed.table.grad, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(uses[1], untied.head.table.grad, rtol=1e-12, atol=1e-15)


# --- compiling --------------------------------------------------------------------------------------------

DEEP = gpt_spec(vocab_size=13, context_length=8, d_model=8, n_layers=24, n_heads=2)
LLAMA_LIKE = changed(
    base(n_layers=24),
    block__attention__position=ROTARY,
    block__attention__n_kv_heads=2,
    block__norm=NORMS["rms_norm"],
    block__mlp__type="gated",
    block__residual=RESIDUALS["pre"],
)


def compiled(model, **options):
    """The model with its blocks compiled one by one, as the training loop does, and the counter of its graphs."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    for block in model.blocks:
        block.compile(backend=counter, fullgraph=True, **options)
    return counter


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tap", [no_tap, Identity()], ids=["no_tap", "identity"])
@pytest.mark.parametrize("kind", ["one_spec_object", "read_from_json", "llama_like"])
def test_24_compiled_blocks_make_one_graph(kind, tap):
    """fullgraph=True refuses every graph break; a name or number that differs by layer would make a graph a layer."""
    if kind == "llama_like":
        model = small_model(LLAMA_LIKE, dtype=torch.float32)
    else:
        # blocks of a preset are one object 24 times; those of a file are 24 equal ones
        model = build(from_json(to_json(DEEP)) if kind == "read_from_json" else DEEP, Gpt2Init(std=0.1), seed=0)
    plain_loss, plain = loss_and_gradients(model)
    counter = compiled(model)
    loss, gradients = loss_and_gradients(model, tap)
    assert counter.frame_count == 1
    assert loss.item() == pytest.approx(plain_loss.item(), rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain[name], rtol=1e-4, atol=1e-6)
    loss_and_gradients(model, tap)
    assert counter.frame_count == 1
    torch._dynamo.reset()
