"""Our tokenizers as the `tokenizers` library's own tokenizer.json, for programs that read nothing else.

A description is only given where it is equal: who writes it out compares the ids of some texts first, since two engines
that agree on most texts may differ on one. The next file to read is files.py, our own format.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from unembed.errors import TokenizerError
from unembed.tokenizers import proto
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.subword import SubwordTokenizer

_SPACE = "\u2581"
# Scripts, spaces, line ends and specials written as text: two engines that agree here have the same rules.
PROBES = (
    "The capital of France is Paris.",
    "El ñandú comió piñas; ¿qué más?",
    "나는 학교에 갑니다. 깰!",
    "  two  spaces\tand a tab\r\nand a line\n\n",
    "def f(x):\n    return x ** 2  # 3.14159",
    "👩‍👩‍👧 e\u0301 <|endoftext|> <s> </s> <0xEA> ▁",
    "",
    " ",
)


def to_library(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The values of a tokenizer.json that gives the same ids and texts, or None where the library cannot say it."""
    made = _described(tokenizer)
    if made is None or not _agrees(tokenizer, made, PROBES):
        return None
    return made | {"post_processor": _start_template(tokenizer)}


def config_of(tokenizer: Tokenizer, context_length: int) -> dict[str, Any]:
    """The tokenizer_config.json beside it: which tokens open and close a text, and how long one may be."""
    names = {token_id: name for name, token_id in tokenizer.specials.items()}
    marks = {"bos_token": tokenizer.start_id, "eos_token": tokenizer.end_id, "unk_token": unknown_of(tokenizer)}
    named = {role: names.get(i, tokenizer.tokens[i]) for role, i in marks.items() if i is not None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
        **named,
    }


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """The token that files call unknown: also where a text never becomes it, since every byte has a token."""
    if tokenizer.unknown_id is None and isinstance(tokenizer, PieceTokenizer):
        return next((i for i, (_, _, kind) in enumerate(tokenizer.model.pieces) if kind == proto.UNKNOWN), None)
    return tokenizer.unknown_id


def _described(tokenizer: Tokenizer) -> dict[str, Any] | None:
    if isinstance(tokenizer, SubwordTokenizer):
        values: dict[str, Any] = tokenizer.to_dict()["engine"]
        return values
    if isinstance(tokenizer, CharacterTokenizer):
        return _characters(tokenizer)
    if isinstance(tokenizer, PieceTokenizer):
        return _pieces(tokenizer)
    return None


def _agrees(tokenizer: Tokenizer, values: Mapping[str, Any], texts: Sequence[str]) -> bool:
    engine = tokenizers.Tokenizer.from_str(json.dumps(values))
    engine.encode_special_tokens = True
    for text in texts:
        try:
            ids = list(tokenizer.encode(text).ids)
        except TokenizerError:
            continue  # an alphabet that does not have these letters has no ids to compare
        if engine.encode(text, add_special_tokens=False).ids != ids:
            return False
        if engine.decode(ids, skip_special_tokens=False) != tokenizer.decode(ids, show_specials=True):
            return False
    return True


def _characters(tokenizer: CharacterTokenizer) -> dict[str, Any]:
    """A word-level model whose words are single characters."""
    return {
        **_frame(tokenizer),
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokenizer.tokens)},
            "unk_token": _name_of(tokenizer, tokenizer.unknown_id) or "",
        },
    }


def _pieces(tokenizer: PieceTokenizer) -> dict[str, Any] | None:
    """SentencePiece's two models: BPE, whose merges follow from the scores, and unigram."""
    model = tokenizer.model
    if model.has_charsmap or model.removes_extra_spaces:
        return None
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] if model.adds_dummy_prefix else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    undo: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if model.adds_dummy_prefix:
        undo.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    has_bytes = any(kind == proto.BYTE for _, _, kind in model.pieces)
    if model.model_type == proto.BPE:
        engine: dict[str, Any] = {
            "type": "BPE",
            "vocab": {token: i for i, (token, _, _) in enumerate(model.pieces)},
            "merges": _merges(model),
            "unk_token": _name_of(tokenizer, unknown_of(tokenizer)),
            "fuse_unk": True,
            "byte_fallback": has_bytes,
        }
    elif model.model_type == proto.UNIGRAM:
        engine = {
            "type": "Unigram",
            "vocab": [[token, score] for token, score, _ in model.pieces],
            "unk_id": tokenizer.unknown_id,
            "byte_fallback": has_bytes,
        }
    else:
        return None
    return {
        **_frame(tokenizer),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": undo},
        "model": engine,
    }


def _merges(model: proto.PieceModel) -> list[list[str]]:
    """Every way in which two pieces make a third, the best-scored results first: the order in which SentencePiece merges."""
    place = {token: i for i, (token, _, kind) in enumerate(model.pieces) if kind == proto.NORMAL}
    score = {token: value for token, value, kind in model.pieces if kind == proto.NORMAL}
    found = [
        (-score[token], place[token], place[token[:cut]], [token[:cut], token[cut:]])
        for token in place
        for cut in range(1, len(token))
        if token[:cut] in place and token[cut:] in place
    ]
    return [pair for *_, pair in sorted(found)]


def _start_template(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The template that puts the start token before a text, where the model was taught with one."""
    if not tokenizer.adds_start or tokenizer.start_id is None:
        return None
    name = next(name for name, i in tokenizer.specials.items() if i == tokenizer.start_id)
    start, text = {"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"SpecialToken": {"id": name, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": [start, text],
        "pair": [start, text, *second],
        "special_tokens": {name: {"id": name, "ids": [tokenizer.start_id], "tokens": [name]}},
    }


def _frame(tokenizer: Tokenizer) -> dict[str, Any]:
    plain = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    by_id = sorted(tokenizer.specials.items(), key=lambda item: item[1])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name} | plain for name, i in by_id],
        "post_processor": None,
    }


def _name_of(tokenizer: Tokenizer, token_id: int | None) -> str | None:
    return None if token_id is None else tokenizer.tokens[token_id]
