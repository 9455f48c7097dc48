"""convert, inspect and verify as commands: what they print, what they leave, and their exit codes."""

import json
import os

import pytest
import torch

from commands import run as command
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.convert import convert, write_model
from unembed.checkpoints.families import gpt2
from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.load import find, load, open_found
from unembed.errors import CheckpointError, UsageError
from unembed.python.texts import generate
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.words import WordTokenizer
from unembed.visible import visible

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "hf"
    place.mkdir()
    write_huggingface(small_model(GPT2, dtype=torch.float32), place, family=gpt2.FAMILY)
    tokenizer_files.save(CharacterTokenizer.from_text("abcdefghijklm"), place / "tokenizer.json")
    return place


def same(one, other):
    pairs = zip(load(one).named_parameters(), load(other).named_parameters(), strict=True)
    return all(name == other_name and torch.equal(a, b) for (name, a), (other_name, b) in pairs)


def test_convert_to_native_and_back_keeps_every_bit(folder, tmp_path):
    done = command("convert", folder, tmp_path / "run", "--to", "native", "--format", "json")
    assert done.code == 0, done
    assert done.json == {
        "written": str((tmp_path / "run").resolve()),
        "tensors": len(list(load(folder).parameters())),
        "parameters": sum(p.numel() for p in load(folder).parameters()),
        "tied": True,
    }
    assert same(folder, tmp_path / "run")
    assert load(tmp_path / "run").tokenizer.encode("abc").ids == (0, 1, 2)
    again = command("convert", tmp_path / "run", tmp_path / "again")
    assert again.code == 0, again
    assert same(folder, tmp_path / "again")
    files = {path.name for path in (tmp_path / "again").iterdir()}
    assert files == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "README.md",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    original = huggingface.read_weights(folder)
    written = huggingface.read_weights(tmp_path / "again")
    assert {name: tensor.tolist() for name, tensor in original.items()} == {
        name: tensor.tolist() for name, tensor in written.items()
    }


def test_convert_refuses_a_place_that_is_taken_and_leaves_nothing_of_a_failure(folder, tmp_path):
    (tmp_path / "there").mkdir()
    taken = command("convert", folder, tmp_path / "there")
    assert taken.code == 2
    assert "exists already" in taken.err
    masked = tmp_path / "masked"
    masked.mkdir()
    (masked / "config.json").write_text(json.dumps({"model_type": "gpt3"}))
    failing = command("convert", masked, tmp_path / "new")
    assert failing.code == 3
    assert "model_type is 'gpt3'" in failing.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "masked", "there"]


def test_model_that_no_family_describes_is_refused_with_what_differs(tmp_path):
    done = command("convert", "microgpt", tmp_path / "out")
    assert done.code == 3
    assert "no family of transformers describes this model exactly" in done.err
    assert not (tmp_path / "out").exists()


def test_biases_of_zero_make_a_nanogpt_model_a_gpt2_and_are_told(tmp_path):
    done = command("convert", "nanogpt-cpu", tmp_path / "out")
    assert done.code == 0, done
    assert "biases of zero were added" in done.err
    # what is told is what was written, the zeros with it
    assert f"{sum(p.numel() for p in load(tmp_path / 'out').parameters()):,}" in done.out
    ids = torch.arange(20)[None]
    torch.testing.assert_close(load("nanogpt-cpu")(ids), load(tmp_path / "out")(ids), rtol=0, atol=1e-6)


def test_verify_prints_claims_and_says_by_its_exit_code_that_one_failed(folder):
    done = command("verify", folder, "--claim", "counts", "--claim", "tie", "--format", "json")
    assert done.code == 0
    assert [(claim["name"], claim["status"]) for claim in done.json["claims"]] == [
        ("counts", "proved"),
        ("tie", "proved"),
    ]
    tokenizer_files.save(CharacterTokenizer.from_text("abcdefghijklmnop"), folder / "tokenizer.json")
    broken = command("verify", folder, "--claim", "tokenizer round trip", "--format", "json")
    assert broken.code == 3
    assert broken.json["claims"][0]["status"] == "failed"
    assert "1 of 1 claims failed: tokenizer round trip" in broken.err


def test_inspect_tells_what_a_folder_holds(folder):
    done = command("inspect", folder, "--format", "json")
    assert done.code == 0, done
    assert done.json["format"] == "huggingface"
    assert {"name": "transformer.wte.weight", "dtype": "F32", "shape": [13, 12]} in done.json["tensors"]
    assert done.json["config"]["n_embd"] == 12
    assert done.json["tokenizer"]["vocab_size"] == 13
    assert done.json["problems"] == []


