"""Our own models in memory: the spec's word against the two tables, through loading, copying, casting and training.

A02 of the bug reports. The next file to read is test_files.py.
"""

import copy

import pytest
import torch
from torch import nn

import unembed
from oracles import nudge
from oracles.specs import base, changed
from small import small_model
from unembed.model.presets.gpt import gpt_spec
from unembed.model.transformer import Transformer

TIED = "Tied: one parameter, embed.table, embeds and scores"
TWO = "Not tied: embed.table and head.table are two matrices"
COPY = "Not tied: head.table is an equal copy of embed.table and will drift apart from it with the first training step"
MAP = "Shared through a map: embed.table embeds, and scores what head.map, a learned square matrix, makes of the stream"
INVERSE = (
    "Shared by pseudo-inverse: rows of embed.table embed through the inverse of T, and score what T makes of the stream, "
    "T made of head.factor"
)
UNTIED = changed(base(), head__type="untied")
MAPPED, INVERTED = (changed(base(), head__type=kind) for kind in ("mapped", "pseudo_inverse"))


def mapped_and_copied():
    model = small_model(MAPPED)
    model.head.table = nn.Parameter(model.embed.table.detach().clone())
    return model


def shared_by_hand():
    model = small_model(UNTIED)
    model.head.table = model.embed.table
    return model


def copied():
    model = small_model(UNTIED)
    model.head.table = nn.Parameter(model.embed.table.detach().clone())
    return model


def head_added():
    model = small_model()
    model.head.table = nn.Parameter(model.embed.table.detach().clone())
    return model


def reloaded():
    model, state = small_model(), small_model(seed=3).state_dict()
    model.load_state_dict(state)
    return model


CASES = {
    "tied": (small_model, True, TIED),
    "untied": (lambda: small_model(UNTIED), False, TWO),
    "untied, an equal copy": (copied, False, COPY),
    "the spec says untied": (shared_by_hand, True, f"{TIED}, although the spec says untied"),
    "the spec says tied": (head_added, False, f"{COPY}, although the spec says tied"),
    "through a map": (lambda: small_model(MAPPED), True, MAP),
    "through a map, copied deeply": (lambda: copy.deepcopy(small_model(MAPPED)), True, MAP),
    "through a map, the head given a copy": (mapped_and_copied, False, f"{COPY}, although the spec says tied"),
    "by pseudo-inverse": (lambda: small_model(INVERTED), True, INVERSE),
    "by pseudo-inverse, cast": (lambda: small_model(INVERTED).to(torch.bfloat16).double(), True, INVERSE),
    "copied deeply": (lambda: copy.deepcopy(small_model()), True, TIED),
    "cast there and back": (lambda: small_model().to(torch.bfloat16).float(), True, TIED),
    "through a state dictionary": (reloaded, True, TIED),
    "a preset": (lambda: unembed.load("mini-gpt"), True, TIED),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_right_and_a_nudge_agrees(name):
    build, tied, sentence = CASES[name]
    model = build()
    found = unembed.tying.examine(model)
    assert (found.values["tied"], found.values["verdict"]) == (tied, f"{sentence}.")
    is_lie = "although" in sentence
    assert any(check["status"] == "broken" for check in found.values["checks"]) == is_lie
    assert nudge.moves(model, model.embed.table) is tied


def test_the_export_is_told_by_name():
    (told,) = [one for one in unembed.tying.examine("gpt2").values["checks"] if one["name"] == "export"]
    assert told["detail"] == "a file for transformers (gpt2) would hold transformer.wte.weight"
    (told,) = [one for one in unembed.tying.examine(small_model()).values["checks"] if one["name"] == "export"]
    assert (told["status"], told["detail"].split(";")[0]) == (
        "unknown",
        "no family of transformers describes this model",
    )
    bare = Transformer(gpt_spec(vocab_size=16, context_length=8, d_model=8, n_layers=1, n_heads=2, has_bias=False))
    (told,) = [one for one in unembed.tying.examine(bare).values["checks"] if one["name"] == "export"]
    assert (told["status"], told["detail"]) == (  # as `convert` writes it
        "ok",
        "a file for transformers (gpt2) would hold transformer.wte.weight; "
        "biases of zero were added, because gpt2 files cannot say that there are none",
    )


@pytest.mark.parametrize("has_bias", [True, False])
def test_an_export_that_would_lose_the_heads_own_matrix_is_broken(has_bias):
    model = Transformer(gpt_spec(vocab_size=16, context_length=8, d_model=8, n_layers=1, n_heads=2, has_bias=has_bias))
    model.head.table = nn.Parameter(model.embed.table.detach().clone())
    (told,) = [one for one in unembed.tying.examine(model).values["checks"] if one["name"] == "export"]
    assert told["status"] == "broken"
    assert told["detail"].startswith("a file for transformers (gpt2) would hold transformer.wte.weight")
    assert told["detail"].endswith("; the head's own matrix would be lost")
