"""Training: the merges of the slow oracle, the same on every machine; and a text that is too much is thinned evenly."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import byte_pair
from unembed.errors import TokenizerError
from unembed.tokenizers import engine
from unembed.tokenizers.training import END, sample_lines, train_bpe, train_bytes, train_characters, train_unigram

LINES = st.lists(st.text(st.sampled_from("aab cé.\n1"), min_size=1, max_size=30), min_size=1, max_size=6)


def merges_of(tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in tokenizer.to_dict()["engine"]["model"]["merges"]]


def test_bytes_that_characters_stand_for_are_gpt2s():
    assert [engine.byte_of_character()[c] for c in byte_pair.byte_characters()] == list(range(256))


@settings(deadline=None)
@given(LINES)
def test_oracle_merges_and_encodings(texts):
    tokenizer = train_bpe(texts, vocab_size=257 + 12)
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    want = byte_pair.train(lines, 12, min_count=2)
    assert merges_of(tokenizer) == want
    text = "".join(texts)
    assert [tokenizer.tokens[i] for i in tokenizer.encode(text).ids] == byte_pair.encode(text, want)


def test_worked_example_runs_of_one_letter():
    """The library counts overlapping pairs: in "aaaaa" (a, a) four times; encoding goes from left to right."""
    assert merges_of(train_bpe(["aaa", "abb"], vocab_size=258)) == [("a", "a")], (
        "(a, a) twice beats (b, b) and (a, b) once"
    )
    assert merges_of(train_bpe(["aaa", "ab", "ab"], vocab_size=258)) == [("a", "a")], "2 against 2: the smaller ids"
    assert merges_of(train_bpe(["aaa", "ab", "ab", "ab"], vocab_size=258)) == [("a", "b")]
    tokenizer = train_bpe(["aaa"], vocab_size=258)
    assert [tokenizer.token_text(i) for i in tokenizer.encode("aaa").ids] == ["aa", "a"]


def test_sizes_and_specials():
    tokenizer = train_bpe("the cat sat on the mat, the cat sat", vocab_size=265)
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.kind) == (265, 264, "bpe")
    assert tokenizer.token_text(264) == END
    assert train_bpe("ab", vocab_size=5000).vocab_size == 257, "nothing occurs twice"
    assert train_bytes().vocab_size == 257
    unigram = train_unigram("the cat sat on the mat, the cat sat " * 9, vocab_size=265)
    assert (unigram.kind, unigram.is_lossless, unigram.end_id) == ("unigram", True, unigram.vocab_size - 1)


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text(st.characters(exclude_categories=["Cs"]))
)
def test_property_known_characters_are_one_token_and_others_their_bytes(known, text):
    tokenizer = train_characters(known)
    assert tokenizer.is_lossless
    assert tokenizer.decode(tokenizer.encode_ids(known + text)) == known + text
    assert [len(tokenizer.encode(c).ids) for c in known] == [1] * len(known)
    assert len(tokenizer.encode(known * 2).ids) == 2 * len(known), "no merge reaches across two characters"
    beginnings = {c.encode()[:2] for c in known} | {c.encode()[:3] for c in known}
    for c in set(text) - set(known):
        at_most = len(c.encode())
        assert (len(tokenizer.encode(c).ids) == at_most) or c.encode()[:2] in beginnings


def test_two_switches_lower_case_and_accents():
    text = "Compañera ACCIÓN hacía hacia 각\n" * 3
    lower = train_bpe(text, vocab_size=300, lowercases=True)
    assert lower.decode(lower.encode_ids("Compañera ACCIÓN hacía")) == "compañera acción hacía"
    assert lower.encode("hacia").ids != lower.encode("hacía").ids
    assert (lower.is_lossless, lower.loses) == (False, "upper case")
    bare = train_bpe(text, vocab_size=300, strips_accents=True)
    assert bare.decode(bare.encode_ids("Compañera ACCIÓN hacía 각")) == "Companera ACCION hacia 각"
    assert "accents" in bare.loses


@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=20), max_size=20), st.integers(0, 200), st.randoms())
def test_property_thinning_ignores_order_and_keeps_the_budget(texts, budget, order):
    whole = sample_lines(texts, 10**9)
    assert sorted(whole) == sorted(line for text in texts for line in text.splitlines(keepends=True))
    kept = sample_lines(texts, budget)
    assert sum(map(len, kept)) <= budget
    order.shuffle(texts)
    assert sorted(sample_lines(texts, budget)) == sorted(kept)


def test_unbroken_letters_cost_more_and_long_lines_are_cut():
    draw = random.Random(0)
    protein = "".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=1 << 20))
    stretches = sample_lines(protein, 10**9)
    assert "".join(stretches) == protein
    assert max(map(len, stretches)) == 4096
    assert sum(map(len, sample_lines(protein, 1 << 20))) <= (1 << 20) / 16
    prose = "la casa de la montaña " * 50_000
    assert "".join(sample_lines(prose, 10**9)) == prose
    assert sum(map(len, sample_lines(prose, 1 << 21))) == len(prose)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: train_bpe("abc", vocab_size=256),
            r"vocab_size is 256, but the 256 bytes and <\|endoftext\|> take 257 ids",
        ),
        (lambda: train_unigram("abc", vocab_size=3), "unigram tokenizer: vocab_size is 3"),
        (lambda: train_bpe([], vocab_size=300), "the text is empty, so there is nothing to learn from"),
        (lambda: train_bpe("a\ud800", vocab_size=300), r"character 1 is U\+D800, half of a surrogate pair"),
    ],
)
def test_message_names_value_and_next_step(call, message):
    with pytest.raises(TokenizerError, match=message):
        call()
