"""Tokenizer files of other programs: which names are looked for, and how each becomes one of our tokenizers.

Every reader is bounded and understands its file whole, or refuses it: nothing is guessed. Before it: files.py, which
asks. Next: ../corpora/text.py, where texts to encode come from.
"""

import json
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from unembed.errors import TokenizerError
from unembed.tokenizers import engine, proto
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.pieces import PieceTokenizer
from unembed.tokenizers.subword import SubwordTokenizer
from unembed.visible import quoted

# A vocabulary and the merges that belong to it: the names of transformers, and GPT-2's own.
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
VOCABULARY_NAMES = tuple(name for name, _ in _PAIRS)
PAIRED_NAMES = tuple(name for pair in _PAIRS for name in pair)
# Four million tokens of sixteen bytes: what is larger is something else, and would fill the memory.
_LARGEST_BYTES = 1 << 26
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}


def find(folder: Path, vocab_size: int | None) -> Path | None:
    """Gives the tokenizer's file in a folder, or None if there is none."""
    for name in _names(vocab_size):
        if (folder / name).is_file():
            return folder / name
    for vocabulary, merges in _PAIRS:
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            return folder / vocabulary
    return None


def why_none(folder: Path, vocab_size: int | None) -> TokenizerError:
    """The complaint that `find` found nothing, with what it looked for."""
    names = _names(vocab_size)
    return TokenizerError(
        f"{folder}: there is no tokenizer in this folder. Looked for {', '.join(names)}, "
        f"{', '.join(f'{a} with {b}' for a, b in _PAIRS)}; name the file itself if it is called otherwise"
    )


def load(path: Path) -> Tokenizer:
    """Reads a SentencePiece model, a llama2.c tokenizer, or a vocabulary with its merges beside it.

    Raises: TokenizerError if the file is none of them, or broken.
    """
    for vocabulary, merges in _PAIRS:
        if path.name in (vocabulary, merges):
            return _from_pair(path.parent / vocabulary, path.parent / merges)
    if path.suffix in (".model", ".bin") and (size := path.stat().st_size) > _LARGEST_BYTES:
        raise TokenizerError(
            f"{path}: has {size:,} bytes, and no tokenizer has over {_LARGEST_BYTES:,}; is it a model's file?"
        )
    if path.suffix == ".model":
        # Programs that read such a file put its start token before a text, unless they are told otherwise.
        adds_start = read_config(path.parent).get("add_bos_token") is not False
        return PieceTokenizer(path.read_bytes(), adds_start=adds_start, where=str(path))
    if path.suffix == ".bin":
        return from_llama2c(path.read_bytes(), where=str(path))
    raise TokenizerError(
        f"{path}: not a tokenizer's file by its name. Known: tokenizer.json, *.model (SentencePiece), tok512.bin and the "
        f"like (llama2.c), {', '.join(f'{a} with {b}' for a, b in _PAIRS)}"
    )


def from_library_json(values: dict[str, Any], config: Mapping[str, Any], *, where: str) -> Tokenizer:
    """Makes a tokenizer of a tokenizer.json of the `tokenizers` library, and of the tokenizer_config.json beside it.

    Raises: TokenizerError if it lacks a part, or has one that is not understood.
    """
    model = values.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise TokenizerError(f"{where}: `model` holds no vocabulary; expected the tokenizers library's own format")
    if "type" not in model:
        # Files before version 0.10 of the library leave it out; only BPE has merges.
        values = values | {"model": model | {"type": "BPE" if "merges" in model else "WordLevel"}}
    try:
        engine.check(values)
        values = engine.with_config(values, config)
        (start, end), adds_start = engine.marks(values, config), engine.adds_start(values, config)
        return SubwordTokenizer.from_values(values, start=start, end=end, adds_start=adds_start)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise TokenizerError(f"{where}: not as the tokenizers library writes it: {error!r}"[:400]) from None
    except TokenizerError as error:
        raise TokenizerError(f"{where}: {error}") from None


