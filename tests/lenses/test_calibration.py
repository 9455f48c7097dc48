"""Calibration: constructed probabilities whose error is known, and a model's readings counted one by one."""

import math

import numpy as np
import pytest
import torch

from oracles.specs import BIDIRECTIONAL, base, changed
from small import small_model, tokens
from unembed.errors import UsageError
from unembed.lenses.calibration import calibration, middle
from unembed.lenses.layer_scores import bins_of, score_layers
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_lens import held_out


def slow_error(confidence, right, n_bins=10):
    """The definition, guess by guess: bins of (i/10, (i+1)/10)."""
    bins = [[] for _ in range(n_bins)]
    for p, hit in zip(confidence, right, strict=True):
        bins[min(n_bins - 1, math.floor(p * n_bins))].append((p, hit))
    total = 0.0
    for one in filter(None, bins):
        sure = sum(p for p, _ in one) / len(one)
        hits = sum(hit for _, hit in one) / len(one)
        total += len(one) / len(confidence) * abs(hits - sure)
    return total


def test_oracle_constructed_probabilities_have_the_error_that_they_were_given():
    """80 guesses at 0.75 of which 60 are right, 20 at 0.35 of which 7 are: perfect. Then 40 of the 80: 0.8 * 0.25."""
    confidence = np.array([0.75] * 80 + [0.35] * 20)
    perfect = np.array([True] * 60 + [False] * 20 + [True] * 7 + [False] * 13)
    assert bins_of(confidence, perfect).calibration_error == pytest.approx(0, abs=1e-12)
    too_sure = np.array([True] * 40 + [False] * 40 + [True] * 7 + [False] * 13)
    found = bins_of(confidence, too_sure)
    assert found.calibration_error == pytest.approx(0.8 * 0.25, abs=1e-12)
    assert found.items.tolist() == [0, 0, 0, 20, 0, 0, 0, 80, 0, 0]
    assert found.right.tolist() == [0, 0, 0, 7, 0, 0, 0, 40, 0, 0]


def test_oracle_random_guesses_are_counted_as_the_definition_says():
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.random(500), [0.0, 0.1, 0.2, 1.0, 1.0]])
    right = rng.random(505) < confidence**2
    assert bins_of(confidence, right).calibration_error == pytest.approx(slow_error(confidence, right), abs=1e-12)
    assert bins_of(confidence, right).items.sum() == 505


def test_no_guess_has_no_error():
    assert bins_of(np.zeros(0), np.zeros(0, dtype=bool)).calibration_error == 0


def test_oracle_a_layers_scores_are_those_of_each_position_alone():
    model = small_model(base(2))
    batches = list(held_out(tokens(200, seed=4), 9, 100))
    tuned = Translators(torch.full((2, 12, 12), 0.01), torch.full((2, 12), 0.1), {})
    for translate in (None, tuned):
        found = score_layers(model, batches, translate=translate)
        for layer in range(3):
            rows = {"kl": [], "loss": [], "right": [], "sure": [], "agrees": []}
            for inputs, targets in batches:
                streams = []
                for b in range(len(inputs)):
                    taken = []
                    model(torch.from_numpy(inputs[b : b + 1]), tap=_Taking(taken))
                    streams.append(taken)
                for b, p in np.ndindex(targets.shape):
                    x = streams[b][layer][0, p]
                    x = x if translate is None or layer == 2 else x + 0.01 * x.sum() + 0.1
                    q, last = (
                        torch.softmax(model.unembed(one[None, None])[0, 0], -1).detach().numpy()
                        for one in (x, streams[b][2][0, p])
                    )
                    rows["kl"].append(float((last * np.log(last / q)).sum()))
                    rows["loss"].append(-math.log(q[targets[b, p]]))
                    rows["right"].append(int(q.argmax() == targets[b, p]))
                    rows["sure"].append(float(q.max()))
                    rows["agrees"].append(int(q.argmax() == last.argmax()))
            means = {name: np.mean(values) for name, values in rows.items()}
            assert found.kl_to_final_nats[layer] == pytest.approx(means["kl"], abs=1e-6)
            assert found.loss_nats[layer] == pytest.approx(means["loss"], abs=1e-6)
            assert found.right_share[layer] == means["right"]
            assert found.confidence_share[layer] == pytest.approx(means["sure"], abs=1e-6)
            assert found.agreement_share[layer] == means["agrees"]
            wanted = slow_error(rows["sure"], rows["right"])
            assert found.bins[layer].calibration_error == pytest.approx(wanted, abs=1e-6)
        assert found.n_tokens == len(rows["kl"]) == 108


class _Taking:
    """The stream before the first block and after each."""

    def __init__(self, into, name=""):
        self.into, self.name = into, name

    def __call__(self, name, value):
        if (self.name, name) == ("0", "resid_pre") or name == "resid_post":
            self.into.append(value.detach())
        return value

    def inside(self, layer):
        return _Taking(self.into, str(layer))


def test_the_result_has_both_lenses_their_curves_and_the_sentence():
    model = small_model(base(2))
    batches = list(held_out(tokens(300, seed=4), 9, 200))
    found = calibration(model, batches, tuned=Translators.zeros(model.spec))
    layers = found.tables["layers"]
    assert layers["lens"].tolist() == ["logit"] * 3 + ["tuned"] * 3
    assert layers["calibration_error"][:3].tolist() == layers["calibration_error"][3:].tolist()
    assert found.values["middle_kl_ratio"] == 1
    assert "lens_is_a_clue" in found.notes
    curves = found.tables["curves"].rows()
    assert [row["right_share"] for row in curves if row["layer"] == "ideal" and row["lens"] == "tuned"] == [0.0, 1.0]
    assert min(row["items"] for row in curves if row["items"] is not None) >= 10  # no leap through a bin of three
    by_layer = found.tables["reliability"]
    assert min(row["items"] for row in by_layer.rows()) < 10
    assert (
        sum(row["items"] for row in by_layer.rows() if (row["lens"], row["layer"]) == ("logit", 0))
        == found.values["held_out_tokens"]
        == 207
    )
    alone = calibration(model, batches)
    assert "middle_kl_ratio" not in alone.values
    assert alone.pictures[0].facet is None


def test_a_deep_model_has_few_curves_and_all_rows():
    model = small_model(base(12))
    found = calibration(model, list(held_out(tokens(80, seed=4), 9, 40)))
    assert set(found.tables["curves"]["layer"]) == {0, 3, 6, 9, 12, "ideal"}
    assert set(found.tables["reliability"]["layer"]) == set(range(13))


@pytest.mark.parametrize(
    ("n_layers", "places"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3]), (12, [3, 4, 5, 6, 7, 8, 9])]
)
def test_the_middle_is_what_lies_between_the_outer_quarters(n_layers, places):
    assert middle(list(range(n_layers + 1))) == places


def test_a_model_that_sees_the_answer_is_refused():
    model = small_model(changed(base(2), block__attention__sees=BIDIRECTIONAL))
    batches = list(held_out(tokens(80), 9, 40))
    with pytest.raises(UsageError, match="this model sees both ways, so the token that it is asked for stands before"):
        calibration(model, batches)
    found = score_layers(model, batches)  # a tuned lens for it is scored all the same
    assert found.kl_to_final_nats[-1] == 0


def test_a_text_without_a_known_next_token_is_refused():
    with pytest.raises(UsageError, match="no position of this text has a next token that the model knows"):
        score_layers(small_model(), [])