def test_inspect_of_a_broken_folder_tells_the_rest(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    (folder / "tokenizer.json").write_text("{")
    done = command("inspect", folder, "--format", "json")
    assert done.code == 3
    assert done.json["config"]["n_embd"] == 12
    assert {"name": "transformer.wte.weight", "dtype": "F32", "shape": [13, 12]} in done.json["tensors"]
    assert len(done.json["problems"]) == 2
    assert "2 problems found" in done.err


TOKENIZERS = {
    "tokenizer.json": (CharacterTokenizer.from_text("Helo, wrd!Itcs1234."), "characters"),
    "dna.json": (CharacterTokenizer.from_text("ACGT"), "characters"),
    "mine.json": (WordTokenizer(["to", "be", "or"]), "words"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_inspect_tells_what_a_tokenizers_file_holds(name, tmp_path):
    tokenizer, kind = TOKENIZERS[name]
    tokenizer_files.save(tokenizer, tmp_path / name)
    done = command("inspect", tmp_path / name, "--format", "json")
    assert (done.code, done.json["format"], done.json["problems"], done.json["tensors"]) == (0, "tokenizer", [], [])
    told = done.json["tokenizer"]
    assert (told["file"], told["kind"], told["vocab_size"]) == (name, kind, tokenizer.vocab_size)
    assert told["specials"] == dict(tokenizer.specials)
    example = told["example"]
    assert example["tokens"] == [tokenizer.token_text(i) for i in tokenizer.encode(example["text"]).ids]
    assert (example["text"] == "Hello, world! It costs 1234.") == (name == "tokenizer.json")
    assert len(example["tokens"]) >= 3
    shown = command("inspect", tmp_path / name)
    assert "vocab_size" in shown.out
    assert "tensors" not in shown.out
    marked = [visible(token, marks_edges=True) for token in example["tokens"]]
    assert shown.out.splitlines()[-len(marked) :] == marked


def test_inspect_of_a_broken_tokenizer_and_of_another_json(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"type": "letters"}')
    done = command("inspect", tmp_path / "tokenizer.json", "--format", "json")
    assert (done.code, done.json["format"], done.json["tokenizer"]) == (3, "tokenizer", None)
    assert "the tokenizer's type is 'letters'" in done.json["problems"][0]
    (tmp_path / "config.json").write_text("{}")
    done = command("inspect", tmp_path / "config.json", "--format", "json")
    assert (done.code, done.json["format"]) == (3, "unknown")
    assert "is one of the files beside a model's weights" in done.json["problems"][0]
    (tmp_path / "vocab.json").write_text("{}")
    done = command("inspect", tmp_path / "vocab.json", "--format", "json")
    assert (done.code, done.json["format"]) == (3, "tokenizer")
    assert "vocab.json and merges.txt belong together" in done.json["problems"][0]


def test_inspect_of_a_config_with_an_unknown_key_says_what_loading_would(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"use_magic": True}))
    done = command("inspect", folder, "--format", "json")
    assert done.code == 3
    assert "use_magic = True" in done.json["problems"][0]
    assert done.json["tensors"]


def test_a_number_too_large_for_the_type_is_refused_by_name(folder, tmp_path):
    tensors = huggingface.read_weights(folder)
    tensors["transformer.ln_f.bias"][3] = 1e6
    (folder / "model.safetensors").write_bytes(b"".join(bytes(p) for p in encode_tensors(tensors, label="x")))
    done = command("convert", folder, tmp_path / "half", "--dtype", "float16")
    assert done.code == 3
    assert "final_norm.bias: its largest number is 1e+06, which float16 cannot hold" in done.err
    assert not (tmp_path / "half").exists()
    assert command("convert", folder, tmp_path / "half", "--dtype", "bfloat16").code == 0


def test_what_stood_beside_the_destination_is_not_touched(folder, tmp_path):
    mine = tmp_path / ".writing-out"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    assert command("convert", folder, tmp_path / "out").code == 0
    assert (mine / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writing-out", "hf", "out"]


def test_ids_that_a_config_gives_to_start_and_end_are_kept_and_end_a_text(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    first = command("sample", folder, "--prompt", "a", "--greedy", "--tokens", "4", "--format", "json").json
    end = first["ids"][1]
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [12, end], "bos_token_id": 1}))
    ended = command("sample", folder, "--prompt", "a", "--greedy", "--tokens", "4", "--format", "json").json
    assert ended["stopped"] == "end"
    assert ended["ids"] == first["ids"][: first["ids"].index(end)]
    assert command("convert", folder, tmp_path / "run", "--to", "native").code == 0
    assert command("convert", tmp_path / "run", tmp_path / "back").code == 0
    for file in ("config.json", "generation_config.json"):
        written = json.loads((tmp_path / "back" / file).read_text())
        assert (written["eos_token_id"], written["bos_token_id"]) == ([12, end], 1)
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": "x"}))
    refused = command("sample", folder, "--prompt", "a")
    assert refused.code == 3
    assert "eos_token_id is 'x', expected a token's id" in refused.err


