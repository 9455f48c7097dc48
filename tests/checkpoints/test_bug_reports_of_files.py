"""Faults that users of other tools met with checkpoint files: A01, A02, A13 and A31 of the bug reports, and neighbours.

Each check runs over every family where it has a meaning. The models are tiny and random, their files written by hand
from the families' rules; transformers is not needed. A10 is in
test_rotary_layouts_of_files.py; tests/parity holds the families themselves against transformers.
"""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity import BY_NAME, PARITIES
from parity.tiny import IDS, logits, model_of, put
from unembed.checkpoints.families.base import read_spec
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.load import load
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.errors import CheckpointError, ShapeError
from unembed.model.init import Gpt2Init, build
from unembed.model.spec import with_tying
from unembed.model.transformer import Transformer

EACH = pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
TIED_BY_DEFAULT = {"gpt2", "gemma", "gemma2", "gemma3", "bert", "roberta"}


# --- A01: the file and the flag disagree about the head ------------------------------------------------------


@EACH
def test_a01a_a_head_of_its_own_is_used_and_told_whatever_the_flag_says(parity, tmp_path):
    model = model_of(parity, tied=False)
    read = load(put(tmp_path, parity, model, flag=True))
    assert torch.equal(logits(read), logits(model))
    (warning,) = read.load_report.warnings
    assert "untied, although the config says tied" in warning
    assert repr(parity.ours().head) in warning
    assert not read.load_report.tied
    assert not read.spec.ties_embeddings


@EACH
def test_a01b_one_table_and_a_flag_that_says_so_is_one_storage(parity, tmp_path):
    model = model_of(parity, tied=True)
    read = load(put(tmp_path, parity, model, flag=True))
    assert torch.equal(logits(read), logits(model))
    assert read.unembed_table() is read.embed.table
    assert read.load_report.tied
    assert read.load_report.warnings == ()


@EACH
def test_a01c_no_head_and_a_flag_that_says_untied_stops_with_its_name(parity, tmp_path):
    folder = put(tmp_path, parity, model_of(parity, tied=True), flag=False)
    with pytest.raises(CheckpointError, match=f"tensor '{parity.ours().head}' is missing, and the model is not tied"):
        load(folder)


@EACH
def test_a01d_without_a_flag_the_familys_default_holds_and_is_told(parity, tmp_path):
    is_tied = parity.family in TIED_BY_DEFAULT
    read = load(put(tmp_path, parity, model_of(parity, tied=is_tied), flag=...))
    assert read.load_report.tied == is_tied
    words = f"{'tied' if is_tied else 'untied'} ({parity.family}'s default; the config does not say)"
    assert words in read.load_report.summary()


@EACH
def test_a01_without_a_flag_a_file_that_contradicts_the_default_is_told_or_stops(parity, tmp_path):
    is_tied = parity.family in TIED_BY_DEFAULT
    model = model_of(parity, tied=not is_tied)
    folder = put(tmp_path, parity, model, flag=...)
    if is_tied:
        read = load(folder)
        assert torch.equal(logits(read), logits(model))
        assert "default; the config does not say says tied" in read.load_report.warnings[0]
    else:
        with pytest.raises(CheckpointError, match="is missing, and the model is not tied"):
            load(folder)


@EACH
def test_a01_equal_copies_are_one_table_if_the_flag_says_so_and_two_if_not(parity, tmp_path):
    model = model_of(parity, tied=True)
    copied = {parity.ours().head: model.embed.table.detach().clone()}
    read = load(put(tmp_path, parity, model, flag=True, **copied))
    assert read.unembed_table() is read.embed.table
    assert "the file holds the table twice, equal" in read.load_report.tie_reason
    assert (parity.ours().head, f"repeats {parity.ours().embed}, number for number") in read.load_report.excused
    if parity.ours().duplicates:
        return  # an untied file holds the head's bias too, and is another one
    apart = load(put(tmp_path, parity, model, flag=False, **copied))
    assert apart.unembed_table() is not apart.embed.table
    assert "its two tables are equal copies" in apart.load_report.tie_reason
    assert torch.equal(logits(apart), logits(read))


@pytest.mark.parametrize("flag", ["true", 1, 0, [], {"text": True}])
def test_a01_a_flag_that_is_no_flag_stops(flag, tmp_path):
    folder = put(tmp_path, PARITIES[0], model_of(PARITIES[0], tied=True), flag=flag)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings is .*, expected true or false"):
        load(folder)


@EACH
def test_a01_a_head_without_an_embedding_stops_with_the_embeddings_name(parity, tmp_path):
    for tied in (True, False):
        folder = put(tmp_path, parity, model_of(parity, tied=False), flag=tied, drop=[parity.ours().embed])
        with pytest.raises(CheckpointError, match=f"missing: '{parity.ours().embed}'"):
            load(folder)


@EACH
def test_a01_a_head_of_another_shape_stops(parity, tmp_path):
    model = model_of(parity, tied=True)
    other = {parity.ours().head: torch.ones(model.spec.embedding.vocab_size + 1, model.spec.embedding.d_model)}
    with pytest.raises(CheckpointError, match=f"tensor '{parity.ours().head}' has shape"):
        load(put(tmp_path, parity, model, flag=True, **other))


