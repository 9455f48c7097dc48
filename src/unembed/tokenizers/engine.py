"""What a tokenizer.json says about itself: how its tokens become text again, what it loses, where texts begin and end.

The `tokenizers` library does the encoding. Decoding is done here, token by token, because a stream must equal the whole;
so the decoder's description is read into a Rule, and one that is not understood is refused rather than guessed. Before
it: subword.py, which uses all of this.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from unembed.errors import TokenizerError
from unembed.visible import quoted

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_METASPACE = "\u2581"
_GAP_LIMIT = 65_536
_NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
# Names by which well-known files call the tokens that open and close a text; used where the file itself does not say.
_START_NAMES = ("<|begin_of_text|>", "<s>", "<bos>", "[CLS]")
_END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<end>", "[SEP]")


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool


class _Model(msgspec.Struct):
    type: str
    vocab: dict[str, int] | list[tuple[str, float]]
    unk_id: int | None = None
    unk_token: str | None = None
    byte_fallback: bool | None = None
    dropout: float | None = None


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None


def check(values: Mapping[str, Any]) -> None:
    """Holds the parts of a tokenizer.json that are read here against the types they have. Raises: TokenizerError."""
    try:
        msgspec.convert(dict(values), _File)
    except msgspec.ValidationError as error:
        raise TokenizerError(f"tokenizer.json: not as the tokenizers library writes it ({str(error)[:400]})") from None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How the text of a token is made.

    Either its characters stand for bytes (`is_byte_level`), or texts are replaced in it in turn; `has_byte_tokens` reads
    `<0xEA>` as one byte. `drops_first_space` undoes a space that encoding put before the text; `joins_by_space` separates
    tokens unless they begin with `continuing_prefix`.
    """

    is_byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    has_byte_tokens: bool = False
    drops_first_space: bool = False
    joins_by_space: bool = False
    continuing_prefix: str = ""

    def bytes_of(self, token: str, *, is_literal: bool) -> bytes:
        """Gives a token's own bytes, without what its place in the text adds or takes; an added token is literal."""
        if is_literal:
            return token.encode()
        if self.is_byte_level:
            alphabet = byte_of_character()
            return bytes(alphabet[c] for c in token) if all(c in alphabet for c in token) else token.encode()
        if self.has_byte_tokens and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte.group(1), 16)])
        for old, new in self.replacements:
            token = token.replace(old, new)
        return token.removeprefix(self.continuing_prefix).encode()


