"""A tokenizer as the keys of a GGUF file, where the format can say exactly what it does; before it: gguf_vocabulary.py.

Byte-level BPE needs a pre-tokenizer with a name that llama.cpp knows, so the rule is looked up among those whose ids were
compared; a SentencePiece model is its pieces, scores and types. What is written is read again and must agree on texts.
"""

from typing import Any

import numpy as np

from unembed.errors import TokenizerError
from unembed.tokenizers import engine, proto
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.gguf_vocabulary import PRE_TOKENIZERS, PREFIX, read_vocabulary
from unembed.tokenizers.library import PROBES
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.subword import SubwordTokenizer

_GPT2_NAME = "gpt-2"
_SPACE = "\u2581"


def gguf_keys(tokenizer: Tokenizer, n_rows: int) -> dict[str, Any] | None:
    """The keys of a tokenizer for a table of `n_rows`, padded rows included; None where the format has no exact form."""
    if isinstance(tokenizer, PieceTokenizer):
        made = _pieces(tokenizer, n_rows)
    elif isinstance(tokenizer, SubwordTokenizer):
        made = _byte_level(tokenizer, n_rows) or _pieces_of_library(tokenizer, n_rows)
    else:
        return None
    return made if made is not None and _agrees(tokenizer, made) else None


def _pieces(tokenizer: PieceTokenizer, n_rows: int) -> dict[str, Any] | None:
    model = tokenizer.model
    if model.model_type != proto.BPE or model.has_charsmap:
        return None
    return _of_pieces(tokenizer, model, n_rows)


def _pieces_of_library(tokenizer: SubwordTokenizer, n_rows: int) -> dict[str, Any] | None:
    """SentencePiece's BPE as the tokenizers library has it: an order of merges, which the scores here take over.

    Exact where all ways to make a token stand together in that order, and none is left out: SentencePiece knows only how
    good the token is that is made.
    """
    values = tokenizer.to_dict()["engine"]
    model, steps = values["model"], engine.flatten(values.get("normalizer"), "normalizers")
    if model["type"] != "BPE" or not model.get("byte_fallback") or values.get("pre_tokenizer") is not None:
        return None
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefix = [{"type": "Prepend", "prepend": _SPACE}]
    if steps not in ([spaces], [*prefix, spaces]):
        return None
    if (rank := _ranks(model)) is None:
        return None
    special = set(tokenizer.specials.values())
    added = {token["id"] for token in values.get("added_tokens", ())}
    bytes_ = {f"<0x{byte:02X}>" for byte in range(256)}

    def kind(i: int, token: str) -> int:
        if token == model.get("unk_token"):
            return proto.UNKNOWN
        if i in special:
            return proto.CONTROL
        return proto.USER_DEFINED if i in added else proto.BYTE if token in bytes_ else proto.NORMAL

    last = len(rank)
    pieces = [(token, -float(rank.get(token, last + i)), kind(i, token)) for i, token in enumerate(tokenizer.tokens)]
    made = proto.PieceModel(
        pieces=pieces, model_type=proto.BPE, adds_dummy_prefix=len(steps) == 2, removes_extra_spaces=False
    )
    return _of_pieces(tokenizer, made, n_rows)


def _ranks(model: dict[str, Any]) -> dict[str, int] | None:
    """Which token is made first, second and so on; None where the merges say more than that."""
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    rank: dict[str, int] = {}
    previous = None
    for pair in pairs:
        if (token := "".join(pair)) != previous and token in rank:
            return None
        rank.setdefault(token, len(rank))
        previous = token
    named = set(pairs)
    for token in rank:
        for cut in range(1, len(token)):
            pair = (token[:cut], token[cut:])
            # a part that nothing makes is a single character, or never stands in a text
            if pair not in named and all(len(part) == 1 or part in rank for part in pair) and _are_in(pair, model):
                return None
    return rank