# --- A02: the tie survives saving, copying and casting -------------------------------------------------------


@EACH
def test_a02a_a_tied_model_is_saved_with_one_table_and_comes_back_tied(parity, tmp_path):
    model = model_of(parity, tied=True)
    write_huggingface(model, tmp_path, family=parity.ours())
    shape = tuple(model.embed.table.shape)
    stored = load_file(tmp_path / "model.safetensors")
    assert [name for name, tensor in stored.items() if tuple(tensor.shape) == shape] == [parity.ours().embed]
    read = load(tmp_path)
    assert torch.equal(logits(read), logits(model))
    with torch.no_grad():
        read.embed.table[0, 0] = 7.5
    assert read.unembed_table()[0, 0] == 7.5
    # the mapping is private: what is written in memory is not written into the file
    assert torch.equal(load_file(tmp_path / "model.safetensors")[parity.ours().embed], stored[parity.ours().embed])


def test_a02b_a_loaded_tie_survives_copies_casts_and_state_dicts(tmp_path):
    write_huggingface(model_of(PARITIES[0], tied=True), tmp_path, family=PARITIES[0].ours())
    read = load(tmp_path)
    again = Transformer(read.spec)
    again.load_state_dict(read.state_dict())
    cast = copy.deepcopy(read).to(torch.bfloat16).to(torch.float32)
    for one in (copy.deepcopy(read), cast, again, read.to("cpu"), load(tmp_path, dtype=torch.bfloat16)):
        with torch.no_grad():
            one.embed.table[1, 2] = 3.25
        assert one.unembed_table()[1, 2] == 3.25
        assert sum(name.endswith("table") for name in one.state_dict()) == 2  # tokens and positions


# --- A13: learned positions end ------------------------------------------------------------------------------


def changed_to(parity, folder, **config):
    """A folder of the family with another config; the position table follows it."""
    plain = json.loads(json.dumps({**parity.changed("as published"), **config}))
    family = parity.ours()
    spec = with_tying(read_spec(family, ConfigReader(plain, family=family.name, where="base")), True)
    write_huggingface(build(spec, Gpt2Init(std=0.3), seed=0), folder, family=family)
    return load(folder)


def test_a13a_one_token_too_many_is_told_and_the_next_call_works(tmp_path):
    gpt2 = BY_NAME["gpt2"]
    model = changed_to(gpt2, tmp_path, n_positions=16)
    before = logits(model, IDS[:, :16])
    with pytest.raises(ShapeError, match=r"17.*16|16.*17"):
        model(IDS[:, :17])
    assert torch.equal(logits(model, IDS[:, :16]), before)


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_a13b_a_table_of_514_rows_takes_514_minus_the_padding_id_minus_1_tokens(pad, tmp_path):
    roberta = BY_NAME["roberta"]
    model = changed_to(roberta, tmp_path, max_position_embeddings=514, pad_token_id=pad, num_hidden_layers=1)
    room = 514 - pad - 1
    assert model.spec.context_length == room
    ids = torch.full((1, room + 1), 7)
    assert logits(model, ids[:, :room]).isfinite().all()
    with pytest.raises(ShapeError, match=f"{room + 1}.*{room}|{room}.*{room + 1}"):
        model(ids)


def test_a13b_positions_begin_after_the_padding_id(tmp_path):
    roberta = BY_NAME["roberta"]
    model = changed_to(roberta, tmp_path, num_hidden_layers=1)
    ids = torch.tensor([[0, 5, 6, 2, 1, 1]])
    seen = {}

    def tap(name, value):
        return seen.setdefault(name, value)

    class Tap:
        def __call__(self, name, value):
            return tap(name, value)

        def inside(self, layer):
            return self

    with torch.no_grad():
        model(ids, mask=ids != 1, tap=Tap())
    assert torch.equal(seen["pos_embed"][0, :4], model.embed.pos_table[2:6])


# --- A31: names that wrappers put into files -----------------------------------------------------------------


@EACH
@pytest.mark.parametrize("wrapped", ["_orig_mod.{}", "module.{}", "module._orig_mod.{}", "_orig_mod.module.{}"])
def test_a31a_wrapped_names_load_to_the_same_model_and_are_not_written(parity, wrapped, tmp_path):
    model = model_of(parity, tied=False)
    put(tmp_path, parity, model, flag=False)
    tensors = {wrapped.format(name): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    save_file(tensors, tmp_path / "model.safetensors")
    read = load(tmp_path)
    assert torch.equal(logits(read), logits(model))
    out = tmp_path / "out"
    out.mkdir()
    write_huggingface(read, out, family=parity.ours())
    assert not [name for name in load_file(out / "model.safetensors") if "module" in name or "_orig" in name]


@pytest.mark.slow  # compiling imports for seconds
def test_a31a_a_compiled_model_is_written_under_clean_names(tmp_path):
    model = model_of(BY_NAME["llama"], tied=True)
    model.compile()
    write_huggingface(model, tmp_path, family=BY_NAME["llama"].ours())
    assert set(load_file(tmp_path / "model.safetensors")) == {
        rule.theirs for rule in BY_NAME["llama"].ours().rules(model.spec)
    }