@cache
def byte_of_character() -> dict[str, int]:
    """Gives the byte that each character of a byte-level vocabulary stands for: the printable ones for themselves.

    Source: `bytes_to_unicode` in GPT-2's encoder.py.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def decoding_rule(decoder: Mapping[str, Any] | None) -> Rule:
    """Reads the `decoder` part of a tokenizer.json. Raises: TokenizerError naming the first step not understood."""
    if decoder is None:
        return Rule(joins_by_space=True)
    steps = flatten(decoder, "decoders")
    settings: dict[str, Any] = {"replacements": ()}
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                settings["is_byte_level"] = True
            case {"type": "ByteFallback"}:
                settings["has_byte_tokens"] = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                settings["replacements"] = (*settings["replacements"], (old, new))
            case {"type": "Strip", "content": " ", "start": 0 | 1 as start, "stop": 0}:
                settings["drops_first_space"] = start == 1
            case {"type": "Metaspace", "replacement": str(mark)}:
                settings["replacements"] = (*settings["replacements"], (mark, " "))
                settings["drops_first_space"] = _prepends(step)
            case {"type": "WordPiece", "prefix": str(prefix)}:
                settings |= {"joins_by_space": True, "continuing_prefix": prefix}
            case _:
                raise TokenizerError(
                    f"tokenizer.json: decoder {step} is not understood, so its ids could not be turned back into text. "
                    "Known: ByteLevel, ByteFallback, Fuse, Replace, Strip (one space at the start), Metaspace, WordPiece"
                )
    return Rule(**settings)


def losses(values: Mapping[str, Any]) -> list[str]:
    """Says what decode(encode(text)) may lack under this tokenizer.json, in words; empty if it loses nothing."""
    said: list[str] = []
    strips = decoding_rule(values.get("decoder")).drops_first_space
    for step in flatten(values.get("normalizer"), "normalizers"):
        match step:
            case {"type": "Lowercase"}:
                said.append("upper case")
            case {"type": "StripAccents"}:
                said.append("accents")
            case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
                said.append(f"character forms that {form} replaces by their equals")
            case {"type": "Prepend"} if strips:
                pass
            case {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}:
                said.append(f"the character {_METASPACE}, which comes back as a space")
            case {"type": "ByteLevel"}:
                pass
            case _:
                said.append(f"what the normalizer {step.get('type')} changes")
    for step in flatten(values.get("pre_tokenizer"), "pretokenizers"):
        match step:
            case {"type": "ByteLevel"}:
                if step.get("add_prefix_space"):
                    said.append("whether a text begins with a space")
            case {"type": "Metaspace"}:
                said.append(f"the character {_METASPACE}, which comes back as a space")
                if _prepends(step):
                    said.append("whether a text begins with a space")
            case {"type": "Split", "behavior": behavior} if behavior != "Removed":
                pass
            case {"type": "Punctuation", "behavior": behavior} if behavior != "Removed":
                pass
            case {"type": "Digits" | "UnicodeScripts"}:
                pass
            case _:
                said.append(f"what the pre-tokenizer {step.get('type')} removes, such as white space")
    if not writes_all_bytes(values):
        said.append("characters outside its vocabulary")
    for token in values.get("added_tokens", ()):
        if not token["special"] and (token["lstrip"] or token["rstrip"]):
            said.append(f"white space beside {token['content']}")
    return list(dict.fromkeys(said))


def ids_of(values: Mapping[str, Any]) -> dict[str, int]:
    """Gives the id of each token, added ones included. Raises: TokenizerError if two tokens share an id, or the reverse."""
    vocabulary = values["model"]["vocab"]
    if isinstance(vocabulary, list):
        pairs = [(entry[0], i) for i, entry in enumerate(vocabulary)]
    else:
        pairs = [(str(token), int(token_id)) for token, token_id in vocabulary.items()]
    id_of: dict[str, int] = {}
    token_of: dict[int, str] = {}
    for token, token_id in [*pairs, *((t["content"], t["id"]) for t in values.get("added_tokens", ()))]:
        if id_of.setdefault(token, token_id) != token_id or token_of.setdefault(token_id, token) != token:
            raise TokenizerError(
                f"tokenizer.json: token {quoted(token)} has id {token_id}, but there is "
                f"{quoted(token_of.get(token_id, token))} with id "
                f"{id_of[token] if token_of.get(token_id, token) == token else token_id}; a token has one id, an id one token"
            )
    # a tokenizer has a text for every id up to the last one: a few words with huge ids would fill the memory
    if (last := max(id_of.values(), default=0)) > 2 * len(id_of) + _GAP_LIMIT or min(id_of.values(), default=0) < 0:
        raise TokenizerError(
            f"tokenizer.json: {len(id_of)} tokens have ids {min(id_of.values())} to {last}; they count from 0 with few gaps"
        )
    return id_of


def writes_all_bytes(values: Mapping[str, Any]) -> bool:
    """Says whether the vocabulary holds every byte that occurs in UTF-8, so that every text can be written in it."""
    model = values["model"]
    vocabulary = model["vocab"]
    tokens = {entry[0] for entry in vocabulary} if isinstance(vocabulary, list) else set(vocabulary)
    steps = [
        *flatten(values.get("pre_tokenizer"), "pretokenizers"),
        *flatten(values.get("normalizer"), "normalizers"),
    ]
    if any(step["type"] == "ByteLevel" for step in steps):
        return tokens >= {c for c, byte in byte_of_character().items() if byte not in _NEVER_IN_UTF8}
    return bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in tokens for byte in range(256))


def without_start(values: dict[str, Any]) -> dict[str, Any]:
    """Gives the same tokenizer.json without what it does at the start of a text: for the later stretches of a long one."""

    def bare(step: dict[str, Any]) -> dict[str, Any]:
        if step["type"] == "Metaspace":
            # An older file says `add_prefix_space` instead; with the scheme given it must agree or be absent.
            return {key: value for key, value in step.items() if key != "add_prefix_space"} | {
                "prepend_scheme": "never"
            }
        return step | {"add_prefix_space": False} if "add_prefix_space" in step else step

    normalizers = flatten(values.get("normalizer"), "normalizers")
    kept = [step for step in normalizers if step["type"] != "Prepend"]
    pre = [bare(step) for step in flatten(values.get("pre_tokenizer"), "pretokenizers")]
    return values | {
        "normalizer": {"type": "Sequence", "normalizers": kept} if kept else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre} if pre else None,
    }


def marks(values: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Finds the tokens that open and close a text: as tokenizer_config.json says, the template, or a well-known name."""
    names = {token["content"] for token in values.get("added_tokens", ()) if token["special"]}
    said = [name_in(config.get(key)) for key in ("bos_token", "eos_token")]
    template = _template_marks(values.get("post_processor"))
    usual = [next((name for name in known if name in names), None) for known in (_START_NAMES, _END_NAMES)]
    found = [a if a in names else b if b in names else c for a, b, c in zip(said, template, usual, strict=True)]
    return found[0], found[1]


