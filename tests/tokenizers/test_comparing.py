"""Comparing kinds of vocabulary: the numbers are those of plain counting, and the lesson shows on real text."""

import pytest

from oracles import byte_pair
from unembed.errors import TokenizerError
from unembed.tokenizers import comparing
from unembed.tokenizers.comparing import compare, measure, new_words, remarks
from unembed.tokenizers.training import train_bpe, train_bytes, train_unigram
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


def pieces_by_likelihood(text: str, scores: dict[str, float]) -> list[str]:
    """The most likely pieces of each pre-token, found by trying every cut: Viterbi in plain Python."""
    out: list[str] = []
    for word in byte_pair.words_of(text):
        best: list[tuple[float, list[str]]] = [(0.0, [])]
        for end in range(1, len(word) + 1):
            ways = [
                (best[start][0] + scores[piece], [*best[start][1], piece])
                for start in range(end)
                if (piece := "".join(word[start:end])) in scores
            ]
            best.append(max(ways, key=lambda way: way[0]))
        out += best[-1][1]
    return out


@pytest.mark.parametrize("language", ["es", "ko"])
def test_oracle_every_figure_by_plain_counting(data, language):
    """The same text, vocabularies and encodings made by slow code that knows nothing of the tokenizers compared."""
    text = (data / "text" / f"udhr_{language}.txt").read_text()[:4000]
    result = compare(text, vocab_size=300)
    at = next(i for i in range(int(0.9 * len(text)), len(text)) if text[i].isspace())
    learnt, rest = text[:at], text[at:]
    words, known, letters = rest.split(), set(learnt.split()), set(learnt)
    merges = byte_pair.train(learnt.splitlines(keepends=True), 300 - 257, min_count=2)
    scores = dict(train_unigram(learnt, vocab_size=300).to_dict()["engine"]["model"]["vocab"])
    tokens = {
        "words": len(words),
        "characters": len(rest),
        "bytes": len(rest.encode()),
        "bpe": len(byte_pair.encode(rest, merges)),
        "unigram": len(pieces_by_likelihood(rest, scores)),
    }
    unknown = {"words": sum(w not in known for w in words), "characters": sum(c not in letters for c in rest)}
    for row in result.tables["tokenizers"].rows():
        kind = row["tokenizer"]
        # two trainings of a unigram may differ in pieces that matter equally
        assert row["tokens"] == (tokens[kind] if kind != "unigram" else pytest.approx(tokens[kind], rel=0.02))
        assert row["tokens_per_word"] == row["tokens"] / len(words)
        assert row["bytes_per_token"] == len(rest.encode()) / row["tokens"]
        assert row["unknown_share"] == unknown.get(kind, 0) / row["tokens"]
    assert result.values == {
        "held_out_share": len(rest) / len(text),
        "words": len(words),
        "bytes": len(rest.encode()),
        "new_word_share": unknown["words"] / len(words),
    }


def test_a_long_text_is_measured_as_a_whole(monkeypatch):
    """Blank lines and indents: cut at line ends, the white space would fall apart differently."""
    text = "def  f(x):\n\n\n    return x\n\r\n" * 40
    tokenizer = train_bpe(text, vocab_size=300)
    whole = len(tokenizer.encode(text).ids)
    monkeypatch.setattr(comparing, "STRETCH", 50)
    assert measure([("bpe", tokenizer)], text).rows()[0]["tokens"] == whole


def test_remarks_on_vocabularies_that_came_out_as_asked():
    text = "to be or not to be " * 200  # 3,800 characters
    (only,) = remarks(compare(text, vocab_size=257), 257)
    assert only.startswith("measured on the last 10% of the text (119 words, 378 bytes)")
