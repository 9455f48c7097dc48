"""Words: exact on text written with single spaces, and open about everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unembed.errors import TokenizerError
from unembed.tokenizers.base import StreamDecoder
from unembed.tokenizers.words import WordTokenizer

WORD = st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1).filter(lambda w: not w.isspace())


def test_worked_example_most_frequent_first_then_code_points():
    tokenizer = WordTokenizer.from_text("el perro ve el gato y el perro .")
    assert tokenizer.tokens == ("el", "perro", ".", "gato", "ve", "y", "<unk>", "<end>")
    assert tokenizer.encode("el gato ladra").ids == (0, 3, 6)
    assert (tokenizer.unknown_id, tokenizer.end_id) == (6, 7)


def test_max_vocab_bounds_all_ids():
    tokenizer = WordTokenizer.from_text("a a a b b c", max_vocab=4)
    assert tokenizer.tokens == ("a", "b", "<unk>", "<end>")


@given(st.lists(WORD, min_size=1))
def test_property_single_spaced_text_comes_back(words):
    text = " ".join(words)
    tokenizer = WordTokenizer.from_text(text)
    if not {"<unk>", "<end>"} & set(words):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    encoding = tokenizer.encode(text)
    assert [text[a:b] for a, b in encoding.spans] == words
    assert tokenizer.encode_ids(text).tolist() == list(encoding.ids)


def test_losses_are_declared():
    tokenizer = WordTokenizer(["a", "b"], lowercases=True)
    assert not tokenizer.is_lossless
    assert tokenizer.loses == "words outside its 2, white space other than one space between words, upper case"
    assert tokenizer.decode(tokenizer.encode(" a\n\nc B ").ids) == "a <unk> b"


def test_lower_case_keeps_accents_unless_they_are_stripped_too():
    text = "Compañera ACCIÓN hacía hacia"
    lower = WordTokenizer.from_text(text, lowercases=True)
    assert lower.decode(lower.encode(text).ids) == "compañera acción hacía hacia"
    assert lower.encode("hacia").ids != lower.encode("hacía").ids
    both = WordTokenizer.from_text(text, lowercases=True, strips_accents=True)
    assert both.encode("hacia").ids == both.encode("hacía").ids
    assert both.encode("compañera").ids == both.encode("COMPANERA").ids
    only_accents = WordTokenizer.from_text("Acción 각", strips_accents=True)
    assert only_accents.decode(only_accents.encode("Acción 각").ids) == "Accion 각"


def test_spans_are_of_the_given_text_even_where_lower_case_is_longer():
    text = "İstanbul güzel"
    encoding = WordTokenizer.from_text(text, lowercases=True).encode(text)
    assert [text[a:b] for a, b in encoding.spans] == ["İstanbul", "güzel"]


def test_specials_are_text_unless_asked():
    tokenizer = WordTokenizer(["a", "."])
    assert tokenizer.encode("a <end> .").ids == (0, 2, 1)
    assert tokenizer.encode("a <end> .", parse_specials=True).ids == (0, 3, 1)
    assert tokenizer.decode([0, 3, 1]) == "a ."
    assert tokenizer.decode([0, 3, 1], show_specials=True) == "a <end> ."


def test_property_stream_equals_decode_and_keeps_the_space_after_a_prompt():
    tokenizer = WordTokenizer(["a", "b"])
    ids = [0, 3, 1, 2, 0]
    stream = StreamDecoder(tokenizer)
    pieces = [*map(stream.feed, ids), stream.finish()]
    assert pieces == ["a", "", " b", " <unk>", " a", ""]
    assert "".join(pieces) == tokenizer.decode(ids)
    assert StreamDecoder(tokenizer, after=[0]).feed(1) == " b"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WordTokenizer.from_text(" \n"), "the text holds no word, so there is no vocabulary"),
        (lambda: WordTokenizer.from_text("a b", max_vocab=2), "max_vocab is 2, but <unk> and <end> take 2 ids"),
        (lambda: WordTokenizer(["a b"]), "'a b' is no word"),
        (lambda: WordTokenizer(["a", "<unk>"]), "'<unk>' is both id 1 and id 2"),
        (lambda: WordTokenizer(["a"]).encode("a \udc80"), r"character 2 is U\+DC80, half of a surrogate pair"),
        (lambda: WordTokenizer(["a"]).decode([3]), r"words tokenizer: id 3 is none of its 3 tokens"),
    ],
)
def test_message_names_place_value_and_next_step(call, message):
    with pytest.raises(TokenizerError, match=message):
        call()
