"""The tokenizer inside a .gguf file, from the file's metadata: byte-level BPE ("gpt2") or SentencePiece ("llama").

A GGUF file holds tokens, merges or scores, and the *name* of the rule that cuts a text before merging. Only rules whose
ids have been compared with reference tokenisations are in PRE_TOKENIZERS; any other name is refused, because a near miss
would go unnoticed: it gives nearly the same ids. Before it: subword.py and pieces.py, which do the work.

Source: rules and defaults of llama.cpp, src/llama-vocab.cpp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from unembed.errors import TokenizerError
from unembed.tokenizers import base, proto
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.subword import SubwordTokenizer

_T = TypeVar("_T")
PREFIX = "tokenizer.ggml."

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Letters that have an upper and a lower case, in the ranges that the DeepSeek tokenizer lists.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
# Chinese characters, and a range from U+0800 that takes in kana, and Hangul.
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

# What cuts a text before merging: each expression cuts the parts that the ones before it left. Of names with one rule the
# first is written: "smollm" keeps the spaces before marks where llama.cpp decodes a whole text, the others do not.
PRE_TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "mpt": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "refact": (r"\p{N}", _GPT2),
    "command-r": (r"\p{N}", _GPT2),
    "llama-bpe": (rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",),
    "qwen2": (rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}|{_REST}",),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-llm": (
        "[\r\n]",
        rf"\s?[{_CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        _EAST_ASIAN,
        r"\p{N}+",
    ),
    "deepseek-coder": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}"),
}
# Whole words of the vocabulary are taken as they are, without asking the merges for a way to them.
_IGNORES_MERGES = {"llama-bpe"}
# Where the file does not say whether a start token goes before a text.
_ADDS_START = {"llama-bpe"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer of a file, and whether the model expects its start and end tokens around a text."""

    tokenizer: Tokenizer
    adds_start: bool
    adds_end: bool


def read_vocabulary(metadata: Mapping[str, Any], *, where: str) -> Vocabulary:
    """Makes the tokenizer that a file's metadata describes.

    Control tokens, and those that the file names as start, end and so on, are marks: typed in a text they stay its letters.
    Tokens that the file calls user-defined are found in a text before anything else. No Unicode normalisation is done: the
    format does not record one.

    Raises: TokenizerError if it holds none, names a kind or pre-tokenizer that is not known, or contradicts itself.
    """
    file = _Metadata(metadata, where)
    kind = file.text("model")
    if kind == "gpt2":
        return _byte_level(file)
    if kind == "llama":
        return _sentence_pieces(file)
    raise TokenizerError(
        f"{where}: its tokenizer is of the kind {kind[:40]!r}; gpt2 (byte-level BPE) and llama (SentencePiece) are read. "
        "Put the model's tokenizer.json or tokenizer.model beside the file, and name it"
    )


