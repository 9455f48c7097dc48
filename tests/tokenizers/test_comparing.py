"""Comparing kinds of vocabulary: the numbers are those of plain counting, and the lesson shows on real text."""

import pytest

from unembed.errors import TokenizerError
from unembed.tokenizers.comparing import compare, measure, new_words
from unembed.tokenizers.training import train_bytes
from unembed.tokenizers.words import WordTokenizer


def test_worked_example():
    table = measure([("words", WordTokenizer(["el", "gato"])), ("bytes", train_bytes())], "el gato\nel año ")
    words, plain_bytes = table.rows()
    assert words["vocabulary"] == 4
    assert (words["tokens"], words["tokens_per_word"], words["unknown_share"]) == (4, 1.0, 0.25)
    assert words["bytes_per_token"] == 16 / 4
    assert (plain_bytes["tokens"], plain_bytes["bytes_per_token"], plain_bytes["unknown_share"]) == (16, 1.0, 0.0)
    assert (words["is_lossless"], plain_bytes["is_lossless"], plain_bytes["loses"]) == (False, True, "")


def test_new_words_come_in_order_once_and_are_letters():
    assert new_words("a b", "c a c d1 é b e", 2) == ["c", "é"]


@pytest.mark.parametrize("language", ["es", "ko"])
def test_the_lesson_on_real_text(data, language):
    text = (data / "text" / f"udhr_{language}.txt").read_text()
    result = compare(text, vocab_size=600)
    rows = {row["tokenizer"]: row for row in result.tables["tokenizers"].rows()}
    assert list(rows) == ["words", "characters", "bytes", "bpe", "unigram"]
    assert rows["words"]["unknown_share"] == pytest.approx(result.values["new_word_share"])
    assert rows["words"]["unknown_share"] > 0.1 > rows["characters"]["unknown_share"]
    assert rows["bpe"]["unknown_share"] == rows["unigram"]["unknown_share"] == rows["bytes"]["unknown_share"] == 0
    assert rows["words"]["tokens_per_word"] == 1 < rows["bpe"]["tokens_per_word"] < rows["bytes"]["tokens_per_word"]
    assert rows["bytes"]["bytes_per_token"] == 1 < rows["bpe"]["bytes_per_token"]
    assert rows["bpe"]["vocabulary"] <= 600
    assert result.tables["new_words"].n_rows == 25
    first = result.tables["new_words"].rows()[:5]
    assert first[0]["tokens"] == ["<unk>"]
    assert all("".join(row["tokens"]) == row["word"] for row in first if "<" not in "".join(row["tokens"]))
    assert "".join(first[3]["tokens"]) == first[3]["word"] or language == "ko"


def test_message_for_a_text_without_words():
    with pytest.raises(TokenizerError, match="a text of 9 characters leaves no words after its first 90%"):
        compare("aaaaaaaaa")
