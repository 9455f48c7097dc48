"""Each claim of `verify` is proved on a sound model and fails on one that is corrupted in just the way that it is about."""

import msgspec
import numpy as np
import pytest
import torch

from oracles.specs import base, changed
from small import run_config, small_model, trainer_of
from unembed.checkpoints.convert import convert
from unembed.checkpoints.families import FAMILIES, gpt2
from unembed.checkpoints.foreign import export as foreign_export
from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.foreign.translate import translate
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.load import CONFIG_KEY
from unembed.checkpoints.rules.tensors import Transposed
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import write_checkpoint
from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.errors import CheckpointError, UsageError
from unembed.model import kv_cache, masks, transformer
from unembed.model.factor import retract
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.training import parallel
from unembed.verify import (
    CLAIMS,
    batch,
    cache,
    checkpoints,
    counts,
    export,
    gradient_split,
    lens_identity,
    parity,
    resume,
    subject_of,
    tie,
    tokenizer,
    verify,
)
from unembed.verify.claim import Subject, failed, worst_of

LEARNED = {"type": "learned", "n_rows": 12, "offset": 0}
GPT2 = changed(
    base(),
    embedding__position=LEARNED,
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
)


def subject(plain=None, **more):
    return Subject(name="small", model=small_model(plain, dtype=torch.float32), **more)


@pytest.fixture
def folder(tmp_path):
    """A Hugging Face folder of GPT-2's shape, and the subject that is loaded from it."""
    write_huggingface(small_model(GPT2, dtype=torch.float32), tmp_path, family=gpt2.FAMILY)
    source = huggingface.open_folder(tmp_path)
    return Subject(name="folder", model=translate(source), source=source)


@pytest.fixture
def run(tmp_path):
    """A run of ten steps with dropout, checkpoints at 0, 5 and 10, and its data."""
    return trained(tmp_path, run_config(dropout=0.1))


@pytest.fixture
def folder_of_bfloat16(tmp_path):
    """The same, its products in half precision, without dropout."""
    return trained(tmp_path, run_config(precision="bfloat16"))


def trained(tmp_path, config, **noted):
    """A run of a configuration; `noted` is what its description says otherwise than what was done."""
    description = msgspec.to_builtins(config)
    description["training"] |= noted
    laid = parallel.Parallel(precision=config.training.precision)
    with RunFolder.create(tmp_path / "run", description={CONFIG_KEY: description}) as made:
        ids = np.cumsum(np.random.default_rng(0).integers(0, 3, size=500)) % 13
        with ShardWriter(made.path / "data", vocab_size=13, tokenizer="none") as writer:
            writer.append("train", ids[:400].astype(np.int64))
            writer.append("val", ids[400:].astype(np.int64))
        trainer_of(config, run=made, train=_shards(made).train, val=_shards(made).val, parallel=laid).run()
    return tmp_path / "run"


def _shards(made):
    return TokenShards.open(made.path / "data")


@pytest.mark.parametrize("claim", [counts, tie, gradient_split, cache, batch, lens_identity, export])
def test_sound_model_is_proved(claim):
    found = claim.claim(subject())
    assert found.status == "proved", found
    assert found.worst is not None
    assert found.worst <= found.tolerance


def test_every_claim_holds_of_an_exported_folder(folder):
    pytest.importorskip("transformers")
    found = {claim.name: claim.status for claim in verify(folder)}
    skipped = {resume.NAME, checkpoints.NAME, tokenizer.NAME}
    assert found == {name: "skipped" if name in skipped else "proved" for name in CLAIMS}


