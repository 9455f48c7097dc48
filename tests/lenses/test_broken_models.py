"""A model whose weights hold no numbers is refused by everything that looks inside it, as `generate` refuses it."""

import numpy as np
import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.corpora.grammar import grammar
from unembed.errors import InputError
from unembed.lenses import asking
from unembed.lenses.agreement import score_agreements
from unembed.lenses.calibration import calibration
from unembed.lenses.gradient_flow import gradient_flow
from unembed.lenses.truth import lens_truth
from unembed.tokenizers.words import WordTokenizer

IDS, OTHERS = [3, 1, 4, 1, 5], [3, 1, 4, 1, 6]
LOOKS = {
    "lens": lambda model: unembed.lens(model, ids=IDS),
    "lens of several": lambda model: unembed.lens(model, ids=[IDS, OTHERS], statistics=["entropy"], layers=[0]),
    "attribute": lambda model: unembed.attribute(model, ids=IDS),
    "attribute, target": lambda model: unembed.attribute(model, ids=IDS, target=2, against=3, position=1),
    "attention": lambda model: unembed.attention(model, ids=IDS),
    "attention of a layer": lambda model: unembed.attention(model, ids=IDS, layer=0),
    "stream": lambda model: unembed.stream(model, ids=IDS),
    "patch": lambda model: unembed.patch(model, IDS, OTHERS, target=2, against=3),
    "patch, probability": lambda model: unembed.patch(model, IDS, OTHERS, metric="probability"),
    "flow": lambda model: gradient_flow(model, torch.tensor([IDS]), torch.tensor([OTHERS])),
    "calibration": lambda model: calibration(model, [(np.array([IDS]), np.array([[1, 4, 1, 5, 9]]))]),
    "generate": lambda model: unembed.generate(model, ids=IDS, tokens=2),
}
REFUSED = r"the largest of the model's (scores|final states|losses) is (nan|inf), so .*\. Its weights\s+are broken"


def broken(name, number):
    model = small_model(base())
    with torch.no_grad():
        dict(model.named_parameters())[name].flatten()[0] = number
    return model


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("name", "number"), [("blocks.1.mlp.down.weight", float("nan")), ("blocks.0.attn.o_proj.weight", float("inf"))]
)
def test_weights_that_are_no_numbers_are_refused_by_all_that_look(look, name, number):
    LOOKS[look](small_model(base()))
    with pytest.raises(InputError, match=REFUSED):
        LOOKS[look](broken(name, number))


@pytest.mark.usefixtures("unchecked")
def test_what_is_sound_of_a_broken_model_can_still_be_seen():
    """The stream and the patterns lie before a final norm that is broken."""
    model = broken("final_norm.gain", float("nan"))
    assert np.isfinite(unembed.stream(model, ids=IDS).values["final_length"])
    assert np.isfinite(unembed.attention(model, ids=IDS, layer=0).values["patterns"]).all()
    with pytest.raises(InputError, match=REFUSED):
        unembed.lens(model, ids=IDS)


@pytest.mark.usefixtures("unchecked")
def test_vectors_that_are_no_numbers_are_named_and_a_broken_head_is_refused():
    model = small_model(base())
    vectors = torch.ones(3, model.spec.embedding.d_model)
    unembed.lens(model, vectors=vectors)
    vectors[1, 2] = float("nan")
    with pytest.raises(InputError, match=r"lens: vector 1 holds a number that is not finite; give finite ones"):
        unembed.lens(model, vectors=vectors)
    with pytest.raises(InputError, match=REFUSED):
        unembed.lens(broken("embed.table", float("nan")), vectors=vectors[0], normalises=False)


@pytest.mark.usefixtures("unchecked")
def test_seeded_without_the_check_an_answer_comes(monkeypatch):
    from unembed.lenses import attribution

    assert attribution.refuse_broken is asking.refuse_broken
    monkeypatch.setattr(attribution, "refuse_broken", lambda *asked: None)
    found = LOOKS["attribute"](broken("blocks.1.mlp.down.weight", float("nan")))
    assert np.isnan(found.values["logit"])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("fault", ["blocks.1.mlp.down.weight", "final_norm.gain"])
def test_questions_of_a_grammar_are_not_put_to_a_broken_model(fault):
    rules = grammar("en", "mini")
    tokenizer = WordTokenizer(rules.words)
    model = small_model(changed(base(), embedding__vocab_size=tokenizer.vocab_size))
    words = rules.stream(3, 60)
    score_agreements(model, tokenizer, rules, n=2, min_distance=1)
    with torch.no_grad():
        dict(model.named_parameters())[fault].flatten()[0] = float("nan")
    with pytest.raises(InputError, match=REFUSED):
        score_agreements(model, tokenizer, rules, n=2, min_distance=1)
    with pytest.raises(InputError, match=REFUSED):
        lens_truth(model, tokenizer, rules, words, n_questions=2)
