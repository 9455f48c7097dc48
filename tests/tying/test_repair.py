"""Repairs: a model is written anew, tied or untied, and is the same function wherever that can be.

The next file to read is test_command.py.
"""

import pytest
import torch

import unembed
from oracles import nudge
from oracles.specs import base, changed
from parity.tiny import model_of
from small import small_model
from tying.folders import EMBED, GPT2, HEAD, LLAMA, broken, folder, llama, other, run_of, weights_of
from unembed.checkpoints.foreign import gguf_export
from unembed.checkpoints.load import find
from unembed.errors import CheckpointError, UsageError
from unembed.tying.repair import repair


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[3, 1, 4, 1, 5]]))


def test_untying_starts_from_a_copy_and_keeps_every_logit(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=True)
    done = repair(find(source), "untie", tmp_path / "out")
    assert done.told == f"{HEAD} begins as a copy of {EMBED}"
    found = unembed.tying.examine(tmp_path / "out")
    assert found.values["kind"] == "equal_twice_untied"
    back = unembed.load(tmp_path / "out")
    assert torch.equal(logits(back), logits(unembed.load(source)))
    assert nudge.moves(back, back.embed.table) is False
    assert (tmp_path / "out" / "config.json").is_file()


def test_tying_what_was_untied_gives_the_first_file_again(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=True)
    repair(find(source), "untie", tmp_path / "untied")
    done = repair(find(tmp_path / "untied"), "tie", tmp_path / "tied")
    assert done.told == f"{HEAD} was dropped and {EMBED} kept; they were equal"
    back = unembed.load(tmp_path / "tied")
    assert torch.equal(logits(back), logits(unembed.load(source)))
    assert nudge.moves(back, back.embed.table) is True


@pytest.mark.parametrize("keep", ["embed", "head"])
def test_tables_that_differ_are_tied_only_when_it_is_said_which_one_stays(keep, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, LLAMA, tied=False, flag=False)
    with pytest.raises(CheckpointError, match="are not equal, and tying drops one of them") as error:
        repair(find(source), "tie", tmp_path / "out")
    assert "--keep embed or --keep head" in str(error.value)
    assert not (tmp_path / "out").exists()
    done = repair(find(source), "tie", tmp_path / "out", keep=keep)
    kept, dropped = ("embed_tokens", "lm_head") if keep == "embed" else ("lm_head", "embed_tokens")
    assert kept in done.told.split(" was dropped and ")[1]
    assert dropped in done.told.split(" was dropped and ")[0]
    assert "they differed by 1." in done.told
    before, after = unembed.load(source), unembed.load(tmp_path / "out")
    assert torch.equal(after.embed.table, before.embed.table if keep == "embed" else before.head.table)
    assert after.head.table is None


def test_a_file_without_its_head_is_repaired_either_way(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=False)
    with pytest.raises(CheckpointError):
        unembed.load(source)
    repair(find(source), "tie", tmp_path / "tied")
    assert unembed.tying.examine(tmp_path / "tied").values["tied"] is True
    repair(find(source), "untie", tmp_path / "untied")
    assert unembed.tying.examine(tmp_path / "untied").values["tied"] is False
    assert torch.equal(logits(unembed.load(tmp_path / "tied")), logits(unembed.load(tmp_path / "untied")))


def test_a_file_without_its_table_uses_the_head_twice(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=True, drop=(EMBED,), head=torch.clone)
    done = repair(find(source), "tie", tmp_path / "tied")
    assert done.told == f"{HEAD} is used twice, as {EMBED}"
    assert torch.equal(unembed.load(tmp_path / "tied").embed.table, model_of(GPT2, tied=True).embed.table)


def test_a_config_that_lies_is_repaired_to_say_what_the_file_holds(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=True, head=other)
    done = repair(find(source), "untie", tmp_path / "out")
    assert done.told == "both tables were kept, and the config says so now"
    assert broken(unembed.tying.examine(tmp_path / "out")) == ()
    assert torch.equal(logits(unembed.load(tmp_path / "out")), logits(unembed.load(source)))


