"""The two gradients: they sum to PyTorch's own, and each is that of one table of an untied twin.

The twin has two parameters with the values of the one; PyTorch's gradients of them know nothing of aliases and taps.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oracles import mutations
from oracles.specs import base, changed, variants
from small import small_model
from unembed.errors import InputError, ShapeError, TapError, UsageError
from unembed.model.head import Head
from unembed.objectives import IGNORED, chunked_next_token_loss, next_token_loss
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tying import gradients, split_gradient
from unembed.tying.gradients import frequency_groups
from unembed.tying.parts import TableGradients

IDS = torch.tensor([[3, 7, 1, 9, 4], [2, 2, 8, 0, 5], [4, 4, 4, 1, 0], [9, 9, 3, 1, 2]])
TARGETS = torch.tensor([[7, 1, 9, 4, 6], [2, 8, 0, 5, 11], [4, 4, 1, 0, IGNORED], [9, 3, IGNORED, 2, 2]])
N_COUNTED = 18
TIED = ["plain", "token_dropout", "embed_everything", "rotary", *(f"tied_head_{end}" for end in ("bias", "everything"))]


def twin_of(model, plain):
    """The same model with a second table of the same values."""
    twin = small_model(changed(plain, head__type="untied"))
    twin.load_state_dict({**model.state_dict(), "head.table": model.embed.table.detach().clone()})
    return twin


def two_gradients(twin, **options):
    """PyTorch's gradients of the twin's two tables, by plain calls."""
    next_token_loss(twin(IDS, **options), TARGETS).mean().backward()
    return twin.embed.table.grad, twin.head.table.grad


def close(found, expected):
    """To 1e-12 of the expected length, which is what float64 can do."""
    return float((found - expected).norm() / expected.norm()) <= 1e-12


@pytest.mark.parametrize("chunked", [None, "tokens", "vocabulary"])
@pytest.mark.parametrize("name", TIED)
def test_the_parts_sum_to_pytorchs_gradient_and_are_those_of_an_untied_twin(name, chunked):
    plain = variants()[name]
    model = small_model(plain)
    lookup, projection = two_gradients(twin_of(model, plain))
    with TableGradients() as parts:
        if chunked is None:
            loss = next_token_loss(model(IDS, tap=parts), TARGETS)
        else:  # pieces of 3 tokens, or of 3 rows of the vocabulary
            resid = model.hidden(IDS, tap=parts)
            loss = chunked_next_token_loss(model, resid, TARGETS, over=chunked, scores_at_once=40, tap=parts)
        loss.mean().backward()
    assert close(parts.lookup + parts.projection, model.embed.table.grad)
    assert close(parts.lookup, lookup)
    assert close(parts.projection, projection)


def norms(part):
    return part.norm(dim=1).numpy()


@pytest.mark.parametrize("options", [{}, {"chunked": True}, {"accumulate": 3}, {"accumulate": 9, "chunked": True}])
@pytest.mark.parametrize("name", ["tied_head_everything", "untied_head_everything"])
def test_every_row_is_told_as_the_twin_has_it(monkeypatch, name, options):
    monkeypatch.setattr(gradients, "ROWS_AT_ONCE", 4)  # several pieces
    plain = variants()[name]
    model = small_model(plain)
    first, second = two_gradients(twin_of(model, plain) if name.startswith("tied") else small_model(plain))
    found = split_gradient(model, IDS, TARGETS, **options)
    rows = found.tables["rows"]
    assert rows["lookup_norm"] == pytest.approx(norms(first), rel=1e-11, abs=1e-15)
    assert rows["projection_norm"] == pytest.approx(norms(second), rel=1e-11)
    assert rows["sum_norm"] == pytest.approx(norms(first + second), rel=1e-11)
    cosines = F.cosine_similarity(first, second, dim=1, eps=0.0).numpy()
    has_both = norms(first) > 0
    assert rows["cosine"][has_both].astype(float) == pytest.approx(cosines[has_both], rel=1e-9)
    assert set(rows["cosine"][~has_both]) == {None}
    values = found.values
    assert values["tied"] is name.startswith("tied")
    assert values["loss_nats"] == pytest.approx(next_token_loss(model(IDS), TARGETS).mean().item(), rel=1e-12)
    assert values["lookup_norm"] == pytest.approx(float(first.norm()), rel=1e-11)
    assert values["projection_norm"] == pytest.approx(float(second.norm()), rel=1e-11)
    assert values["cosine"] == pytest.approx(float((first * second).sum() / first.norm() / second.norm()), rel=1e-10)
    assert values["lookup_share"] == pytest.approx(float(first.norm() / (first.norm() + second.norm())), rel=1e-11)
    assert 0 <= values["sum_error"] <= 1e-12


def test_counts_tokens_and_groups_are_those_of_the_batch():
    model = small_model()
    model.tokenizer = CharacterTokenizer.from_text("abcdefghijk", has_end=False)
    found = split_gradient(model, IDS, TARGETS)
    rows = found.tables["rows"]
    assert rows["count_in_ids"].tolist() == [2, 3, 3, 2, 4, 1, 0, 1, 1, 3, 0, 0, 0]
    assert rows["count_as_target"].sum() == N_COUNTED
    assert rows["token"].tolist()[2] == model.tokenizer.token_text(2)
    assert rows["token"].tolist()[12] is None  # a row that no token has
    touched = dict(zip(*(found.tables["touched"][name].tolist() for name in ("touched", "rows")), strict=True))
    assert touched == {"neither": 0, "only_lookup": 0, "only_projection": 4, "both": 9}
    groups = found.tables["by_frequency"]
    assert groups["frequency"].tolist() == ["0", "1", "2-3", "4-7"]
    assert groups["rows"].tolist() == [4, 3, 5, 1]
    assert groups["lookup_norm"][0] == 0
    for name in ("lookup_norm", "projection_norm"):  # the groups' squares are those of the rows
        assert (groups[name] ** 2).sum() == pytest.approx((rows[name] ** 2).sum(), rel=1e-12)
        assert groups[name][3] == pytest.approx(rows[name][4], rel=1e-12)
    given = split_gradient(model, IDS, TARGETS, frequencies=[1000] * 12 + [0])
    assert given.tables["by_frequency"]["rows"].tolist() == [1, 12]
    assert frequency_groups(np.array([0, 1, 1023, 1024]))[1].tolist() == [0, 1, 10, 11]


def test_a_row_that_no_position_scores_and_none_looks_up_is_touched_by_neither():
    """With every label ignored there is no loss and no gradient, and nothing divides by 0."""
    found = split_gradient(small_model(), IDS, torch.full_like(TARGETS, IGNORED))
    assert found.tables["touched"]["rows"].tolist() == [13, 0, 0, 0]
    assert found.values["cosine"] is None
    assert found.values["lookup_share"] is None
    assert found.values["sum_error"] == 0


def test_clipping_scales_both_parts_as_it_scales_the_gradient():
    model = small_model()
    free = split_gradient(model, IDS, TARGETS)
    next_token_loss(model(IDS), TARGETS).mean().backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01))
    found = split_gradient(model, IDS, TARGETS, clip_norm=0.01)
    assert found.values["grad_norm"] == pytest.approx(norm, rel=1e-12)
    assert found.values["sum_norm"] == pytest.approx(float(model.embed.table.grad.norm()), rel=1e-11)
    for name in ("lookup_norm", "projection_norm"):
        assert found.values[name] == pytest.approx(free.values[name] * found.values["clip_factor"], rel=1e-12)
    assert found.values["cosine"] == pytest.approx(free.values["cosine"], rel=1e-11)
    loose = split_gradient(model, IDS, TARGETS, clip_norm=1e6)
    assert loose.values["clip_factor"] == 1
    assert loose.values["lookup_norm"] == free.values["lookup_norm"]


def test_dropout_draws_from_its_seed_and_leaves_the_generators_alone():
    model = small_model()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    found = [split_gradient(model, IDS, TARGETS, dropout=0.3, seed=seed).values["lookup_norm"] for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(3), expected)
    assert found[0] == found[1] != found[2]
    plain = base()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, _ = two_gradients(twin_of(model, plain), dropout=0.3)
    assert found[0] == pytest.approx(float(first.norm()), rel=1e-11)


def test_padding_is_passed_over():
    model, mask = small_model(), torch.ones_like(IDS, dtype=torch.bool)
    mask[0, :2] = False
    targets = TARGETS.masked_fill(~mask, IGNORED)
    first, second = two_gradients_masked(twin_of(model, base()), mask, targets)
    rows = split_gradient(model, IDS, targets, mask=mask, accumulate=2).tables["rows"]
    assert rows["lookup_norm"] == pytest.approx(norms(first), rel=1e-11, abs=1e-15)
    assert rows["projection_norm"] == pytest.approx(norms(second), rel=1e-11)


def two_gradients_masked(twin, mask, targets):
    next_token_loss(twin(IDS, mask=mask), targets).mean().backward()
    return twin.embed.table.grad, twin.head.table.grad


def hooks_on(model):
    return [hook for parameter in model.parameters() for hook in (parameter._backward_hooks or {})]


def test_the_model_stays_as_it_was_whatever_happens(unchecked):
    model = small_model()
    model.embed.table.requires_grad_(False)
    model.final_norm.gain.grad = torch.full_like(model.final_norm.gain, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        assert split_gradient(model, IDS, TARGETS, clip_norm=1.0).values["lookup_norm"] > 0
    for wrong in ({"targets": TARGETS + 90}, {"ids": IDS + 90, "targets": TARGETS}, {"targets": TARGETS[:, 1:]}):
        with pytest.raises(ShapeError):
            split_gradient(model, **{"ids": IDS, **wrong})
    assert model.embed.table.grad is None
    assert (model.final_norm.gain.grad == 7).all()
    assert not model.embed.table.requires_grad
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert hooks_on(model) == []


def test_no_hook_stays_on_an_alias_when_something_raises():
    """The alias of a graph that is kept would otherwise go on calling."""
    model, parts, kept = small_model(), TableGradients(), []

    def forward_then_fail():
        with parts:
            kept.append(next_token_loss(model(IDS, tap=parts), TARGETS).mean())
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="the power went"):
        forward_then_fail()
    kept[0].backward()
    with pytest.raises(TapError, match=r"tap embed.table: no gradient came through it. Was backward called"):
        parts.lookup  # noqa: B018


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_add_up_to_their_own_rounding(dtype):
    found = split_gradient(small_model(dtype=dtype), IDS, TARGETS, accumulate=2)
    exact = split_gradient(small_model(), IDS, TARGETS)
    assert found.values["lookup_norm"] == pytest.approx(exact.values["lookup_norm"], rel=10 * torch.finfo(dtype).eps)
    assert found.values["sum_error"] <= 8 * torch.finfo(dtype).eps


# --- faults planted into the model: the parts must no longer be handed out as if they were right ------------------------


def forgets_the_alias(head, normed, embed_table, tap):
    """The tap sees an alias, but the scores are made with the table itself."""
    table = embed_table if head.table is None else head.table
    tap("unembed.table", table.view_as(table))
    return tap("logits", F.linear(head.features(normed), table, head.bias))


def forgets_the_tap(head, normed, embed_table, tap):
    table = embed_table if head.table is None else head.table
    return tap("logits", F.linear(head.features(normed), table.view_as(table), head.bias))


def uses_the_table_twice(head, normed, embed_table, tap):
    """Half of the scores go past the alias."""
    table = embed_table if head.table is None else head.table
    features = head.features(normed) / 2
    alias = tap("unembed.table", table.view_as(table))
    return tap("logits", F.linear(features, alias, head.bias) + F.linear(features, table))


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("fault", [forgets_the_alias, forgets_the_tap, uses_the_table_twice])
def test_a_head_that_goes_past_its_alias_is_refused(monkeypatch, fault, kind):
    monkeypatch.setattr(Head, "forward", fault)
    with pytest.raises(TapError, match=r"unembed\.table"):
        split_gradient(small_model(changed(base(), head__type=kind)), IDS, TARGETS)


def test_a_head_with_a_copied_table_is_told_as_untied():
    model = small_model()
    mutations.by.head_of_another_table(model)
    assert split_gradient(model, IDS, TARGETS).values["tied"] is False


def test_messages():
    model = small_model()
    with pytest.raises(InputError, match=r"got Linear, expected a model of unembed. Open the file with unembed.load"):
        split_gradient(torch.nn.Linear(2, 2), IDS, TARGETS)
    with pytest.raises(UsageError, match="accumulate is 0, clip_norm None; they must be at least 1 and above 0"):
        split_gradient(model, IDS, TARGETS, accumulate=0)
    with pytest.raises(UsageError, match="2 frequencies for a table of 13 rows; give one for each row"):
        split_gradient(model, IDS, TARGETS, frequencies=[1, 2])


# --- compiled and sharded models ----------------------------------------------------------------------------------------


@pytest.mark.slow  # a compiler runs
@pytest.mark.parametrize("how", ["blocks", "whole", "wrapped"])
def test_a_compiled_model_has_the_same_parts(unchecked, how):
    torch._dynamo.reset()
    plain = base()
    model = small_model(plain)
    first, second = two_gradients(twin_of(model, plain))
    if how == "blocks":  # as training does
        for block in model.blocks:
            block.compile()
    elif how == "whole":
        model.compile()
    given = torch.compile(model) if how == "wrapped" else model
    rows = split_gradient(given, IDS, TARGETS, clip_norm=1e9).tables["rows"]
    assert rows["lookup_norm"] == pytest.approx(norms(first), rel=1e-11, abs=1e-15)
    assert rows["projection_norm"] == pytest.approx(norms(second), rel=1e-11)


@pytest.mark.slow  # two more processes import torch
def test_two_ranks_of_fsdp2_have_the_parts_of_one_process(tmp_path):
    """Gloo over loopback, one thread each; the gradient gathered from the shards is the sum of the averaged parts."""
    script, out = Path(__file__).with_name("sharded.py"), tmp_path / "found.npz"
    line = [sys.executable, str(script)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*line, str(rank), str(tmp_path / "meet"), str(out)], env=environ, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        _, said = rank.communicate(timeout=300)
        assert rank.returncode == 0, said.decode()[-2000:]
    from tying.sharded import IDS as ALL_IDS
    from tying.sharded import TARGETS as ALL_TARGETS

    with np.load(out) as found:
        for kind in ("tied", "untied"):
            twin = small_model(changed(base(), head__type="untied"))
            if kind == "tied":
                twin = twin_of(small_model(), base())
            next_token_loss(twin(ALL_IDS), ALL_TARGETS).mean().backward()
            factor = 0.1 / (1.0 + 1e-6)
            lookup, projection = (found[f"{kind}_{name}"] for name in ("lookup", "projection"))
            assert close(torch.from_numpy(lookup), twin.embed.table.grad * factor)
            assert close(torch.from_numpy(projection), twin.head.table.grad * factor)
            if kind == "tied":
                assert close(torch.from_numpy(found["tied_embed"]), torch.from_numpy(lookup + projection))
            else:
                assert close(torch.from_numpy(found["untied_embed"]), torch.from_numpy(lookup))
                assert close(torch.from_numpy(found["untied_head"]), torch.from_numpy(projection))


@pytest.mark.usefixtures("unchecked")
def test_lists_are_taken_as_tensors_are():
    model, mask = small_model(), torch.ones_like(IDS, dtype=torch.bool)
    found = split_gradient(model, IDS.tolist(), TARGETS.tolist(), mask=mask.tolist())
    assert found.to_dict() == split_gradient(model, IDS, TARGETS, mask=mask).to_dict()
