"""Subwords: our own and other programs' tokenizer.json, held against the library's decoder and against the stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizers
from oracles.odd_strings import odd_strings
from tokenizers import decoders, models, normalizers, pre_tokenizers
from unembed.errors import TokenizerError
from unembed.tokenizers.base import StreamDecoder, decode_after, with_start
from unembed.tokenizers.foreign import from_library_json
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.tokenizers.training import END, train_bpe, train_unigram

TEXT = "the cat sat on the mat. El niño comió año tras año. 깰 때 깨다 🙂🙂 " * 8
NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]))
SPACE = "\u2581"


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(TEXT, vocab_size=301)


@pytest.fixture(scope="module")
def unigram():
    return train_unigram(TEXT, vocab_size=330)


def piece_vocabulary() -> dict[str, int]:
    """Specials, all bytes, and a few pieces with merges: a Llama in small."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        *f"{SPACE}Helo,wrd",
        f"{SPACE}H",
        "el",
        "lo",
    ]
    return {token: i for i, token in enumerate(tokens)}


def llama_like() -> SubwordTokenizer:
    """Llama 2's pipeline: a dummy space put before the text by the normalizer, byte fallback, one space stripped."""
    made = tokenizers.Tokenizer(
        models.BPE(piece_vocabulary(), [(SPACE, "H"), ("e", "l"), ("l", "o")], byte_fallback=True, unk_token="<unk>")
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return from_library_json(json.loads(made.to_str()), {}, where="test")


def metaspace_unigram() -> SubwordTokenizer:
    """T5's kind: a unigram whose specials are pieces of the model, spaces put by Metaspace."""
    pieces = [("</s>", 0.0), ("<unk>", 0.0), (SPACE, -2.0), *((c, -5.0) for c in "abc</s>"), (f"{SPACE}ab", -3.0)]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.add_special_tokens(["</s>", "<unk>"])
    return from_library_json(json.loads(made.to_str()), {}, where="test")


def word_pieces() -> SubwordTokenizer:
    made = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "un": 1, "##bed": 2, "cat": 3}, unk_token="[UNK]"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece(cleanup=False)
    return from_library_json(json.loads(made.to_str()), {}, where="test")


@pytest.mark.parametrize("name", ["bpe", "unigram"])
@given(text=NO_SURROGATES)
def test_property_round_trip_spans_and_stream(request, name, text):
    tokenizer = request.getfixturevalue(name)
    encoding = tokenizer.encode(text)
    assert tokenizer.is_lossless
    assert tokenizer.decode(encoding.ids) == text
    assert tokenizer.encode_ids(text).tolist() == list(encoding.ids)
    stream = StreamDecoder(tokenizer)
    pieces = [*map(stream.feed, encoding.ids), stream.finish()]
    assert "".join(pieces) == text
    at = 0
    for token_id, (start, end) in zip(encoding.ids, encoding.spans, strict=True):
        own = tokenizer.token_bytes(token_id, None)
        assert own in text[start:end].encode(), "a span holds all of its token's bytes"
        assert start <= at <= end
        at = max(at, end)
    assert at == len(text)


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(0, 30))
def test_property_any_ids_stream_as_they_decode(bpe, ids, cut):
    stream = StreamDecoder(bpe)
    pieces = [*map(stream.feed, ids), stream.finish()]
    assert "".join(pieces) == bpe.decode(ids)
    if cut <= len(ids):
        prompt = StreamDecoder(bpe)
        heads = "".join(map(prompt.feed, ids[:cut]))
        assert heads + decode_after(bpe, ids[:cut], ids[cut:]) == bpe.decode(ids)


def test_replacement_marks_appear_only_for_invalid_bytes(bpe):
    ids = bpe.encode("🙂깰").ids
    stream = StreamDecoder(bpe)
    assert all("\ufffd" not in stream.feed(token_id) for token_id in ids)
    assert stream.finish() == ""
    half = bpe.encode("각").ids[:1]
    stream = StreamDecoder(bpe)
    assert (stream.feed(half[0]), stream.finish()) == ("", "\ufffd")
    assert bpe.decode(half) == "\ufffd"
    assert bpe.token_text(half[0]) == "<0xEA>"


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_specials_are_text_unless_asked(request, name):
    tokenizer = request.getfixturevalue(name)
    text = f"a{END} b"
    typed = tokenizer.encode(text)
    assert tokenizer.end_id not in typed.ids
    assert tokenizer.end_id not in tokenizer.encode_ids(text)
    assert tokenizer.decode(typed.ids) == text
    parsed = tokenizer.encode(text, parse_specials=True)
    assert parsed.ids.count(tokenizer.end_id) == 1
    assert parsed.spans[1] == (1, 1 + len(END))
    assert tokenizer.decode(parsed.ids) == "a b"
    assert tokenizer.decode(parsed.ids, show_specials=True) == text
    stream = StreamDecoder(tokenizer, show_specials=True)
    assert "".join([*map(stream.feed, parsed.ids), stream.finish()]) == text


@pytest.mark.parametrize("text", ["Hello", " Hello", "  Hello", "", "\n Hello", "깰", "<0xEA>", "</s>", "🙂é"])
def test_the_invisible_first_space_and_byte_fallback(text):
    tokenizer = llama_like()
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.specials.values())
    for cut in range(len(ids) + 1):
        head = StreamDecoder(tokenizer)
        whole = "".join(map(head.feed, ids[:cut])) + decode_after(tokenizer, ids[:cut], ids[cut:])
        assert whole == text, "joined stream = decode(all ids), for every split"