def test_runs_and_other_files_are_repaired_into_runs(tmp_path):
    weights = weights_of(base())
    source = run_of(tmp_path / "run", changed(base(), head__type="untied"), weights)
    repair(find(source), "tie", tmp_path / "out")
    assert unembed.tying.examine(tmp_path / "out").values["verdict"] == "Tied: the file holds one table, embed.table."
    assert (tmp_path / "out" / "run.json").is_file()
    gguf_export.write(llama(tied=True), tmp_path / "m.gguf", name="m")
    repair(find(tmp_path / "m.gguf"), "untie", tmp_path / "untied")
    assert unembed.tying.examine(tmp_path / "untied").values["kind"] == "equal_twice_untied"


def test_what_needs_no_repair_or_cannot_be_repaired_is_refused(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    folder(source, tied=True, flag=True)
    with pytest.raises(UsageError, match="is tied already: the file holds one table"):
        repair(find(source), "tie", tmp_path / "out")
    with pytest.raises(UsageError, match="exists already; name a new place"):
        repair(find(source), "untie", source)
    with pytest.raises(UsageError, match="--keep says which table stays"):
        repair(find(source), "untie", tmp_path / "out", keep="head")
    with pytest.raises(UsageError, match="a preset is a shape"):
        repair(find("gpt2"), "untie", tmp_path / "out")
    with pytest.raises(UsageError, match="repair is 'glue' and keep None; expected"):
        repair(find(source), "glue", tmp_path / "out")
    untied = tmp_path / "untied"
    untied.mkdir()
    folder(untied, tied=False, flag=False)
    with pytest.raises(UsageError, match="is untied already: the file holds two tables"):
        repair(find(untied), "untie", tmp_path / "out")
    empty = tmp_path / "empty"
    empty.mkdir()
    folder(empty, tied=True, flag=True, drop=(EMBED,))
    for way in ("tie", "untie"):
        with pytest.raises(CheckpointError, match="the file holds neither"):
            repair(find(empty), way, tmp_path / "out")
    longer = tmp_path / "longer"
    longer.mkdir()
    folder(longer, tied=True, flag=True, head=lambda t: torch.cat([t, t[:3]]))
    with pytest.raises(CheckpointError, match="one table cannot be both"):
        repair(find(longer), "tie", tmp_path / "out", keep="head")


@pytest.mark.parametrize("kind", ["mapped", "pseudo_inverse"])
def test_untying_through_a_map_multiplies_it_out(kind, tmp_path):
    """Two plain tables act as one and a matrix did: every logit stays, to the rounding of float32."""
    model = small_model(changed(base(), head__type=kind), dtype=torch.float32)
    weights = {name: one.detach() for name, one in model.named_parameters()}
    run_of(tmp_path / "run", changed(base(), head__type=kind), weights)
    done = repair(find(tmp_path / "run"), "untie", tmp_path / "out")
    assert done.told == "each table is now the product that acted in its place, and the matrix between them is gone"
    back = unembed.load(tmp_path / "out")
    assert back.spec.head.__struct_config__.tag == "untied"
    assert [name for name in back.state_dict() if name.startswith("head.")] == ["head.table"]
    assert torch.allclose(logits(back), logits(model), rtol=1e-4, atol=1e-5)
    assert nudge.moves(back, back.embed.table) is False
    with pytest.raises(UsageError, match="is tied already"):
        repair(find(tmp_path / "run"), "tie", tmp_path / "again")


@pytest.mark.parametrize("kind", ["mapped", "pseudo_inverse"])
def test_the_file_of_a_run_is_called_what_it_is(kind, tmp_path):
    model = small_model(changed(base(), head__type=kind), dtype=torch.float32)
    run_of(tmp_path / "run", changed(base(), head__type=kind), dict(model.state_dict()))
    found = unembed.tying.examine(tmp_path / "run").values
    assert (found["tied"], found["kind"]) == (True, "through_map" if kind == "mapped" else "through_inverse")
    assert found["verdict"].startswith("Shared through a map" if kind == "mapped" else "Shared by pseudo-inverse")
    assert all(check["status"] != "broken" for check in found["checks"]), found["checks"]