def test_every_claim_holds_of_a_file_whose_names_have_a_wrappers_words(folder):
    place = folder.source.where
    tensors = {f"_orig_mod.{name}": tensor.clone() for name, tensor in folder.source.tensors.items()}
    tensors["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12)  # older files hold their mask
    with open(f"{place}/model.safetensors", "wb") as file:
        file.writelines(encode_tensors(tensors, label="m"))
    claims = {one.name: one for one in verify(subject_of(place))}
    assert {one.status for one in claims.values()} == {"proved", "skipped"}, claims
    assert "and 144 excused" in claims[counts.NAME].detail
    assert claims[export.NAME].status == claims[parity.NAME].status == "proved"


def test_looking_leaves_the_model_as_it_was():
    examined, fresh = subject(), subject()
    verify(examined)
    for (name, one), (_, other) in zip(examined.model.named_parameters(), fresh.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("fault", ["bias", "norm", "a scale of its own", "not a number", "a look that changes"])
def test_lens_identity_fails_for_a_model_that_scores_otherwise_than_its_parts_say(monkeypatch, fault):
    one = subject(changed(base(), head__has_bias=True))
    model, head = one.model, one.model.head
    own, hidden = head.forward, model.hidden
    if fault == "bias":
        monkeypatch.setattr(head, "forward", lambda *given: own(*given) - head.bias)
    elif fault == "norm":
        monkeypatch.setattr(head, "forward", lambda normed, *rest: own(normed - normed.mean(), *rest))
    elif fault == "a scale of its own":
        monkeypatch.setattr(head, "forward", lambda *given: own(*given) * 1.001)
    elif fault == "not a number":
        torch.nn.init.constant_(head.bias, float("nan"))
    else:  # a hook that somebody forgot, which wakes when it is looked at

        def looked_at(ids, **options):
            resid = hidden(ids, **options)
            return resid if options.get("tap", transformer.no_tap) is transformer.no_tap else resid.flip(-1)

        monkeypatch.setattr(model, "hidden", looked_at)
    found = lens_identity.claim(one)
    assert found.status == "failed", found


def test_counts_fails_for_a_parameter_that_no_description_names():
    one = subject()
    one.model.blocks[0].more = torch.nn.Parameter(torch.ones(3))
    assert counts.claim(one).status == "failed"
    assert "blocks.0.more" in counts.claim(one).detail


def test_counts_fails_for_numbers_in_the_file_that_nobody_excused(folder):
    more = dict(folder.source.tensors) | {"transformer.h.9.mlp.c_fc.bias": torch.ones(7)}
    found = counts.claim(Subject(name="x", model=folder.model, source=folder.source._replace(tensors=more)))
    assert found.status == "failed"
    assert found.worst == 7


@pytest.mark.parametrize("kind", ["own table", "stale copy", "moves though untied"])
def test_tie_fails_for_a_model_that_lies(kind):
    plain = base()
    if kind == "moves though untied":
        plain = changed(plain, head__type="untied")
    one = subject(plain)
    head, table = one.model.head, one.model.embed.table
    inner = head.forward
    if kind == "own table":
        head.table = torch.nn.Parameter(table.detach().clone())
    elif kind == "stale copy":
        copy = table.detach().clone()
        head.forward = lambda normed, _, tap: inner(normed, copy, tap)
    else:
        own = head.table
        head.forward = lambda normed, given, tap: inner(normed, given, tap) + (given - own).sum() * 0 + given[0, 0]
    found = tie.claim(one)
    assert found.status == "failed", found


@pytest.mark.parametrize(
    ("kind", "told"), [("mapped", "shared through a map"), ("pseudo_inverse", "pseudo-inverse, off")]
)
def test_both_other_ways_to_share_are_proved(kind, told):
    one = subject(changed(base(), head__type=kind))
    retract(one.model)
    claims = {claim.name: claim for claim in verify(one)}
    assert {name for name, claim in claims.items() if claim.status == "failed"} == set()
    assert claims["tie"].status == claims["gradient split"].status == claims[cache.NAME].status == "proved"
    assert told in claims["tie"].detail


def test_tie_fails_for_a_pseudo_inverse_whose_columns_have_drifted():
    one = subject(changed(base(), head__type="pseudo_inverse"))
    retract(one.model)
    with torch.no_grad():
        one.model.embed.table[3, 2] += 0.01
    found = tie.claim(one)
    assert found.status == "failed"
    assert found.worst > found.tolerance > 0


def test_tie_fails_for_a_run_whose_file_holds_a_second_table(run):
    sound = subject_of(run)
    assert tie.claim(sound).status == "proved"

    weights = sound.checkpoint.weights() | {"head.table": torch.ones(13, 12)}
    file = sound.checkpoint.path / "model.safetensors"
    file.write_bytes(b"".join(bytes(piece) for piece in encode_tensors(weights, label="x")))
    found = tie.claim(Subject(name="x", model=sound.model, checkpoint=sound.checkpoint))
    assert found.status == "failed"
    assert "its file holds two tables" in found.detail


def test_gradient_split_fails_for_a_head_that_uses_the_table_past_its_alias():
    one = subject()
    table, inner = one.model.embed.table, one.model.head.forward
    one.model.head.forward = lambda normed, given, tap: inner(normed, given, tap) + normed @ table.T
    (found,) = verify(one, [gradient_split.NAME])
    assert found.status == "failed"


@pytest.mark.parametrize("fault", ["forgets a key", "position off by one"])
def test_cache_fails_when_the_cache_is_wrong(fault, monkeypatch):
    if fault == "forgets a key":
        real = kv_cache.LayerCache.extend

        def extend(self, k, v):
            keys, values = real(self, k, v)
            return keys, torch.cat([torch.zeros_like(values[:, :, :1]), values[:, :, 1:]], dim=2)

        monkeypatch.setattr(kv_cache.LayerCache, "extend", extend)
    else:
        real_positions = transformer.Transformer._positions

        def positions(self, ids, mask, cache):
            found, n_tokens = real_positions(self, ids, mask, cache)
            return (found if cache is None or cache.length == 0 else found - 1), n_tokens

        monkeypatch.setattr(transformer.Transformer, "_positions", positions)
    found = cache.claim(subject(GPT2))
    assert found.status == "failed", found


def test_batch_fails_when_padding_is_seen(monkeypatch):
    monkeypatch.setattr(
        transformer, "visibility", lambda rule, keys, dtype: masks.visibility(rule, keys._replace(is_real=None), dtype)
    )
    found = batch.claim(subject())
    assert found.status == "failed", found


def test_tokenizer_claim_on_an_alphabet_and_on_one_that_loses_a_letter():
    one = subject(changed(base(), embedding__vocab_size=40))
    assert tokenizer.claim(one).status == "skipped"
    one.model.tokenizer = CharacterTokenizer.from_text("abcdefghij")
    assert tokenizer.claim(one).status == "proved"

    class Lossy(CharacterTokenizer):
        def decode(self, ids, *, show_specials=False):
            return super().decode(ids, show_specials=show_specials).replace("c", "k")

    one.model.tokenizer = Lossy.from_text("abcdefghijk")
    found = tokenizer.claim(one)
    assert found.status == "failed"
    assert found.worst == 1


def test_tokenizer_claim_fails_for_more_ids_than_rows():
    one = subject()
    one.model.tokenizer = CharacterTokenizer.from_text("abcdefghijklmnopq")
    assert "17 ids, the table 13 rows" in tokenizer.claim(one).detail


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_broken_model_is_not_proved_by_being_broken_the_same_way_twice(folder, number):
    with torch.no_grad():
        folder.model.final_norm.gain[0] = number
    found = {claim.name: claim for claim in verify(folder)}
    assert found["finite"].status == "failed"
    assert "final_norm.gain" in found["finite"].detail
    for name in (tie.NAME, cache.NAME, batch.NAME):
        assert found[name].status == "failed", name
    assert "not finite" in found[tie.NAME].detail


def test_models_at_the_edge_are_examined_without_an_internal_error():
    tiny = changed(
        GPT2,
        embedding__d_model=1,
        embedding__vocab_size=2,
        block__attention__n_heads=1,
        block__attention__n_kv_heads=1,
        block__attention__d_head=1,
        block__mlp__d_mlp=1,
        context_length=1,
        embedding__position={"type": "learned", "n_rows": 1, "offset": 0},
    )
    assert {claim.status for claim in verify(subject(tiny))} <= {"proved", "skipped", "failed"}


def test_export_of_a_model_without_biases_goes_through_the_form_that_convert_writes():
    norm = {"type": "layer_norm", "eps": 1e-5, "has_bias": False}
    plain = changed(GPT2, block__norm=norm, final_norm=norm, block__mlp__has_bias=False, block__attention__biases=[])
    found = export.claim(subject(plain))
    assert found.status == "proved"
    assert "tensors as gpt2" in found.detail
    assert "biases of zero were added" in found.detail


def test_export_fails_when_a_rule_loses_bits(folder, monkeypatch):
    assert export.claim(folder).status == "proved"
    monkeypatch.setattr(
        Transposed, "write", lambda self, tensors: torch.cat([t.T.half().float() for t in tensors], dim=1)
    )
    found = export.claim(folder)
    assert found.status == "failed"
    assert found.worst > 0


def test_export_fails_when_config_json_names_a_type_that_cannot_hold_a_tensor(monkeypatch):
    model = small_model(GPT2, dtype=torch.float32)
    model.embed.table.data = model.embed.table.data.half()
    mixed = Subject(name="small", model=model)
    assert export.claim(mixed).status == "proved"
    monkeypatch.setattr(foreign_export, "declared_type", lambda tensors: "float16")
    found = export.claim(mixed)
    assert found.status == "failed"
    assert "config.json says float16, which cannot hold" in found.detail


def test_export_fails_when_the_model_is_not_what_its_file_holds(folder):
    with torch.no_grad():
        folder.model.final_norm.gain[0] += 1
    found = export.claim(folder)
    assert found.status == "failed"
    assert "transformer.ln_f.weight" in found.detail


def test_parity_fails_for_one_wrong_number_and_for_another_activation(folder):
    pytest.importorskip("transformers")
    assert parity.claim(folder).status == "proved"
    folder.model.blocks[1].mlp.activation = "relu"
    assert parity.claim(folder).status == "failed"
    folder.model.blocks[1].mlp.activation = "gelu"
    with torch.no_grad():
        folder.model.blocks[0].attn.q_proj.bias[0] += 0.01
    assert parity.claim(folder).status == "failed"


def test_parity_of_a_large_model_compares_its_first_layers(folder, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(parity, "LARGEST", 10)
    monkeypatch.setattr(parity, "N_LAYERS_OF_A_LARGE_ONE", 1)
    found = parity.claim(folder)
    assert found.status == "proved"
    assert "the first 1 of 2 layers" in found.detail


def test_parity_is_skipped_without_transformers(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = parity.claim(folder)
    assert found.status == "skipped"
    assert "pip install transformers" in found.detail


def test_resume_is_proved_bit_for_bit_and_fails_for_a_changed_checkpoint(run):
    sound = subject_of(run)
    found = resume.claim(sound)
    assert found.status == "proved", found
    assert "from step 5 to 10" in found.detail
    stored = sound.run.checkpoints()[-1]
    changed_one = stored.weights()
    changed_one["final_norm.gain"] = changed_one["final_norm.gain"] * (1 + 2**-23)

    write_checkpoint(stored.path.parent, 10, weights=changed_one, optimizer=stored.optimizer(), state=stored.state)
    found = resume.claim(subject_of(run))
    assert found.status == "failed"
    assert found.worst == 1
    assert "final_norm.gain" in found.detail


def test_resume_trains_again_in_the_precision_of_the_run(folder_of_bfloat16, monkeypatch):
    found = resume.claim(subject_of(folder_of_bfloat16))
    assert found.status == "proved", found
    monkeypatch.setattr(resume, "Parallel", lambda precision: parallel.Parallel())
    assert resume.claim(subject_of(folder_of_bfloat16)).status == "failed"


def test_resume_is_skipped_where_half_precision_cannot_be_had(folder_of_bfloat16, monkeypatch):
    monkeypatch.setattr(resume, "has_bfloat16", lambda device: f"{device} has no such products")
    found = resume.claim(subject_of(folder_of_bfloat16))
    assert (found.status, found.detail) == ("skipped", "the run's precision is bfloat16, but cpu has no such products")


def test_resume_is_skipped_where_weights_were_gathered_in_half_precision(tmp_path):
    found = resume.claim(subject_of(trained(tmp_path, run_config(precision="bfloat16"), parallel="fsdp")))
    assert found.status == "skipped"
    assert "gathered its weights in bfloat16" in found.detail


def test_an_error_of_a_claim_is_a_failure_with_its_words(monkeypatch):
    def broken(_):
        raise CheckpointError("the file went away")

    monkeypatch.setitem(CLAIMS, "tie", broken)
    assert verify(subject(), ["tie"]) == [failed("tie", "the file went away")]
    with pytest.raises(UsageError, match=r"'tye' is no claim\. Did you mean tie"):
        verify(subject(), ["tye"])


def test_worst_of_takes_no_nan_for_agreement():
    nan = torch.tensor([float("nan")])
    assert worst_of(nan, torch.tensor([0.0])) == float("inf")
    assert worst_of(nan, nan) == float("inf")
    assert worst_of(torch.ones(2), torch.ones(3)) == float("inf")
    assert worst_of(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])) == 0.5


def test_families_are_listed_once():
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_a_folder_that_convert_wrote_is_told_from_a_run(tmp_path):
    convert("mini-gpt", tmp_path / "native", to="native")
    found = subject_of(tmp_path / "native")
    kept, resumed = checkpoints.claim(found), resume.claim(found)
    assert (kept.status, resumed.status) == ("proved", "skipped")
    assert (
        kept.detail
        == "no training's: the weights that convert wrote here, each file against the SHA-256 in its manifest"
    )
    assert resumed.detail == "convert wrote this folder: weights without a training, so there is nothing to resume"
    weights = next((tmp_path / "native" / "checkpoints").glob("*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert checkpoints.claim(found).status == "failed"