class _Metadata:
    """The tokenizer's keys, each checked for its type when it is asked for."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, where
        self.tokens = self._tokens()
        self.types = self._numbers("token_type", proto.NORMAL)
        self.unknown_id = self.token_id("unknown")

    def fail(self, reason: str) -> TokenizerError:
        return TokenizerError(f"{self.where}: {reason}")

    def text(self, key: str) -> str:
        if PREFIX + key not in self._values:
            raise self.fail(f"there is no {PREFIX}{key}, so the file does not say how it cuts texts. Convert it again")
        return self._checked(key, str)

    def flag(self, key: str, otherwise: bool) -> bool:
        return self._checked(key, bool) if PREFIX + key in self._values else otherwise

    def texts(self, key: str) -> list[str]:
        found: list[str] = self._checked(key, list)
        if not all(isinstance(text, str) for text in found):
            raise self.fail(f"{PREFIX}{key} holds more than texts; expected a list of texts")
        return found

    def token_id(self, role: str) -> int | None:
        """The id of the token with a role (bos, eos, unknown, padding), None where the file names none."""
        key = f"{role}_token_id"
        if PREFIX + key not in self._values:
            return None
        token_id = self._checked(key, int)
        if not 0 <= token_id < len(self.tokens):
            raise self.fail(f"{PREFIX}{key} is {token_id}, which is none of its {len(self.tokens)} tokens")
        return token_id

    def marks(self) -> set[int]:
        """Tokens that stand between texts: of the type control, or named by a role other than unknown."""
        roles = (
            "bos",
            "eos",
            "eot",
            "eom",
            "padding",
            "seperator",
            "cls",
            "mask",
        )  # "seperator" is the format's own word
        named = {self.token_id(role) for role in roles} - {None, self.unknown_id}
        return {i for i, kind in enumerate(self.types) if kind == proto.CONTROL} | {i for i in named if i is not None}

    def scores(self) -> list[float]:
        if PREFIX + "scores" not in self._values:
            raise self.fail(f"there is no {PREFIX}scores, without which its pieces cannot be chosen. Convert it again")
        return [float(score) for score in self._numbers("scores", 0)]

    def _tokens(self) -> tuple[str, ...]:
        if PREFIX + "tokens" not in self._values:
            raise self.fail(f"it holds no tokenizer ({PREFIX}tokens). Name one with --tokenizer")
        tokens = [token or base.placeholder(i) for i, token in enumerate(self.texts("tokens"))]
        base.check_unique(self.where, tokens)
        return tuple(tokens)

    def _numbers(self, key: str, otherwise: int) -> list[Any]:
        if PREFIX + key not in self._values:
            return [otherwise] * len(self.tokens)
        given = self._values[PREFIX + key]
        numbers = given.tolist() if hasattr(given, "tolist") else given
        if not isinstance(numbers, list) or not all(isinstance(number, int | float) for number in numbers):
            raise self.fail(f"{PREFIX}{key} is no list of numbers")
        if len(numbers) != len(self.tokens):
            raise self.fail(f"{PREFIX}{key} has {len(numbers)} entries for {len(self.tokens)} tokens")
        return numbers

    def _checked(self, key: str, kind: type[_T]) -> _T:
        value = self._values.get(PREFIX + key)
        if type(value) is not kind:
            raise self.fail(f"{PREFIX}{key} is a {type(value).__name__}, expected a {kind.__name__}")
        return value


def _byte_level(file: _Metadata) -> Vocabulary:
    name = file.text("pre")
    if name not in PRE_TOKENIZERS:
        raise file.fail(
            f"its pre-tokenizer is {name[:40]!r}, which is not known here; known are {', '.join(PRE_TOKENIZERS)}. Another one "
            "would give nearly the right ids: put the model's tokenizer.json beside the file, and name it"
        )
    marks = file.marks()
    added = [
        {"id": i, "content": file.tokens[i], "special": i in marks}
        | {"normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
        for i, kind in enumerate(file.types)
        if i in marks or kind == proto.USER_DEFINED
    ]
    steps = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in PRE_TOKENIZERS[name]
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    values = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(file.tokens)},
            "merges": [_merge(file, text) for text in file.texts("merges")],
            "ignore_merges": name in _IGNORES_MERGES,
        },
    }
    start, end = (None if (i := file.token_id(role)) is None else file.tokens[i] for role in ("bos", "eos"))
    try:
        tokenizer = SubwordTokenizer.from_values(
            values, start=start, end=end, adds_start=file.flag("add_bos_token", name in _ADDS_START)
        )
    except TokenizerError as error:
        raise file.fail(str(error)) from None
    return _with_flags(file, tokenizer)


def _merge(file: _Metadata, text: str) -> Sequence[str]:
    at = text.find(" ", 1)
    if at < 0:
        raise file.fail(f"{PREFIX}merges holds {text[:40]!r}; a merge is two tokens with a space between")
    return text[:at], text[at + 1 :]


def _sentence_pieces(file: _Metadata) -> Vocabulary:
    marks = file.marks()

    def kind(i: int) -> int:
        if i == file.unknown_id:
            return proto.UNKNOWN
        if i in marks:
            return proto.CONTROL
        # the library knows one unknown token; padded rows are of this type as well
        return proto.UNUSED if file.types[i] == proto.UNKNOWN else int(file.types[i])

    pieces = [(token, score, kind(i)) for i, (token, score) in enumerate(zip(file.tokens, file.scores(), strict=True))]
    start, end = file.token_id("bos"), file.token_id("eos")
    model = proto.PieceModel(
        pieces=pieces,
        model_type=proto.BPE,
        start_id=-1 if start is None else start,
        end_id=-1 if end is None else end,
        adds_dummy_prefix=file.flag("add_space_prefix", True),
        removes_extra_spaces=file.flag("remove_extra_whitespaces", False),
    )
    data = proto.write_model(model)
    return _with_flags(file, PieceTokenizer(data, adds_start=file.flag("add_bos_token", True), where=file.where))


def _with_flags(file: _Metadata, tokenizer: Tokenizer) -> Vocabulary:
    adds_end = file.flag("add_eos_token", False) and tokenizer.end_id is not None
    return Vocabulary(tokenizer, tokenizer.adds_start, adds_end)
