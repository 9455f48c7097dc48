"""From a prompt's text to a continuation's text: where a text without a prompt begins, and what comes back as values."""

import pytest

from oracles.specs import base, changed
from small import small_model
from unembed.errors import InputError
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.texts import continue_text, prompt_ids
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.words import WordTokenizer


def model_of(tokenizer, n_rows=None):
    """A model whose table has a row for every token, and perhaps some that no token has."""
    model = small_model(changed(base(), embedding__vocab_size=n_rows or tokenizer.vocab_size))
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (CharacterTokenizer.from_text("ab\n ", has_end=True), ["<end>"]),
        (CharacterTokenizer.from_text("ab\n "), ["\n"]),
        (CharacterTokenizer.from_text("ab "), [" "]),
    ],
)
def test_text_without_a_prompt_begins_after_what_stands_before_a_text(tokenizer, expected):
    ids, is_text = prompt_ids(tokenizer, "")
    assert [tokenizer.tokens[i] for i in ids] == expected
    assert not is_text
    assert prompt_ids(tokenizer, "ab") == (list(tokenizer.encode("ab").ids), True)


def test_alphabet_without_any_beginning_asks_for_a_prompt():
    with pytest.raises(InputError, match=r"the characters tokenizer has no token that begins a text; give a --prompt"):
        prompt_ids(CharacterTokenizer.from_text("ab"), "")


def test_values_are_the_continuation_alone_and_agree_with_each_other():
    tokenizer = CharacterTokenizer.from_text("abcdefgh \n")
    model = model_of(tokenizer)
    values = continue_text(model, "bad ", n_tokens=9, sampling=Sampling(), seed=3).values
    assert values["prompt_ids"] == list(tokenizer.encode("bad ").ids)
    assert len(values["ids"]) == len(values["logprobs"]) == 9
    assert values["text"] == tokenizer.decode(values["ids"])
    assert (values["stopped"], values["n_slides"]) == ("length", 0)  # 4 + 9, but the last is not read: 12 fit
    (text,) = generate_ids(model, [values["prompt_ids"]], n_tokens=9, sampling=Sampling(), seeds=[3])
    assert text.ids == values["ids"]


def test_first_space_is_kept_after_a_prompt():
    """Words are joined by spaces: the continuation of one word begins with the space that parts the two."""
    tokenizer = WordTokenizer(["sun", "moon", "rises"])
    model = model_of(tokenizer)
    after = continue_text(model, "sun", n_tokens=2, sampling=GREEDY, seed=0).values
    assert after["text"].startswith(" ")
    assert "sun" + after["text"] == tokenizer.decode([*after["prompt_ids"], *after["ids"]])


def test_rows_that_no_token_has_are_never_drawn_and_end_ends():
    tokenizer = CharacterTokenizer.from_text("abc \n", has_end=True)
    model = model_of(tokenizer, n_rows=13)
    drawn = [
        continue_text(model, "a", n_tokens=40, sampling=Sampling(temperature=3.0), seed=s).values for s in range(20)
    ]
    assert max(i for values in drawn for i in values["ids"]) < tokenizer.vocab_size
    ended = [values for values in drawn if values["stopped"] == "end"]
    assert ended
    assert all(tokenizer.end_id not in values["ids"] for values in drawn)
    assert all(len(values["ids"]) == 40 for values in drawn if values["stopped"] == "length")


def test_model_without_a_tokenizer_says_so():
    with pytest.raises(InputError, match="this model has no tokenizer, so text has no ids"):
        continue_text(small_model(), "a", n_tokens=1, sampling=GREEDY, seed=0)