def written_by(place):
    return generate(load(place), "a", tokens=4, temperature=0.0).values["ids"]


def test_the_ends_that_only_generation_config_names_end_a_text_and_are_written_back(folder, tmp_path):
    """Chat models name several ends there and one in config.json; transformers follows generation_config.json."""
    config = json.loads((folder / "config.json").read_text())
    ids = written_by(folder)
    end = ids[1]
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 12}))
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [12, end, 9_999], "temperature": 0.6}))
    assert written_by(folder) == ids[: ids.index(end)]
    assert load(folder / "model.safetensors").special_ids["eos_token_id"] == [12, end]  # 9,999 has no row
    convert(folder, tmp_path / "run", to="native")
    convert(tmp_path / "run", tmp_path / "back")
    for file in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "back" / file).read_text())["eos_token_id"] == [12, end]
    generation.write_text(json.dumps({"temperature": 0.6}))
    assert load(folder).special_ids["eos_token_id"] == 12
    for wrong, said in (
        ('{"eos_token_id": "x"}', r"eos_token_id is 'x', expected a token's id\. Mend generation_config\.json"),
        ('{"eos_token_id": 1', r"generation_config\.json: is not the JSON"),
        ("[" * 100_000, r"generation_config\.json: "),
    ):
        generation.write_text(wrong)
        with pytest.raises(CheckpointError, match=said):
            load(folder)
    generation.unlink()
    os.mkfifo(generation)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: is no regular file but a pipe"):
        load(folder)


def test_one_file_and_an_index_are_two_models_and_refused(folder):
    index = {"weight_map": dict.fromkeys(huggingface.read_weights(folder), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    done = command("sample", folder)
    assert done.code == 3
    assert "which of the two are the model's weights cannot be told" in done.err


def test_types_mixed_in_one_file_are_widened_to_the_widest(folder, tmp_path):
    tensors = huggingface.read_weights(folder)
    mixed = {
        name: tensor.double() if "ln_f" in name else tensor.half() if "mlp" in name else tensor
        for name, tensor in tensors.items()
    }
    (folder / "model.safetensors").write_bytes(b"".join(bytes(p) for p in encode_tensors(mixed, label="x")))
    assert command("sample", folder, "--prompt", "a", "--tokens", "2").code == 0
    assert {parameter.dtype for parameter in load(folder).parameters()} == {torch.float64}
    convert(folder, tmp_path / "run", to="native")  # as they are
    assert len({parameter.dtype for parameter in open_found(find(tmp_path / "run"), dtype="file").parameters()}) == 3
    assert {parameter.dtype for parameter in load(tmp_path / "run").parameters()} == {torch.float64}
    assert load(tmp_path / "run")(torch.tensor([[0, 1]])).dtype == torch.float64
    for mixes in (folder, tmp_path / "run"):
        with pytest.raises(
            UsageError, match=r"the file mixes types \(8 float16 and .* float32 and 2 float64 tensors\)"
        ):
            load(mixes, dtype="file")


def test_inspect_finds_the_tokenizer_that_loading_finds_beside_a_file(data, tmp_path):
    """llama2.c names it for the size of the vocabulary; a GGUF without one inside may have one beside it."""
    found = command("inspect", data / "weights" / "stories260K.bin", "--format", "json").json["tokenizer"]
    assert (found["file"], found["vocab_size"]) == ("tok512.bin", 512)
    model = small_model(changed(GPT2, block__mlp__activation="gelu_tanh"), dtype=torch.float32)
    made = write_model(model, tmp_path / "model.gguf", to="gguf", source="small")
    assert command("inspect", made.written, "--format", "json").json["tokenizer"] is None
    tokenizer_files.save(WordTokenizer(["the", "dog"]), made.written.parent / "tokenizer.json")
    assert command("inspect", made.written, "--format", "json").json["tokenizer"]["file"] == "tokenizer.json"
    assert load(made.written).tokenizer is not None