def test_byte_fallback_gives_the_bytes_and_typed_byte_names_stay_text():
    tokenizer = llama_like()
    assert [tokenizer.tokens[i] for i in tokenizer.encode("깰").ids] == [SPACE, "<0xEA>", "<0xB9>", "<0xB0>"]
    typed = tokenizer.encode("<0xEA>").ids
    assert tokenizer.tokens.index("<0xEA>") not in typed
    assert tokenizer.loses == f"the character {SPACE}, which comes back as a space"


def test_start_is_put_once():
    tokenizer = llama_like()
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == (1, 2, 0)
    ids = with_start(tokenizer, tokenizer.encode("Hello").ids)
    assert ids[0] == 1
    assert with_start(tokenizer, ids) == ids
    assert tokenizer.decode(ids) == "Hello"
    parsed = tokenizer.encode("<s>Hello</s>", parse_specials=True).ids
    assert tokenizer.decode(parsed, show_specials=True) == "<s>Hello</s>"


def test_a_continuation_gets_no_dummy_space():
    for tokenizer in (llama_like(), metaspace_unigram()):
        head, tail = tokenizer.encode_many(["ab", " ab"], [False, True])
        assert [*head, *tail] == list(tokenizer.encode("ab ab").ids)


def test_unigram_specials_inside_the_model_stay_text():
    tokenizer = metaspace_unigram()
    assert 0 not in tokenizer.encode("a</s>").ids
    assert tokenizer.encode("a</s>", parse_specials=True).ids[-1] == tokenizer.end_id == 0
    assert "whether a text begins with a space" in tokenizer.loses
    assert "characters outside its vocabulary" in tokenizer.loses


@pytest.mark.parametrize("make", [llama_like, metaspace_unigram, word_pieces])
def test_oracle_the_librarys_own_decoder_agrees(make):
    tokenizer = make()
    library = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.to_dict()["engine"]))
    for text in [*odd_strings(300, seed=3), "un unbed cat unbed", "ab ab", "Hello  world"]:
        ids = tokenizer.encode(text).ids
        if not any(name in text for name in tokenizer.specials):
            assert ids == tuple(library.encode(text, add_special_tokens=False).ids)
        whole = library.decode(list(ids), skip_special_tokens=False)
        if "\ufffd" not in whole:
            assert tokenizer.decode(ids) == whole.replace("<unk>", tokenizer.token_text(tokenizer.unknown_id))


def test_losses_of_word_pieces_are_declared():
    tokenizer = word_pieces()
    assert tokenizer.decode(tokenizer.encode("unbed  cat zebra").ids) == "unbed cat [UNK]"
    assert "white space" in tokenizer.loses
    assert "characters outside its vocabulary" in tokenizer.loses


def test_a_gap_in_the_vocabulary_stops_and_never_shortens_the_text():
    made = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    made.decoder = decoders.Fuse()
    tokenizer = from_library_json(json.loads(made.to_str()), {}, where="test")
    assert tokenizer.encode("ab").ids == (0, 1)
    for encode in (tokenizer.encode, tokenizer.encode_ids):
        with pytest.raises(TokenizerError, match=r"character 1 is '깰' \(U\+AE70\), which its vocabulary cannot write"):
            encode("a깰b")


def test_padded_rows_and_gaps(bpe):
    assert bpe.token_text(5000) == "<unused 5000>"
    for decode in (lambda i: bpe.decode([i]), StreamDecoder(bpe).feed):
        with pytest.raises(TokenizerError, match=r"bpe tokenizer: id 5000 is none of its 301 tokens"):
            decode(5000)


def test_marks_come_from_the_config_first_then_the_template():
    made = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<go>", "<stop>", "<s>", "</s>"])
    values = json.loads(made.to_str())
    config = {"bos_token": {"content": "<go>"}, "eos_token": "<stop>"}
    told = from_library_json(values, config, where="test")
    assert (told.start_id, told.end_id) == (1, 2)
    usual = from_library_json(values, {}, where="test")
    assert (usual.start_id, usual.end_id) == (3, 4)


def broken(bpe, **changes):
    return from_library_json(bpe.to_dict()["engine"] | changes, {}, where="x.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder": {"type": "CTC"}}, "x.json: tokenizer.json: decoder .*CTC.* is not understood"),
        ({"model": {"type": "BPE"}}, "`model` holds no vocabulary"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}, "dropout is 0.1"),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}},
            "token 'b' has id 0, but there is 'a' with id 0",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "c"]]}}, "library does not take it"),
        (
            {"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}},
            "2 tokens have ids 300 to 1099511627776; they count",
        ),
        (
            {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
            "2 tokens have ids -1 to 300; they count from 0",
        ),
        ({"added_tokens": [{"id": 3}]}, "not as the tokenizers library writes it"),
        ({"pre_tokenizer": {"pretokenizers": []}}, "not as the tokenizers library writes it"),
    ],
)
def test_message_for_a_tokenizer_json_that_is_not_understood(bpe, changes, message):
    with pytest.raises(TokenizerError, match=message):
        broken(bpe, **changes)


def test_message_for_lone_surrogates_and_wrong_marks(bpe):
    for encode in (bpe.encode, bpe.encode_ids, llama_like().encode):
        with pytest.raises(TokenizerError, match=r"character 1 is U\+D83D, half of a surrogate pair"):
            encode("a\ud83d")
    with pytest.raises(TokenizerError, match="its end token is said to be '<no>', which is not among its specials"):
        SubwordTokenizer(bpe.to_dict()["engine"], end="<no>")
