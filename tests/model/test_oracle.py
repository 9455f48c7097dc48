"""The model against the oracle: every variant of a spec and random mixtures, at every tap, and seeded faults that must show.

The oracle in tests/oracles shares no line with the package. Where a query is padding nobody reads what it computes, so
only real tokens are compared.
"""

from typing import Any

import numpy as np
import pytest
import torch

from oracles.layers import Array, Plain, Weights
from oracles.mixtures import random_spec
from oracles.mutations import MUTATIONS
from oracles.specs import changed, variants
from oracles.transformer import run
from oracles.weights import draw
from unembed.model.check import from_plain
from unembed.model.taps import Recorder, no_tap, tap_names
from unembed.model.transformer import Transformer

TOLERANCE = 1e-10
N_POS = 9
VARIANTS = variants()
# The two uses of the table are tapped as they are; everything else that a tap sees is an intermediate of the oracle.
TABLES = {"embed.table", "unembed.table"}
PADDED = np.array([[True] * N_POS, [False] * 3 + [True] * (N_POS - 3), [True] * (N_POS - 4) + [False] * 4])


def build(spec: Plain, weights: Weights) -> Transformer:
    """The package's model with the given weights; names and shapes must be exactly those of the oracle."""
    model = Transformer(from_plain(spec)).double()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return model


def inputs(spec: Plain, seed: int, n_rows: int) -> tuple[Any, Any]:
    """Random ids, and token types where the spec has them; the mask token of token dropout occurs in every row."""
    rng = np.random.default_rng(seed)
    embedding = spec["embedding"]
    ids = rng.integers(embedding["vocab_size"], size=(n_rows, N_POS))
    if embedding["token_dropout"] is not None:
        ids[:, 4] = embedding["token_dropout"]["mask_id"]
    n_types = embedding["n_token_types"]
    return ids, None if n_types is None else rng.integers(n_types, size=ids.shape)


def tensor(array: Any) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)


def differences(got: dict[str, Any], expected: dict[str, Array], mask: Any) -> dict[str, float]:
    """The largest difference at each tap over real queries; infinite where shapes or the hidden keys differ."""
    worst = {}
    for name, value in got.items():
        a, b = value.detach().numpy(), expected[name]
        is_pattern = name.endswith(("attn_scores", "attn_pattern"))
        if name == "pos_embed" and len(a) == 1:
            a = np.broadcast_to(a, b.shape)  # without padding all rows stand at the same positions, and share one
        if a.shape != b.shape:
            worst[name] = np.inf
            continue
        a, b = (x.swapaxes(1, 2)[mask] if is_pattern else x[mask] for x in (a, b))
        hidden = np.isinf(b)
        same_hidden = bool((np.isinf(a) == hidden).all())
        worst[name] = float(np.abs(a[~hidden] - b[~hidden]).max(initial=0.0)) if same_hidden else np.inf
    return worst


def agree(spec: Plain, seed: int, masks: tuple[Any, ...] = (None, PADDED)) -> None:
    """Asserts that both attention paths equal the oracle at every tap, without padding and with padding on either side."""
    weights = draw(spec, seed)
    model = build(spec, weights)
    for mask in masks:
        real = np.ones((2, N_POS), dtype=bool) if mask is None else mask
        ids, types = inputs(spec, seed, len(real))
        expected = run(
            spec,
            weights,
            ids.tolist(),
            None if mask is None else mask.tolist(),
            None if types is None else types.tolist(),
        )
        for path in ("explicit", "fused"):
            tap = Recorder()
            logits = model(tensor(ids), mask=tensor(mask), token_types=tensor(types), tap=tap, attention=path)
            assert list(tap.values) == tap_names(model.spec, attention=path)
            got = {name: value for name, value in tap.values.items() if name not in TABLES}
            assert torch.equal(got["logits"], logits)
            if path == "explicit":
                assert set(got) == set(expected)
            worst = differences(got, expected, real)
            bad = {name: size for name, size in worst.items() if not size < TOLERANCE}
            assert not bad, f"{path}, {'no padding' if mask is None else 'padded'}: first at {next(iter(bad.items()))}"


