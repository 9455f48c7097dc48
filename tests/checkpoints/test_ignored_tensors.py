"""Tensors that a user has left out: by name or pattern, excused in the report, and never what the model is made of."""

import random
import re

import pytest
import torch

import unembed
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.families import gpt2
from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.load import find, load
from unembed.checkpoints.rules.ignoring import matches
from unembed.errors import CheckpointError, UsageError
from unembed.tying.repair import repair
from unembed.verify import subject_of, verify

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
)
EXTRA = {
    "h.0.attn.rotary.inv_freq": torch.ones(4),
    "h.1.attn.rotary.inv_freq": torch.ones(4),
    "value_head.weight": torch.ones(2, 3),
}
ALL = ("h.*.inv_freq", "value_head.weight")


def write(place, spec=GPT2, *, more=EXTRA, rename=str):
    place.mkdir()
    write_huggingface(small_model(spec, dtype=torch.float32), place, family=gpt2.FAMILY)
    tensors = {rename(name): one for name, one in huggingface.read_weights(place).items()} | more
    data = b"".join(encode_tensors(tensors, label="m"))
    (place / "model.safetensors").write_bytes(data)
    return place


@pytest.fixture
def plain(tmp_path):
    return write(tmp_path / "plain", more={})


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "extra")


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_load_without_the_extra_tensors_gives_the_model_to_the_bit(folder, plain):
    found = unembed.load(folder, ignore_tensors=ALL)
    assert same(found, load(plain))
    requested = [name for name, reason in found.load_report.excused if reason == "ignored by request"]
    assert requested == ["h.0.attn.rotary.inv_freq", "h.1.attn.rotary.inv_freq", "value_head.weight"]


def test_the_refusal_of_an_unknown_tensor_names_the_way_on(folder):
    said = (
        r"3 source tensors have no rule: (?s:.*)leave them out: --ignore-tensor NAME, .*\(ignore_tensors=\[\.\.\.\] in"
    )
    with pytest.raises(CheckpointError, match=said):
        load(folder)
    with pytest.raises(
        CheckpointError, match=r"1 source tensor has no rule: 'value_head.weight' .*leave it out: --ign"
    ):
        load(folder, ignore_tensors=["h.*.inv_freq"])


WRONG = [
    ("h.0.attn.rotary.inv_freqs", "matches none of the file's", "Did you mean 'h.0.attn.rotary.inv_freq' or 'h.1"),
    ("value_heads.*", "matches none of the file's", "Did you mean 'value_head.weight'"),
    ("zzz", "matches none of the file's", "Those that no rule uses: 'h.0.attn.rotary.inv_freq', "),
    ("transformer.wte.weight", "but the model needs it", "it is needed by embed.table."),
    ("wte.weight", "but the model needs it", "it is needed by embed.table."),  # as a base model's file spells it
    (
        "transformer.h.0.attn.c_attn.weight",
        "but the model needs it",
        "blocks.0.attn.q_proj.weight, blocks.0.attn.k_pro",
    ),
    (
        "*",
        "and 27 more were to be ignored, but the model needs them: the first is needed by",
        "Only tensors that no rule uses can be left out: 'h.0.attn.rotary.inv_freq', ",
    ),
]


@pytest.mark.parametrize(("name", "problem", "more"), WRONG, ids=[one[0] for one in WRONG])
def test_a_name_that_means_nothing_or_too_much_is_refused(name, problem, more, tmp_path):
    rename = (lambda one: one.removeprefix("transformer.")) if name == "wte.weight" else str
    made = write(tmp_path / "made", rename=rename)
    with pytest.raises(CheckpointError, match=re.escape(problem)) as caught:
        load(made, ignore_tensors=[*ALL, name])
    assert more in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6


def test_what_a_family_passes_over_may_be_named_too(tmp_path):
    masks = {f"transformer.h.{layer}.attn.bias": torch.ones(1, 1, 12, 12) for layer in range(2)}
    made = write(tmp_path / "made", more=masks)
    assert len(load(made).load_report.excused) == len(
        load(made, ignore_tensors=["transformer.h.*.attn.bias"]).load_report.excused
    )


def test_a_head_that_differs_is_needed_and_one_that_repeats_is_passed_over(plain, tmp_path):
    table = huggingface.read_weights(plain)["transformer.wte.weight"]
    other = write(tmp_path / "other", more={"lm_head.weight": table + 1})
    with pytest.raises(CheckpointError, match=r"lm_head.weight' was to be ignored, .* needed by head.table"):
        load(other, ignore_tensors=["lm_head.weight"])
    equal = write(tmp_path / "equal", more={"lm_head.weight": table.clone()})
    assert load(equal, ignore_tensors=["lm_head.weight"]).spec.ties_embeddings


def test_our_own_models_have_nothing_to_ignore(plain, tmp_path):
    unembed.convert(plain, tmp_path / "run", to="native")
    for own in (tmp_path / "run", "mini-gpt"):
        with pytest.raises(UsageError, match=r"is our own, so none of its tensors is surplus; .*Leave it out"):
            load(own, ignore_tensors=["a"])
    with pytest.raises(UsageError, match=r"expected a list of names\. Write"):
        load(plain, ignore_tensors="a")


def test_verify_convert_and_repair_do_without_them_too(folder, tmp_path):
    claims = verify(subject_of(folder, ignore_tensors=ALL), ["counts", "tie", "export round trip", "cached = uncached"])
    assert [claim.status for claim in claims] == ["proved"] * 4, claims
    assert "14 excused" in claims[0].detail
    unembed.convert(folder, tmp_path / "again", ignore_tensors=ALL)
    assert same(load(tmp_path / "again"), load(folder, ignore_tensors=ALL))
    repair(find(folder, ignore_tensors=ALL), "untie", tmp_path / "untied")
    assert not load(tmp_path / "untied").spec.ties_embeddings


def test_property_a_pattern_matches_what_the_regular_expression_does():
    draw = random.Random(0)
    n_matched = 0
    for _ in range(20_000):
        pattern = "".join(draw.choices("ab.*", k=draw.randrange(1, 7)))
        name = "".join(draw.choices("ab.", k=draw.randrange(7)))
        expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
        assert matches(pattern, name) == expected, (pattern, name)
        n_matched += expected
    assert n_matched > 1_000


def test_many_stars_take_no_time():
    assert not matches("*a" * 200 + "*b", "a" * 5_000)
