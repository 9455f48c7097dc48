"""Where a text begins: the start token of a published checkpoint once, by its tokenizer's own rule, and gaps never drawn."""

import copy
import io
import json

import pytest
import sentencepiece

from oracles.specs import base, changed
from small import small_model
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.texts import continue_text, prompt_ids
from unembed.tokenizers.base import gaps, with_start
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import fingerprint, from_dict, load
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.tokenizers.training import END, train_bpe
from unembed.tokenizers.words import WordTokenizer

TEXT = "the cat sat on the mat. El niño comió año tras año. " * 8
START = "<|begin_of_text|>"


def library_values(*, template: bool, start: bool = True):
    """A tokenizer.json of the tokenizers library with a start token, and perhaps the template that puts it first."""
    values = copy.deepcopy(train_bpe(TEXT, vocab_size=280).to_dict()["engine"])
    added = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    if start:
        values["added_tokens"].append({"id": 280, "content": START} | added)
    if template:
        first = {"SpecialToken": {"id": START, "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        values["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [first, text],
            "pair": [first, text, text],
            "special_tokens": {START: {"id": START, "ids": [280], "tokens": [START]}},
        }
    return values


def opened(tmp_path, values, config=None):
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return load(tmp_path)


@pytest.mark.parametrize(
    ("template", "config", "expected"),
    [
        (True, None, True),  # Llama 3, Gemma: the template puts it there
        (False, None, False),  # GPT-2's kind: a start token that nothing puts before a text
        (False, {"bos_token": START, "add_bos_token": True}, True),
        (True, {"bos_token": START, "add_bos_token": False}, False),
        (False, {"bos_token": END}, False),  # GPT-2 itself names its end token as the start
    ],
)
def test_the_tokenizers_own_rule_is_followed_once(tmp_path, template, config, expected):
    """A19b: a prompt gets one start token where the rule says so, and none otherwise; never two."""
    tokenizer = opened(tmp_path, library_values(template=template), config)
    assert tokenizer.adds_start is expected
    letters = list(tokenizer.encode("the cat").ids)
    start = [tokenizer.start_id] if expected else []
    assert prompt_ids(tokenizer, "the cat") == ([*start, *letters], True)
    # typed in letters it is text (A19a), and what stands before it is the one start token
    ids, _ = prompt_ids(tokenizer, START + "the cat")
    assert ids.count(280) == (expected and tokenizer.start_id == 280)
    assert with_start(tokenizer, [tokenizer.start_id, *letters]) == [tokenizer.start_id, *letters]
    again = from_dict(tokenizer.to_dict())
    assert (again.adds_start, fingerprint(again)) == (expected, fingerprint(tokenizer))


def test_parity_of_the_start_token_with_the_library(tmp_path):
    import tokenizers

    values = library_values(template=True)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(values))
    tokenizer = opened(tmp_path, values)
    for text in ("the cat", " año", "."):
        assert prompt_ids(tokenizer, text)[0] == theirs.encode(text).ids


def test_a_template_without_a_start_token_adds_none(tmp_path):
    tokenizer = opened(tmp_path, library_values(template=False, start=False))
    assert (tokenizer.start_id, tokenizer.adds_start) == (None, False)


def test_sentencepiece_files_begin_with_their_start_token_unless_told_otherwise(tmp_path):
    out = io.BytesIO()
    sentences = iter([TEXT] * 20)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=out, vocab_size=60, model_type="bpe", minloglevel=2, num_threads=1
    )
    (tmp_path / "tokenizer.model").write_bytes(out.getvalue())
    tokenizer = load(tmp_path)
    ids, is_text = prompt_ids(tokenizer, "the cat")
    assert (ids, is_text) == ([1, *tokenizer.encode("the cat").ids], True)
    model = small_model(changed(base(), embedding__vocab_size=60))
    model.tokenizer = tokenizer
    values = continue_text(model, "the", n_tokens=4, sampling=GREEDY, seed=0).values
    assert values["prompt_ids"][:1] == [1]
    assert tokenizer.decode(values["prompt_ids"] + values["ids"]) == "the" + values["text"]
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    told = load(tmp_path)
    assert prompt_ids(told, "the cat")[0] == list(tokenizer.encode("the cat").ids)
    assert [from_dict(t.to_dict()).adds_start for t in (tokenizer, told)] == [True, False]


def test_our_own_tokenizers_add_nothing_and_keep_their_fingerprints():
    for tokenizer in (train_bpe(TEXT, vocab_size=280), CharacterTokenizer.from_text("ab"), WordTokenizer(["a"])):
        assert not tokenizer.adds_start
        assert "adds_start" not in tokenizer.to_dict()


def test_ids_are_read_as_they_are_given(tmp_path):
    model = small_model(changed(base(), embedding__vocab_size=281))
    model.tokenizer = opened(tmp_path, library_values(template=True))
    letters = list(model.tokenizer.encode("the").ids)
    for ids in (letters, [280, *letters]):
        assert continue_text(model, ids=ids, n_tokens=1, sampling=GREEDY, seed=0).values["prompt_ids"] == ids


def test_a_text_without_a_prompt_begins_with_what_the_model_knows_of():
    model = small_model(changed(base(), embedding__vocab_size=4))
    model.tokenizer = CharacterTokenizer.from_text("ab\n", has_end=True)
    assert continue_text(model, n_tokens=1, sampling=GREEDY, seed=0).values["prompt_ids"] == [3]
    model.start_ids = (2, 1)
    found = continue_text(model, n_tokens=3, sampling=GREEDY, seed=0).values
    assert found["prompt_ids"] == [2, 1]
    assert found["text"] == model.tokenizer.decode(found["ids"])
    assert continue_text(model, "b", n_tokens=1, sampling=GREEDY, seed=0).values["prompt_ids"] == [2]


# --- A17, neighbours: a hole in the middle of the vocabulary ----------------------------------------------


def test_gaps_of_a_vocabulary_are_never_drawn_greedily_or_not():
    """Id 1 has no token: without care it is drawn, and no text can be made of it."""
    vocabulary = {"a": 0, "b": 2, "c": 3}
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    tokenizer = SubwordTokenizer(values)
    assert (tokenizer.vocab_size, gaps(tokenizer)) == (4, [1])
    plain = changed(base(), embedding__vocab_size=6)
    plain["head"]["has_bias"] = True
    model = small_model(plain)
    model.head.bias.data[1] = 1e4
    model.tokenizer = tokenizer
    for sampling in (GREEDY, Sampling(), Sampling(top_k=1)):
        for seed in range(5):
            values = continue_text(model, "a", n_tokens=8, sampling=sampling, seed=seed).values
            assert set(values["ids"]) <= {0, 2, 3}
            assert min(values["logprobs"]) > -50  # of the three ids alone
            assert len(values["text"]) == 8
