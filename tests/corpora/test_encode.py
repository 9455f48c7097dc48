"""Encoding a stream: the ids of the whole text, whatever the pieces; documents apart; the split where it belongs."""

import io
import itertools

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from unembed.corpora import encode
from unembed.corpora.encode import encode_corpus, encode_jobs, jobs
from unembed.corpora.reading import Reading, ReadReport
from unembed.corpora.text import Piece, TextReader
from unembed.errors import CorpusError
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.files import fingerprint
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.training import train_bpe, train_unigram
from unembed.tokenizers.words import WordTokenizer


def pieces_of(documents, cuts, path) -> list[Piece]:
    """Documents cut into pieces of the given sizes, taken in turn."""
    out = []
    for text in documents:
        at, turn = 0, 0
        while True:
            size = cuts[turn % len(cuts)]
            out.append(Piece(text[at : at + size], path, at + size >= len(text)))
            at, turn = at + size, turn + 1
            if at >= len(text):
                break
    return out


TEXT = st.text(st.sampled_from("ab \n.é"), min_size=1, max_size=40)


@given(
    st.lists(TEXT, min_size=1, max_size=4),
    st.lists(st.integers(1, 9), min_size=1),
    st.integers(0, 100),
    st.integers(1, 8),
)
def test_property_jobs_hold_all_text_and_cut_where_no_word_notices(
    tmp_path_factory, documents, cuts, percent, job_size
):
    path = tmp_path_factory.getbasetemp()
    whole = "".join(documents)
    boundary = len(whole) * percent // 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "JOB_CHARACTERS", job_size)
        made = list(jobs(pieces_of(documents, cuts, path), boundaries=(boundary,)))
    parts = ["".join(job.text for job in made if job.part == part) for part in (0, 1)]
    assert parts == [whole[:boundary], whole[boundary:]]
    assert sum(job.ends_document for job in made) == len(documents)
    for before, after in itertools.pairwise(made):
        if after.is_continuation:
            assert before.text[-1].isalnum()
            assert after.text[0] in " \n"
            assert not before.ends_document
        else:
            assert before.ends_document or before.part != after.part


@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=1), st.integers(1, 8))
def test_property_ids_are_those_of_each_whole_document_and_its_end(tmp_path_factory, documents, cuts, job_size):
    path = tmp_path_factory.getbasetemp()
    for tokenizer in (
        CharacterTokenizer.from_text("ab \n.é", has_end=True),
        WordTokenizer(["a", "b", "ab", "ba", ".", "é"]),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encode, "JOB_CHARACTERS", job_size)
            stream = list(encode_jobs(tokenizer, jobs(pieces_of(documents, cuts, path))))
        want = [i for text in documents for i in [*tokenizer.encode(text).ids, tokenizer.end_id]]
        assert np.concatenate([ids for _, ids in stream]).tolist() == want


def test_the_usual_split_of_a_single_text(data, tmp_path):
    path = data / "text" / "tinyshakespeare.txt"
    text = path.read_text()
    reader = TextReader(path)
    tokenizer = CharacterTokenizer.from_text(piece.text for piece in reader.pieces())
    shards = encode_corpus(reader, tokenizer, tmp_path / "shards")
    assert (tokenizer.vocab_size, len(shards.train), len(shards.val)) == (65, 1_003_854, 111_540)
    assert tokenizer.decode(shards.train[:]) == text[: int(0.9 * len(text))]
    assert tokenizer.decode(shards.val[:]) == text[int(0.9 * len(text)) :]
    assert shards.manifest.tokenizer == fingerprint(tokenizer)
    assert shards.val.n_bytes == 111_540


def test_documents_are_kept_apart_by_the_end_token(tmp_path):
    (tmp_path / "a.csv").write_text("t\nab\nba\n" + "a\n" * 16)
    reader = TextReader(tmp_path / "a.csv", Reading(column="t"))
    tokenizer = CharacterTokenizer.from_text("ab", has_end=True)
    shards = encode_corpus(reader, tokenizer, tmp_path / "shards")
    assert shards.train[:6].tolist() == [0, 1, 2, 1, 0, 2]
    assert (shards.train.n_characters, shards.val.n_characters) == (18, 2)
    assert shards.val[:].tolist() == [0, 2, 0, 2], "an end token belongs to the part where its document ends"


def test_message_for_documents_that_nothing_keeps_apart(tmp_path):
    (tmp_path / "a.csv").write_text("t\nab\nba\n")
    with pytest.raises(CorpusError, match="2 documents, but the characters tokenizer has no end token"):
        encode_corpus(
            TextReader(tmp_path / "a.csv", Reading(column="t")), CharacterTokenizer.from_text("ab"), tmp_path / "shards"
        )
    assert not (tmp_path / "shards").exists()


@pytest.fixture(scope="module")
def subwords(data):
    """A vocabulary of each engine, learnt from three languages; SentencePiece in its usual form and in Llama's."""
    reader = TextReader([data / "text" / f"udhr_{language}.txt" for language in ("en", "es", "ko")])
    model = io.BytesIO()
    lines = (line for block in reader.blocks() for line in block.splitlines())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=700, minloglevel=2, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
    )  # fmt: skip
    return [
        train_bpe(reader.blocks(), vocab_size=700),
        train_unigram(reader.blocks(), vocab_size=500),
        PieceTokenizer(model.getvalue()),
    ]


def test_property_a_long_text_in_stretches_has_the_ids_of_the_whole(data, subwords, monkeypatch):
    monkeypatch.setattr(encode, "JOB_CHARACTERS", 50)
    text = (data / "text" / "udhr_es.txt").read_text()[:4000] + (data / "text" / "korean_chat.csv").read_text()[:2000]
    text += "  spaces   and\n\n\n lines \r\n\r\n\ttabs 1234 5678  ?! ...  x\n"
    for tokenizer in subwords:
        stream = list(encode_jobs(tokenizer, jobs(pieces_of([text], [701], data))))
        assert len(stream) > 50
        ids = np.concatenate([ids for _, ids in stream])
        assert ids.tolist() == [*tokenizer.encode(text).ids, tokenizer.end_id]


@pytest.mark.slow
def test_every_real_text_comes_back_from_its_shards(data, subwords, tmp_path):
    tokenizer = subwords[0]
    for path in sorted((data / "text").iterdir()):
        report = ReadReport()
        shards = encode_corpus(TextReader(path), tokenizer, tmp_path / path.stem, report=report)
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        # Decoded together: the split may fall between characters only, never inside one.
        assert (tokenizer.decode(shards.train[:]) + tokenizer.decode(shards.val[:])).encode() == content
        assert report.n_bytes == len(content) == shards.train.n_bytes + shards.val.n_bytes
    lf = encode_corpus(TextReader(data / "text" / "quijote.txt", Reading(newlines="lf")), tokenizer, tmp_path / "lf")
    content = (data / "text" / "quijote.txt").read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    assert (tokenizer.decode(lf.train[:]) + tokenizer.decode(lf.val[:])).encode() == content


@pytest.mark.slow
def test_a_folder_is_one_corpus_with_an_end_after_each_file(data, subwords, tmp_path):
    tokenizer = subwords[0]
    shards = encode_corpus(TextReader(data / "text"), tokenizer, tmp_path / "shards")
    n_ends = sum(int((split[:] == tokenizer.end_id).sum()) for split in (shards.train, shards.val))
    assert n_ends == 7 == shards.train.n_documents + shards.val.n_documents
    assert shards.train.n_characters == int(0.9 * (shards.train.n_characters + shards.val.n_characters))
