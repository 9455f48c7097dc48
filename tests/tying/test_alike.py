"""How alike two tables are: constructed answers, NumPy's and SciPy's formulas restated, chance, and the command.

Next to read: test_our_models.py.
"""

import numpy as np
import pytest
import torch

import unembed
from commands import run
from oracles.specs import base, changed
from small import small_model
from unembed.errors import InputError
from unembed.tying.alike import MEASURES, likeness, measures
from unembed.tying.effective import effective_tables

UNTIED = changed(base(), head__type="untied", embedding__vocab_size=400)
RNG = np.random.default_rng(5)


def noise(*shape):
    return torch.from_numpy(RNG.standard_normal(shape))


def rotation(width):
    return torch.linalg.qr(noise(width, width))[0]


def with_tables(first, second):
    model = small_model(changed(UNTIED, embedding__vocab_size=len(first), embedding__d_model=first.shape[1]))
    with torch.no_grad():
        model.embed.table.copy_(first)
        model.head.table.copy_(second)
    return model


def found_for(first, second):
    table = likeness(with_tables(first, second)).tables["likeness"]
    return dict(zip(table["measure"], table["value"], strict=True))


def test_constructed_answers():
    table, turn = noise(300, 12), rotation(12)
    alike = found_for(table, 3 * table)
    assert alike == pytest.approx({"row_cosine": 1, "procrustes_cosine": 1, "cka": 1}, abs=1e-12)
    against = found_for(table, -table)
    assert against == pytest.approx({"row_cosine": -1, "procrustes_cosine": 1, "cka": 1}, abs=1e-12)
    turned = found_for(table, table @ turn)
    assert abs(turned["row_cosine"]) < 0.5
    assert turned == pytest.approx(turned | {"procrustes_cosine": 1, "cka": 1}, abs=1e-12)
    moved = found_for(table, table @ turn + noise(12))  # another mean: CKA is centred, cosines are not
    assert moved["cka"] == pytest.approx(1, abs=1e-12)
    assert moved["procrustes_cosine"] < 0.99


def test_strangers_are_as_alike_as_rows_paired_at_random():
    """With few rows two tables of noise are far from 0 after the best turn: chance is what a value is held against."""
    found = likeness(with_tables(noise(40, 12), noise(40, 12))).tables["likeness"]
    for name, value, chance in zip(found["measure"], found["value"], found["paired_at_random"], strict=True):
        assert abs(value - chance) < 0.15, name
    by_name = dict(zip(found["measure"], found["paired_at_random"], strict=True))
    assert by_name["procrustes_cosine"] > 0.3
    alike = likeness(with_tables(*[noise(400, 12)] * 2)).tables["likeness"]
    assert (alike["value"] > 0.999).all()
    assert (alike["paired_at_random"] < 0.35).all()


def test_oracle_formulas_in_loops():
    first, second = noise(30, 5), noise(30, 5)
    a, b = first.numpy(), second.numpy()
    rows = [a[i] @ b[i] / np.sqrt(a[i] @ a[i]) / np.sqrt(b[i] @ b[i]) for i in range(30)]
    found = measures(first, second)
    assert found["row_cosine"] == pytest.approx(np.mean(rows), abs=1e-12)
    u, _, v = np.linalg.svd(a.T @ b)
    turned = a @ u @ v
    cosines = [turned[i] @ b[i] / np.linalg.norm(a[i]) / np.linalg.norm(b[i]) for i in range(30)]
    assert found["procrustes_cosine"] == pytest.approx(np.mean(cosines), abs=1e-12)
    # Gram matrices of all pairs of rows, centred by H K H: another formula for the same number
    middle = np.eye(30) - 1 / 30
    k, l = middle @ a @ a.T @ middle, middle @ b @ b.T @ middle  # noqa: E741
    assert found["cka"] == pytest.approx((k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum()), abs=1e-12)
    # no other turn brings them closer, in the sum that is maximised
    best = (torch.from_numpy(turned) * second).sum()
    for _ in range(200):
        assert ((first @ rotation(5)) * second).sum() <= best


def test_rows_without_length_have_no_direction():
    table = noise(300, 12)
    second = table.clone()
    second[7] = 0
    found = likeness(with_tables(table, second))
    assert found.values["rows_without_length"] == 1
    assert found.tables["likeness"]["value"][0] == pytest.approx(1, abs=1e-12)
    empty = measures(torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64))
    assert empty == dict.fromkeys(MEASURES)


@pytest.mark.parametrize("kind", ["mapped", "pseudo_inverse"])
def test_with_a_map_the_products_are_compared(kind):
    model = small_model(changed(base(), head__type=kind))
    embeds, scores = effective_tables(model)
    table = likeness(model).tables["likeness"]
    assert dict(zip(table["measure"], table["value"], strict=True)) == pytest.approx(measures(embeds, scores))
    ids = torch.arange(13)[None]
    seen = {}

    class Tap:
        def __call__(self, name, value):
            seen[name] = value
            return value

        def inside(self, layer):
            return lambda name, value: value

    model(ids, tap=Tap())
    assert torch.allclose(
        seen["embed"][0], embeds, rtol=1e-11, atol=1e-13
    )  # base() scales nothing and adds no positions
    assert torch.allclose(seen["final_norm"] @ scores.T, seen["logits"], rtol=1e-11, atol=1e-12)


def test_one_table_and_broken_ones_are_refused():
    with pytest.raises(InputError, match="the model has one table, which is like itself; give an untied one"):
        likeness(small_model())
    with pytest.raises(InputError, match="hold numbers that are not finite; unembed inspect MODEL says where"):
        likeness(with_tables(noise(20, 12), noise(20, 12) * float("nan")))


def test_the_same_seed_pairs_alike():
    model = small_model(UNTIED)
    one, again, other = (likeness(model, seed=seed).to_dict() for seed in (1, 1, 2))
    assert one == again != other
    assert unembed.tying.likeness(model).name == "likeness"


def test_the_command_shows_it_beside_the_verdict():
    done = run("tie", "pythia-70m", "--format", "json")
    assert "likeness" not in done.json
    done = run("tie", "microgpt", "--likeness", "--format", "json")
    assert done.json["tied"] is False
    assert done.json["likeness"]["measure"] == list(MEASURES)
    shown = run("tie", "microgpt", "--likeness").out
    assert "likeness\n" in shown
    assert "paired_at_random" in shown
    refused = run("tie", "mini-gpt", "--likeness")
    assert refused.code == 3
    assert "the model has one table" in refused.err


@pytest.mark.usefixtures("unchecked")
def test_a_model_may_be_named(tmp_path):
    unembed.convert("microgpt", tmp_path / "named", to="native")
    model = unembed.load(tmp_path / "named")
    assert (
        likeness(tmp_path / "named").to_dict()
        == likeness(str(tmp_path / "named")).to_dict()
        == likeness(model).to_dict()
    )
    with pytest.raises(InputError, match=r"likeness: gpt2 is a preset, a shape without numbers; give a run"):
        likeness("gpt2")
    with pytest.raises(
        InputError, match=r"likeness: got a int; give what unembed\.load returns, or the name of a MODEL"
    ):
        likeness(5)
