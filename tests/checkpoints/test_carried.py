"""What goes along with a model's tokenizer when it changes its format: its files, its chat template, padding, the unknown."""

import json

import pytest
import torch

import tokenizers
from oracles.specs import base, changed
from small import small_model
from unembed.checkpoints.convert import convert
from unembed.checkpoints.families import bert, gpt2
from unembed.checkpoints.families.base import read_spec
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.checkpoints.load import find, load
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.model.init import Gpt2Init, build
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers import proto
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tying.repair import repair

GPT2 = changed(
    base(),
    embedding__position={"type": "learned", "n_rows": 12, "offset": 0},
    embedding__vocab_size=300,
    block__attention__n_heads=2,
    block__attention__n_kv_heads=2,
    block__attention__biases=["q", "k", "v", "o"],
    block__attention__score_scale=6**-0.5,
    block__mlp__activation="gelu_tanh",
)
BERT = {
    "vocab_size": 8,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\nñ 깰{% endfor %}"
NAMES = ("<|end|>", "<|pad|>", "<|unk|>")


def library_files(folder):
    """A byte-level tokenizer as the library writes it, with a config as transformers does, in a layout of its own."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=list(NAMES), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["to be or not to be, that is the question"] * 4, trainer)
    made.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"eos_token": NAMES[0], "pad_token": NAMES[1], "unk_token": {"content": NAMES[2]}, "odd": [1, "깰"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=7))
    (folder / "special_tokens_map.json").write_text('{"eos_token":   "<|end|>"}')
    (folder / "chat_template.jinja").write_bytes(TEMPLATE.encode())
    (folder / "vocab.txt").write_bytes(b"a\r\nb")
    (folder / "notes.txt").write_text("no tokenizer's file")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "hf"
    place.mkdir()
    write_huggingface(small_model(GPT2, dtype=torch.float32), place, family=gpt2.FAMILY)
    library_files(place)
    return place


def test_a_folders_tokenizer_files_are_copied_byte_for_byte(folder, tmp_path):
    done = convert(folder, tmp_path / "again")
    assert done.notes == ()
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "vocab.txt",
    ):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name
    assert not (tmp_path / "again" / "notes.txt").exists()
    card = (tmp_path / "again" / "README.md").read_text()
    assert 'tokenizer = AutoTokenizer.from_pretrained(".")' in card


def test_a_tokenizer_that_only_its_own_file_can_say_is_copied_and_null_ids_stay_null(tmp_path):
    place = tmp_path / "bert"
    place.mkdir()
    spec = read_spec(bert.FAMILY, ConfigReader(BERT, family="bert", where="test"))
    write_huggingface(build(spec, Gpt2Init(std=0.02), seed=0), place, family=bert.FAMILY)
    words = {name: i for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "to", "be", "##e"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = (
        tokenizers.normalizers.BertNormalizer(),
        tokenizers.pre_tokenizers.BertPreTokenizer(),
    )
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.save(str(place / "tokenizer.json"))
    done = convert(place, tmp_path / "out")
    assert done.notes == ()
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (place / "tokenizer.json").read_bytes()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (None, None)


def test_the_chat_template_padding_and_the_unknown_go_into_gguf_and_back(folder, tmp_path):
    done = convert(folder, tmp_path / "m.gguf", to="gguf")
    assert done.notes == ()
    again = convert(tmp_path / "m.gguf", tmp_path / "again.gguf", to="gguf")
    assert again.notes == ()
    for name in ("m.gguf", "again.gguf"):
        said = read_gguf(tmp_path / name).metadata
        assert said["tokenizer.chat_template"] == TEMPLATE
        assert (said["tokenizer.ggml.padding_token_id"], said["tokenizer.ggml.unknown_token_id"]) == (1, 2)
    back = convert(tmp_path / "again.gguf", tmp_path / "back")
    assert back.notes == ()
    config = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert config["chat_template"] == TEMPLATE
    assert (config["pad_token"], config["unk_token"], config["eos_token"]) == (NAMES[1], NAMES[2], NAMES[0])
    assert json.loads((tmp_path / "back" / "config.json").read_text())["pad_token_id"] == 1
    native = convert(tmp_path / "m.gguf", tmp_path / "run", to="native")
    assert native.notes == ("the chat template has no place in a run folder, so it was left out",)


def test_a_repaired_folder_keeps_its_tokenizer_files_too(folder, tmp_path):
    repair(find(folder), "untie", tmp_path / "apart")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "vocab.txt"):
        assert (tmp_path / "apart" / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_role_of_an_ordinary_token_would_change_texts_and_is_left_out(folder, tmp_path):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": "a"}))
    done = convert(folder, tmp_path / "m.gguf", to="gguf")
    token_id = load(folder).tokenizer.encode("a").ids[0]
    assert done.notes == (
        f"token {token_id} is the padding token and no special of the tokenizer, so that was left out",
    )
    assert "tokenizer.ggml.padding_token_id" not in read_gguf(tmp_path / "m.gguf").metadata


def test_sentence_pieces_go_through_a_folder_into_gguf(tmp_path):
    texts = ["to", "be", "▁to", "▁be", "▁t", "▁b", "or", "▁or", "t", "o", "b", "e", "r", "▁"]
    pieces = [("<unk>", 0.0, proto.UNKNOWN), ("<s>", 0.0, proto.CONTROL), ("</s>", 0.0, proto.CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0.0, proto.BYTE) for byte in range(256)]
    pieces += [(text, -float(i), proto.NORMAL) for i, text in enumerate(texts)]
    own = PieceTokenizer.from_pieces(
        proto.PieceModel(pieces=pieces, model_type=proto.BPE, removes_extra_spaces=False), where="own"
    )
    model = small_model(GPT2, dtype=torch.float32)
    place = tmp_path / "hf"
    place.mkdir()
    write_huggingface(model, place, family=gpt2.FAMILY)
    tokenizer_files.save(own, place / "tokenizer.json")
    convert(place, tmp_path / "out")
    done = convert(tmp_path / "out", tmp_path / "m.gguf", to="gguf")
    assert done.notes == ()
    back = load(tmp_path / "m.gguf").tokenizer
    for text in ("to be or", "bet  tor ñ", "obee", "<s> to"):
        assert back.encode(text).ids == own.encode(text).ids, text
    assert (back.start_id, back.end_id, back.adds_start) == (1, 2, own.adds_start)
    assert read_gguf(tmp_path / "m.gguf").metadata["tokenizer.ggml.unknown_token_id"] == 0
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["unk_token"] == "<unk>"


def test_ids_outlive_a_tokenizer_that_gguf_cannot_say(folder, tmp_path):
    values = json.loads((folder / "tokenizer.json").read_text())
    values["normalizer"] = {"type": "Lowercase"}
    values["pre_tokenizer"] = {"type": "Whitespace"}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 7, "eos_token_id": [9, 8]}))
    done = convert(folder, tmp_path / "m.gguf", to="gguf")
    assert done.notes == (
        "the bpe tokenizer has no exact form in GGUF, so none was written",
        "the chat template has no place in a GGUF file without a tokenizer, so it was left out",
    )
    convert(tmp_path / "m.gguf", tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (7, 9)
