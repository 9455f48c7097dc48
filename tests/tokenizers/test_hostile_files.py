"""A tokenizer's file in which anything was changed is read or refused by name, never an error of ours.

Each change takes one value of a whole file, wherever it stands, and removes it or puts something odd in its place.
"""

import copy
import json
import random

import pytest

from unembed.errors import TokenizerError
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import load, save
from unembed.tokenizers.training import train_bpe, train_unigram
from unembed.tokenizers.words import WordTokenizer

TEXT = "the cat sat on the mat. El niño comió año tras año. " * 6
ODD = (None, True, -1, 10**30, 1e400, "", "\ud800", "x" * 50, [], [[]], {}, {"type": "Nobody"}, [None], [["a"]], 0.5)
N_CHANGES = 200


def with_marks() -> dict:
    """A tokenizer.json of the library's own kind, with steps of every sort, added tokens and a template."""
    engine = train_unigram(TEXT, vocab_size=270).to_dict()["engine"]
    end = {"id": len(engine["model"]["vocab"]), "content": "</s>", "special": True, "normalized": False}
    end |= {"single_word": False, "lstrip": False, "rstrip": False}
    return engine | {
        "added_tokens": [end],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [269], "tokens": ["</s>"]}},
        },
    }  # fmt: skip


FILES = {
    "characters": lambda: CharacterTokenizer.from_text(TEXT, has_end=True).to_dict(),
    "words": lambda: WordTokenizer.from_text(TEXT).to_dict(),
    "bpe": lambda: train_bpe(TEXT, vocab_size=270).to_dict(),
    "library": with_marks,
}


def places(value, path=()):
    """The path of every value inside a JSON value, a few of a long list."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(inside)[:12]:
        yield from places(entry, (*path, key))


def changed(values: dict, path: tuple, odd) -> dict:
    made = copy.deepcopy(values)
    place = made
    for key in path[:-1]:
        place = place[key]
    if odd == "removed":
        del place[path[-1]]
    else:
        place[path[-1]] = odd
    return made


@pytest.mark.parametrize("kind", FILES)
def test_any_changed_value_is_read_or_refused(kind, tmp_path):
    draw = random.Random(kind)
    values = FILES[kind]()
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    load(tmp_path)
    every = list(places(values))
    refusals = []
    for _ in range(N_CHANGES):
        path, odd = draw.choice(every), draw.choice(("removed", *ODD))
        (tmp_path / "tokenizer.json").write_text(json.dumps(changed(values, path, odd)))
        try:
            tokenizer = load(tmp_path)
            tokenizer.decode(tokenizer.encode_ids("the cat"))
        except TokenizerError as error:
            refusals.append(str(error))
        except Exception as error:
            raise AssertionError(f"{path} = {odd!r}: {type(error).__name__}: {error}") from error
    assert len(refusals) > N_CHANGES / 4
    assert max(len(said.splitlines()) for said in refusals) <= 6


@pytest.mark.parametrize("kind", FILES)
def test_a_file_cut_anywhere_is_refused(kind, tmp_path):
    text = json.dumps(FILES[kind]())
    for size in range(0, len(text) - 1, max(1, len(text) // 60)):
        (tmp_path / "tokenizer.json").write_text(text[:size])
        with pytest.raises(TokenizerError, match="not readable as JSON"):
            load(tmp_path)


def test_a_nest_of_brackets_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[" * 200_000)
    with pytest.raises(TokenizerError, match="not readable as JSON: it is nested too deeply"):
        load(tmp_path)


def test_a_file_at_which_the_library_panics_is_refused(tmp_path):
    """A panic of the library's is no Exception in Python, and would end the program with a traceback."""
    values = train_bpe(TEXT, vocab_size=270).to_dict()["engine"]
    values["model"]["continuing_subword_prefix"] = "x" * 50
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match=r"the tokenizers library does not take it: .*out of range"):
        load(tmp_path)


def test_an_untouched_file_is_still_read(tmp_path):
    for kind, make in FILES.items():
        (tmp_path / "tokenizer.json").write_text(json.dumps(make()))
        assert save(load(tmp_path), tmp_path / f"{kind}.json").is_file()
