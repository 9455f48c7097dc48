"""SentencePiece: the library's own ids, spans that share a character, and the text back for every split."""

import io

import pytest
import sentencepiece

from oracles.odd_strings import odd_strings
from unembed.errors import TokenizerError
from unembed.tokenizers import proto
from unembed.tokenizers.base import StreamDecoder, decode_after, with_start
from unembed.tokenizers.files import fingerprint, load, save
from unembed.tokenizers.pieces import PieceTokenizer

SENTENCES = ["the cat sat on the mat", "el niño comió año tras año", "깰 때 깨다", "hello  world <sep> again"] * 30


def train(**options) -> bytes:
    """A small model by the library's own trainer."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=out,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    return out.getvalue()


LLAMA = {
    "model_type": "bpe",
    "vocab_size": 340,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "user_defined_symbols": ["<sep>"],
}


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def lossless(request):
    return PieceTokenizer(train(**LLAMA | {"model_type": request.param}))


@pytest.fixture(scope="module")
def plain():
    """SentencePiece's defaults: NFKC, extra spaces removed, no bytes."""
    return PieceTokenizer(train(vocab_size=60))


def test_oracle_ids_and_text_of_the_library(lossless, plain):
    for tokenizer in (lossless, plain):
        library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._data)
        for text in [*odd_strings(300, seed=5), *SENTENCES[:4]]:
            ids = library.encode(text)
            assert list(tokenizer.encode(text).ids) == tokenizer.encode_ids(text).tolist() == ids
            assert tokenizer.decode(ids) == library.decode(ids)


def test_property_round_trip_stream_and_spans(lossless):
    assert lossless.loses == "the character \u2581, which comes back as a space"
    for text in odd_strings(500, seed=6):
        if "\u2581" in text:
            continue
        encoding = lossless.encode(text)
        assert lossless.decode(encoding.ids) == text
        stream = StreamDecoder(lossless)
        assert "".join([*map(stream.feed, encoding.ids), stream.finish()]) == text
        previous = None
        for token_id, (start, end) in zip(encoding.ids, encoding.spans, strict=True):
            assert lossless.token_bytes(token_id, previous) in text[start:end].encode()
            previous = token_id


@pytest.mark.parametrize("text", ["Hello", " Hello", "  Hello", "", "\n Hello", "깰", "<0xEA>", "<s>", "a<sep> b"])
def test_the_invisible_first_space(lossless, text):
    ids = lossless.encode(text).ids
    assert not set(ids) & set(lossless.specials.values())
    for cut in range(len(ids) + 1):
        head = StreamDecoder(lossless)
        assert "".join(map(head.feed, ids[:cut])) + decode_after(lossless, ids[:cut], ids[cut:]) == text
    started = with_start(lossless, ids)
    assert started[0] == lossless.start_id == 1
    assert lossless.decode(started) == text


def test_a_continuation_gives_the_ids_of_the_whole(lossless, plain):
    for tokenizer in (lossless, plain):
        for text in SENTENCES[:4]:
            for cut in (i for i, c in enumerate(text) if c == " " and text[i - 1].isalnum()):
                head, tail = tokenizer.encode_many([text[:cut], text[cut:]], [False, True])
                assert [*head, *tail] == tokenizer.encode_ids(text).tolist()


def test_specials_are_text_unless_asked(lossless):
    parsed = lossless.encode("<s>the cat</s>", parse_specials=True)
    assert (parsed.ids[0], parsed.ids[-1]) == (1, 2)
    assert lossless.decode(parsed.ids) == "the cat"
    assert lossless.decode(parsed.ids, show_specials=True) == "<s>the cat</s>"


def test_losses_are_declared(plain):
    assert plain.decode(plain.encode("  ﬁ  the Ω ").ids) != "  ﬁ  the Ω "
    assert "white space at the ends" in plain.loses
    assert "normalizer nmt_nfkc" in plain.loses
    assert "characters outside its vocabulary" in plain.loses
    assert plain.decode(plain.encode("漢").ids) == " \u2047 "


def test_property_saved_and_loaded(lossless, tmp_path):
    save(lossless, tmp_path)
    assert fingerprint(load(tmp_path)) == fingerprint(lossless)
    (tmp_path / "tokenizer.model").write_bytes(lossless._data)
    (tmp_path / "tokenizer.json").unlink()
    assert load(tmp_path).tokens == lossless.tokens


def test_property_the_wire_format_goes_both_ways(lossless):
    model = proto.read_model(lossless._data, where="x")
    written = proto.read_model(proto.write_model(model), where="x")
    assert written == model
    again = PieceTokenizer.from_pieces(model)
    for text in odd_strings(200, seed=8):
        assert again.encode(text) == lossless.encode(text)


def test_llama2c_file(data):
    tokenizer = load(data / "weights" / "tok512.bin")
    assert (tokenizer.vocab_size, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == (512, 1, 2, 0)
    told = (data / "weights" / "stories260K_greedy_200.txt").read_text()
    ids = tokenizer.encode(told).ids
    assert tokenizer.decode(ids) == told
    assert [tokenizer.token_text(i) for i in ids[:4]] == [" Once", " upon", " a", " time"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x: holds no pieces, so it is no SentencePiece model"),
        (b"\x0a\xff\x01abc", "x: not a whole SentencePiece model .*a field of 255 bytes at byte 3 of 6"),
        (b"\xff" * 20, "x: not a whole SentencePiece model .*more than 10 bytes"),
        (b"\x0a\x02\x10\x01", "x: not a whole SentencePiece model"),
        (proto.write_model(proto.PieceModel(pieces=[("a", 0.0, 1), ("a", 0.0, 1)])), "'a' is both id 0 and id 1"),
    ],
)
def test_message_for_a_broken_model(data, message):
    with pytest.raises(TokenizerError, match=message):
        PieceTokenizer(data, where="x")


def test_every_cut_of_a_model_is_refused_or_read(lossless):
    for size in range(0, len(lossless._data), 97):
        try:
            PieceTokenizer(lossless._data[:size])
        except TokenizerError:
            continue
