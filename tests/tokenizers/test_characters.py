"""Characters: nothing of the alphabet is lost, and what lies outside it is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unembed.errors import TokenizerError
from unembed.tokenizers.base import StreamDecoder, decode_after, with_start
from unembed.tokenizers.characters import CharacterTokenizer

NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]))


def test_worked_example_ids_follow_code_points_and_specials_come_last():
    tokenizer = CharacterTokenizer.from_text("ñandú\n", has_unknown=True, has_end=True)
    assert tokenizer.tokens == ("\n", "a", "d", "n", "ñ", "ú", "<unk>", "<end>")
    assert tokenizer.encode("da\n").ids == (2, 1, 0)
    assert (tokenizer.unknown_id, tokenizer.end_id, tokenizer.vocab_size) == (6, 7, 8)


@given(NO_SURROGATES.filter(bool))
def test_property_round_trip_and_spans(text):
    tokenizer = CharacterTokenizer.from_text(text)
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids) == text
    assert [text[a:b] for a, b in encoding.spans] == [tokenizer.token_text(i) for i in encoding.ids]
    assert np.array_equal(tokenizer.encode_ids(text), encoding.ids)
    assert tokenizer.is_lossless
    assert tokenizer.loses == ""


@given(NO_SURROGATES.filter(bool))
def test_oracle_ids_are_places_in_the_sorted_alphabet(text):
    alphabet = sorted(set(text))
    assert CharacterTokenizer.from_text(text).encode(text).ids == tuple(alphabet.index(c) for c in text)


def test_property_pieces_of_text_give_the_alphabet_of_the_whole():
    whole = CharacterTokenizer.from_text("hello world")
    assert CharacterTokenizer.from_text(iter(["hello", " ", "world"])).to_dict() == whole.to_dict()


def test_unknown_characters_become_the_unknown_token_where_there_is_one():
    tokenizer = CharacterTokenizer.from_text("abc", has_unknown=True)
    assert tokenizer.encode("a𝄞c").ids == (0, 3, 2)
    assert tokenizer.decode([0, 3, 2]) == "a<unk>c"
    assert not tokenizer.is_lossless
    assert tokenizer.loses == "characters outside its alphabet of 3"


def test_specials_are_text_unless_asked():
    tokenizer = CharacterTokenizer.from_text("abc<end>", has_end=True)
    typed = tokenizer.encode("ab<end>")
    assert tokenizer.end_id not in typed.ids
    assert tokenizer.decode(typed.ids) == "ab<end>"
    parsed = tokenizer.encode("ab<end>c", parse_specials=True)
    assert parsed.ids[2] == tokenizer.end_id
    assert parsed.spans == ((0, 1), (1, 2), (2, 7), (7, 8))
    assert tokenizer.decode(parsed.ids) == "abc"
    assert tokenizer.decode(parsed.ids, show_specials=True) == "ab<end>c"


def test_property_stream_equals_decode():
    tokenizer = CharacterTokenizer.from_text("añ깰🙂", has_end=True)
    ids = [0, 3, tokenizer.end_id, 2, 1]
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.feed, ids), stream.finish()]) == tokenizer.decode(ids)
    assert decode_after(tokenizer, ids[:2], ids[2:]) == tokenizer.decode(ids[2:])


def test_padded_rows_have_a_placeholder_and_no_text():
    tokenizer = CharacterTokenizer.from_text("abc")
    assert tokenizer.token_text(61) == "<unused 61>"
    for decode in (tokenizer.decode, StreamDecoder(tokenizer).feed):
        with pytest.raises(TokenizerError, match=r"id 61 is none of its 3 tokens \(0 to 2\)\. Rows of a model beyond"):
            decode([61] if decode == tokenizer.decode else 61)
    with pytest.raises(TokenizerError, match="id -1 is none"):
        tokenizer.decode([-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CharacterTokenizer.from_text("abc").encode("ab깰"), r"character 2 is '깰' \(U\+AE70\), none of its 3"),
        (
            lambda: CharacterTokenizer.from_text("abc").encode("ab\ud800c"),
            r"character 2 is U\+D800, half of a surrogate",
        ),
        (lambda: CharacterTokenizer.from_text("ab\udfff"), r"character 2 is U\+DFFF, half of a surrogate"),
        (lambda: CharacterTokenizer.from_text(""), "the text is empty, so there is no alphabet"),
        (lambda: CharacterTokenizer("aba"), "'a' is both id 0 and id 2; a vocabulary holds a token once"),
        (lambda: with_start(CharacterTokenizer("ab"), [0]), "it has no start token to put before the ids"),
    ],
)
def test_message_names_place_value_and_next_step(call, message):
    with pytest.raises(TokenizerError, match=message):
        call()