def _are_in(parts: tuple[str, str], model: dict[str, Any]) -> bool:
    return all(part in model["vocab"] for part in parts)


def _of_pieces(tokenizer: Tokenizer, model: proto.PieceModel, n_rows: int) -> dict[str, Any]:
    padding = [(f"[PAD{i}]", 0.0, proto.UNUSED) for i in range(len(model.pieces), n_rows)]
    pieces = [*model.pieces, *padding]
    return {
        f"{PREFIX}model": "llama",
        f"{PREFIX}tokens": [text for text, _, _ in pieces],
        f"{PREFIX}scores": np.array([score for _, score, _ in pieces], dtype=np.float32),
        f"{PREFIX}token_type": np.array([kind for _, _, kind in pieces], dtype=np.int32),
        f"{PREFIX}add_space_prefix": model.adds_dummy_prefix,
        f"{PREFIX}remove_extra_whitespaces": model.removes_extra_spaces,
        **_marks(tokenizer, next((i for i, (_, _, kind) in enumerate(pieces) if kind == proto.UNKNOWN), None)),
    }


def _byte_level(tokenizer: SubwordTokenizer, n_rows: int) -> dict[str, Any] | None:
    values = tokenizer.to_dict()["engine"]
    name = _pre_tokenizer_of(values)
    if name is None or values["model"]["type"] != "BPE":
        return None
    if tokenizer.unknown_id is not None and not engine.writes_all_bytes(values):
        return None  # llama.cpp leaves out a byte that the vocabulary lacks; nothing becomes unknown there
    special = set(tokenizer.specials.values())
    added = {token["id"] for token in values.get("added_tokens", ())}
    kinds = [
        proto.CONTROL if i in special else proto.USER_DEFINED if i in added else proto.NORMAL for i in range(n_rows)
    ]
    kinds[tokenizer.vocab_size :] = [proto.UNUSED] * (n_rows - tokenizer.vocab_size)
    tokens = [*tokenizer.tokens, *(f"[PAD{i}]" for i in range(tokenizer.vocab_size, n_rows))]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in values["model"]["merges"]]
    return {
        f"{PREFIX}model": "gpt2",
        f"{PREFIX}pre": name,
        f"{PREFIX}tokens": tokens,
        f"{PREFIX}token_type": np.array(kinds, dtype=np.int32),
        f"{PREFIX}merges": merges,
        **_marks(tokenizer, tokenizer.unknown_id),
    }


def _pre_tokenizer_of(values: dict[str, Any]) -> str | None:
    """The name of the rule that cuts a text before merging, or None for a rule without a name."""
    steps = engine.flatten(values.get("pre_tokenizer"), "pretokenizers")
    cuts = tuple(step["pattern"].get("Regex") for step in steps if step["type"] == "Split" and "pattern" in step)
    if any(step["type"] not in ("Split", "ByteLevel") or step.get("add_prefix_space") for step in steps):
        return None
    if steps and steps[-1].get("use_regex", True):
        return _GPT2_NAME if not cuts else None
    return next((name for name, rule in PRE_TOKENIZERS.items() if rule == cuts), None)


def _marks(tokenizer: Tokenizer, unknown_id: int | None) -> dict[str, Any]:
    marks = {"bos": tokenizer.start_id, "eos": tokenizer.end_id, "unknown": unknown_id}
    named = {f"{PREFIX}{role}_token_id": token_id for role, token_id in marks.items() if token_id is not None}
    return {**named, f"{PREFIX}add_bos_token": tokenizer.adds_start, f"{PREFIX}add_eos_token": False}


def _agrees(tokenizer: Tokenizer, keys: dict[str, Any]) -> bool:
    try:
        back = read_vocabulary(keys, where="gguf").tokenizer
    except TokenizerError:
        return False
    return all(
        back.encode(text).ids == (ids := tokenizer.encode(text).ids) and back.decode(ids) == tokenizer.decode(ids)
        for text in PROBES
    )
