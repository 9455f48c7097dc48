"""The stream: lengths and directions of every update are those of the oracle's vectors."""

import numpy as np
import pytest

from oracles.mixtures import random_spec
from oracles.specs import base, variants
from oracles.transformer import run as oracle_run
from oracles.weights import draw as draw_weights
from small import small_model
from unembed.errors import UsageError
from unembed.lenses import stream as module
from unembed.lenses.stream import stream
from unembed.pictures import draw

IDS = [1, 2, 5, 4, 1, 7]
VARIANTS = variants()


def cosine(a, b):
    """0 where one of the two has no length: an activation may be 0 everywhere."""
    lengths = float(np.sqrt(a @ a) * np.sqrt(b @ b))
    return float(a @ b) / lengths if lengths else 0.0


def check(spec):
    taps = {name: value[0] for name, value in oracle_run(spec, draw_weights(spec, 0), [IDS]).items()}
    n_layers = len(spec["blocks"])
    final = taps[f"blocks.{n_layers - 1}.resid_post"]
    found = stream(small_model(spec), IDS)
    rows = {(row["layer"], row["part"], row["position"]): row for row in found.tables["by_position"].rows()}
    assert len(rows) == n_layers * 2 * len(IDS)
    for (layer, part, p), row in rows.items():
        update = taps[f"blocks.{layer}.{'attn_out' if part == 'attention' else 'mlp_out'}"][p]
        is_parallel = spec["blocks"][layer]["residual"]["type"] == "parallel"
        meets = "resid_pre" if part == "attention" or is_parallel else "resid_mid"
        met = taps[f"blocks.{layer}.{meets}"][p]
        assert row["length"] == pytest.approx(float(np.sqrt(update @ update)), abs=1e-9)
        assert row["stream_length"] == pytest.approx(float(np.sqrt(met @ met)), abs=1e-9)
        assert row["cosine_to_stream"] == pytest.approx(cosine(update, met), abs=1e-9)
        assert row["cosine_to_final"] == pytest.approx(cosine(update, final[p]), abs=1e-9)
    for row in found.tables["stream"].rows():
        mine = [rows[row["layer"], row["part"], p] for p in range(len(IDS))]
        for name in module.NUMBERS:
            assert row[name] == pytest.approx(sum(one[name] for one in mine) / len(IDS))
    first = taps["blocks.0.resid_pre"]
    assert found.values["embedding_length"] == pytest.approx(float(np.linalg.norm(first, axis=1).mean()))
    assert found.values["final_length"] == pytest.approx(float(np.linalg.norm(final, axis=1).mean()))


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith(("residual", "plain", "embed"))])
def test_oracle_named_variants(name):
    check(VARIANTS[name])


@pytest.mark.parametrize("seed", range(4))
def test_oracle_random_mixtures(seed):
    check(random_spec(seed))


def test_one_position_is_its_row_of_the_whole():
    found = stream(small_model(base()), IDS, position=2)
    mine = [row for row in found.tables["by_position"].rows() if row["position"] == 2]
    for row, whole in zip(found.tables["stream"].rows(), mine, strict=True):
        assert {name: row[name] for name in module.NUMBERS} == {name: whole[name] for name in module.NUMBERS}


def test_a_model_without_blocks_has_no_updates():
    found = stream(small_model(VARIANTS["no_blocks"]), IDS)
    assert found.tables["stream"].n_rows == 0
    assert found.values["embedding_cosine_to_final"] == pytest.approx(1)


def test_pictures_are_drawn():
    found = stream(small_model(base()), IDS)
    assert all(draw(picture, found.tables, lang="ko") for picture in found.pictures)


def test_seeded_mutation_is_caught_by_the_oracle(monkeypatch, unchecked):
    updates = module._updates
    monkeypatch.setattr(module, "_updates", lambda m, s: ((i, part, met[::-1]) for i, part, met in updates(m, s)))
    with pytest.raises(AssertionError):
        check(base())


def test_message_for_a_position_that_is_not_there():
    with pytest.raises(UsageError, match="stream: position is 9; the text has 6 tokens, so positions run from 0 to 5"):
        stream(small_model(base()), IDS, position=9)