def with_config(values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json with what tokenizer_config.json says otherwise: the space before the first word of byte-level BPE."""
    says, pre = config.get("add_prefix_space"), values.get("pre_tokenizer")
    if type(says) is not bool or not isinstance(pre, dict) or pre.get("type") != "ByteLevel":
        return dict(values)
    return dict(values) | {"pre_tokenizer": pre | {"add_prefix_space": says}}


def adds_start(values: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Says whether a text of this tokenizer begins with its start token: as tokenizer_config.json says, else the template."""
    said = config.get("add_bos_token")
    return said if isinstance(said, bool) else _template_marks(values.get("post_processor"))[0] is not None


def flatten(part: Any, key: str) -> list[dict[str, Any]]:
    """Gives the steps of a normalizer, pre-tokenizer or decoder, sequences opened, in order.

    Raises: TokenizerError for what is no step.
    """
    match part:
        case None:
            return []
        case {"type": "Sequence"} if isinstance(part.get(key), list):
            return [step for inner in part[key] for step in flatten(inner, key)]
        case {"type": str(kind)} if kind != "Sequence":
            return [dict(part)]
    raise TokenizerError(
        f"tokenizer.json: not as the tokenizers library writes it: {str(part)[:60]} is no step with a type, nor {key}"
    )


def _prepends(step: Mapping[str, Any]) -> bool:
    return bool(step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True))


def name_in(entry: Any) -> str | None:
    """A special's name in tokenizer_config.json: plain, or inside the description of an added token."""
    name = entry.get("content") if isinstance(entry, dict) else entry
    return name if isinstance(name, str) else None


def _template_marks(post: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    for step in flatten(post, "processors"):
        match step:
            case {"type": "TemplateProcessing", "single": [_, *_] as parts}:
                return _special_in(parts[0]), _special_in(parts[-1])
            case {"type": "BertProcessing" | "RobertaProcessing", "cls": [str(opens), *_], "sep": [str(closes), *_]}:
                return opens, closes
    return None, None


def _special_in(part: Any) -> str | None:
    match part:
        case {"SpecialToken": {"id": str(name)}}:
            return name
    return None
