"""The space before the first word: where tokenizer_config.json says otherwise than tokenizer.json, the config holds."""

import json

import pytest

from unembed.tokenizers import files
from unembed.tokenizers.library import to_library
from unembed.tokenizers.training import train_bpe

TEXT = "hello world, hello there. " * 30


@pytest.mark.parametrize("says", [True, False, None])
def test_parity_config_decides_the_space_before_the_first_word(tmp_path, says):
    transformers = pytest.importorskip("transformers")
    values = to_library(train_bpe(TEXT, vocab_size=280))
    values["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    config = {"tokenizer_class": "GPT2Tokenizer"} | ({} if says is None else {"add_prefix_space": says})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = files.load(tmp_path).encode("hello world").ids
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)("hello world", add_special_tokens=False)["input_ids"]
    assert list(ours) == theirs