def from_llama2c(data: bytes, *, where: str) -> PieceTokenizer:
    """Makes a tokenizer of llama2.c's tok512.bin: int32 longest, then per token float32 score, int32 length, bytes.

    It is a SentencePiece BPE model with spaces written out: ids 0 to 2 are unknown, start and end, the next 256 the bytes.
    Source: llama2.c, tokenizer.py `export` and run.c `build_tokenizer`. Raises: TokenizerError if it is cut short.
    """
    pieces: list[tuple[str, float, int]] = []
    at = 4
    try:
        longest = struct.unpack_from("<i", data)[0]
        while at < len(data):
            score, size = struct.unpack_from("<fi", data, at)
            at += 8
            if not 0 <= size <= longest or at + size > len(data):
                raise ValueError(f"token {len(pieces)} is said to have {size} bytes, the longest {longest}")
            pieces.append(_llama2c_piece(len(pieces), data[at : at + size].decode(), score))
            at += size
        if len(pieces) < 259:
            raise ValueError(f"{len(pieces)} tokens, but the specials and the bytes alone are 259")
    except (struct.error, ValueError) as error:
        raise TokenizerError(f"{where}: not a llama2.c tokenizer ({error})") from None
    model = proto.PieceModel(pieces=pieces, model_type=proto.BPE, removes_extra_spaces=False)
    return PieceTokenizer.from_pieces(model, where=where)


def from_merges(
    id_of: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    specials: Collection[str] | None = None,
    pre_tokenizer: Mapping[str, Any] = _BYTE_LEVEL,
    config: Mapping[str, Any] | None = None,
    where: str,
) -> Tokenizer:
    """Makes a byte-level BPE tokenizer of a vocabulary and its merges, as GPT-2's files and GGUF hold them.

    Specials are the tokens that no merge makes and that are no byte, unless they are named. `pre_tokenizer` is GPT-2's
    unless another is given, in the tokenizers library's own description. Raises: TokenizerError as SubwordTokenizer does.
    """
    if specials is None:
        specials = set(id_of) - {a + b for a, b in merges} - set(engine.byte_of_character())
    plain = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    values = {
        "version": "1.0",
        "added_tokens": [
            {"id": id_of[name], "content": name} | plain for name in sorted(specials, key=id_of.__getitem__)
        ],
        "normalizer": None,
        "pre_tokenizer": dict(pre_tokenizer),
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": dict(id_of), "merges": [list(pair) for pair in merges]},
    }
    return from_library_json(values, {} if config is None else config, where=where)


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the folder's tokenizer_config.json, {} if it has none: it names the tokens that open and close a text."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises: TokenizerError if the file holds something else, a key twice, or no character."""
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: byte {error.start} is not UTF-8, so this is no {path.name}") from None
    except RecursionError:
        raise TokenizerError(f"{path}: not readable as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise TokenizerError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(values, dict):
        raise TokenizerError(f"{path}: holds a {type(values).__name__}; a tokenizer's file holds one object")
    if _SURROGATE_ESCAPE.search(text) and (half := _lone_surrogate(values)):
        raise TokenizerError(
            f"{path}: holds U+{ord(half):04X}, half of a surrogate pair, which is no character and has no UTF-8 form. "
            "Fetch or write the file again"
        )
    return values


def _names(vocab_size: int | None) -> list[str]:
    return ["tokenizer.json", "tokenizer.model", *([f"tok{vocab_size}.bin"] if vocab_size is not None else [])]


def _lone_surrogate(values: dict[str, Any]) -> str | None:
    """The first half of a surrogate pair in a JSON value's texts. JSON can spell one (`\\ud800`), a text cannot hold it."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return str(error.object[error.start])
    return None


def _from_pair(vocabulary: Path, merges: Path) -> Tokenizer:
    for path in (vocabulary, merges):
        if not path.is_file():
            raise TokenizerError(f"{path}: there is no such file; {vocabulary.name} and {merges.name} belong together")
    id_of = read_json(vocabulary)
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{merges}: byte {error.start} is not UTF-8, so these are no merges") from None
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if broken := [pair for pair in pairs if len(pair) != 2]:
        raise TokenizerError(
            f"{merges}: {quoted(' '.join(broken[0]))} is no merge; a line holds two tokens with a space between"
        )
    tokens = [(a, b) for a, b in pairs]
    return from_merges(id_of, tokens, config=read_config(vocabulary.parent), where=str(vocabulary))


def _llama2c_piece(token_id: int, text: str, score: float) -> tuple[str, float, int]:
    if token_id < 3:
        return ("<unk>", "<s>", "</s>")[token_id], score, proto.UNKNOWN if token_id == 0 else proto.CONTROL
    if token_id < 259:
        if text != f"<0x{token_id - 3:02X}>":
            raise ValueError(f"token {token_id} is {quoted(text)}, expected the byte <0x{token_id - 3:02X}>")
        return text, score, proto.BYTE
    return text.replace(" ", "\u2581"), score, proto.NORMAL


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {quoted(key)} appears twice in one object")
        made[key] = value
    return made