@pytest.mark.parametrize("name", VARIANTS)
def test_oracle_each_variant_alone(name: str) -> None:
    # Padding meets positions and attention; what looks at one vector at a time need not be tried with it.
    is_blind = name.startswith(("mlp_", "norm_", "tied_", "untied_"))
    agree(VARIANTS[name], seed=sum(map(ord, name)), masks=(None,) if is_blind else (None, PADDED))


@pytest.mark.parametrize("seed", [pytest.param(s, marks=[pytest.mark.slow] if s >= 40 else []) for s in range(200)])
def test_oracle_random_mixtures(seed: int) -> None:
    agree(random_spec(seed), seed, masks=(None,) if seed % 2 else (PADDED,))


@pytest.mark.parametrize("name", MUTATIONS)
def test_oracle_sees_each_mutation(name: str) -> None:
    """A model with one fault, under the same weights, is told from the right one by its logits alone."""
    mutation = MUTATIONS[name]
    spec = VARIANTS[mutation.variant]
    weights = draw(spec, seed=1)
    ids, types = inputs(spec, seed=1, n_rows=2)
    expected = run(spec, weights, ids.tolist(), None, None if types is None else types.tolist())["logits"]

    def error(model: Transformer, tap: Any) -> float:
        logits = model(tensor(ids), token_types=tensor(types), tap=tap or no_tap, attention="explicit")
        return float(np.abs(logits.detach().numpy() - expected).max())

    assert error(build(spec, weights), None) < TOLERANCE
    model = build(changed(spec, **(mutation.changes or {})), weights)
    tap = mutation.sabotage(model) if mutation.sabotage is not None else None
    assert error(model, tap) > 1e-6


def test_sequence_without_a_real_token_gives_zeros_and_leaves_the_others_alone() -> None:
    """Where no key is visible the heads give zeros, in the oracle as in the model (PyTorch's softmax would give NaN)."""
    spec = VARIANTS["rotary"]
    weights = draw(spec, seed=2)
    ids, _ = inputs(spec, seed=2, n_rows=3)
    mask = PADDED.copy()
    mask[2] = False
    expected = run(spec, weights, ids.tolist(), mask.tolist())
    for path in ("explicit", "fused"):
        tap = Recorder()
        logits = build(spec, weights)(tensor(ids), mask=tensor(mask), tap=tap, attention=path).detach().numpy()
        assert np.isfinite(logits).all()
        assert np.abs(logits - expected["logits"])[mask].max() < TOLERANCE
        for layer in range(2):
            assert (tap.values[f"blocks.{layer}.z"][2] == 0).all()
            assert (expected[f"blocks.{layer}.z"][2] == 0).all()


def test_random_mixtures_meet_every_variant() -> None:
    """200 mixtures are worth something only if each choice of each field turns up in them, and not always."""
    specs = [random_spec(seed) for seed in range(200)]

    def found(of: Any, path: tuple[str, ...] = ()) -> set[str]:
        if isinstance(of, dict):
            return {one for key, value in of.items() for one in found(value, (*path, key))}
        if isinstance(of, list) and of and isinstance(of[0], dict):
            return {one for value in of for one in found(value, path)}
        is_choice = of is None or isinstance(of, str | bool)
        return {f"{'.'.join(path)}={of if is_choice else 'set'}"}

    seen = [found(spec) for spec in specs]
    alone = {one for spec in VARIANTS.values() for one in found(spec)}
    assert alone - {"blocks=set"} <= set.union(*seen)  # a model without blocks is tried alone
    assert {"blocks.residual.norm_at=both", "blocks.attention.position.scaling.type=yarn", "head.softcap=set"} <= alone
    assert set.intersection(*seen) < alone
