"""The comparison of depth: what differs between the variants and what does not, and what is seen at 48 layers."""

import msgspec
import pytest
import torch

from unembed.errors import UsageError
from unembed.model.spec import NoShortcut, Serial
from unembed.recipes import depth


def test_the_variants_differ_in_nothing_but_the_way_they_meet_the_stream():
    specs = {variant: depth.deep_spec(variant, 57, n_layers=3) for variant in depth.RESIDUALS}
    kinds = {variant: spec.blocks[0].residual for variant, spec in specs.items()}
    assert kinds == {
        "pre_norm": Serial(norm_at="pre"),
        "no_shortcut": NoShortcut(),
        "post_norm": Serial(norm_at="post"),
    }
    stripped = [
        msgspec.structs.replace(
            spec, blocks=tuple(msgspec.structs.replace(b, residual=NoShortcut()) for b in spec.blocks)
        )
        for spec in specs.values()
    ]
    assert stripped[0] == stripped[1] == stripped[2]
    matrices = [
        [p for name, p in depth._start(spec, 0).named_parameters() if "norm" not in name] for spec in specs.values()
    ]
    for others in matrices[1:]:
        assert all(torch.equal(a, b) for a, b in zip(matrices[0], others, strict=True))


def test_what_writes_into_the_stream_starts_as_large_as_everything_else():
    model = depth._start(depth.deep_spec("pre_norm", 57, n_layers=24), 0)
    down = torch.cat([block.mlp.down.weight.detach().flatten() for block in model.blocks])
    up = torch.cat([block.mlp.up.weight.detach().flatten() for block in model.blocks])
    assert float(up.std() * depth.D_MODEL**0.5) == pytest.approx(1, rel=0.02)
    assert float(down.std() * depth.D_MLP**0.5) == pytest.approx(1, rel=0.02)


def test_a_small_comparison_has_its_tables_and_is_the_same_again():
    heard = []
    found = depth.compare_depth(n_layers=2, n_steps=3, notice=lambda *what: heard.append(what[:2]))
    assert heard == [(variant, step) for variant in depth.RESIDUALS for step in (1, 2, 3)]
    assert found.tables["by_depth"].n_rows == 3 * 2 * 3
    assert found.tables["training"]["step"].tolist() == [0, 2] * 3
    again = depth.compare_depth(n_layers=2, n_steps=3)
    assert again.to_dict() == found.to_dict()


def test_impossible_numbers_are_refused():
    with pytest.raises(UsageError, match="depth: 0 layers and 5 steps; both must be at least 1"):
        depth.compare_depth(n_layers=0, n_steps=5)
    with pytest.raises(UsageError, match="no variant is named 'sideways'; there are pre_norm, no_shortcut, post_norm"):
        depth.deep_spec("sideways", 57)


@pytest.mark.slow
def test_at_48_layers_only_the_one_with_the_shortcut_and_the_norm_first_learns():
    """Measured after 120 steps: 1.61 nats against 3.31 and 3.31, which is what word frequencies alone give (3.30)."""
    found = depth.compare_depth(n_steps=100)
    rows = {row["variant"]: row for row in found.tables["variants"].rows()}
    floor = found.values["no_knowledge_nats"]
    assert rows["pre_norm"]["val_loss_nats"] < floor - 1
    assert rows["pre_norm"]["reaches_first_after"] > 1
    for variant in ("no_shortcut", "post_norm"):
        assert rows[variant]["val_loss_nats"] > floor - 0.1
        assert rows[variant]["reaches_first_after"] < 1e-5
