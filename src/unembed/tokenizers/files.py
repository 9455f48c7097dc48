"""Tokenizers on disk: the `tokenizer.json` of a run folder, and the one list of tokenizers that can be read from it.

To add a tokenizer, add one line to KINDS. A file made by another program is passed to foreign.py, the next to read.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from unembed.errors import TokenizerError, suggest
from unembed.places import check_path, near_paths, shown
from unembed.tokenizers import foreign
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharactersFile, CharacterTokenizer
from unembed.tokenizers.pieces import PiecesFile, PieceTokenizer
from unembed.tokenizers.subword import SubwordFile, SubwordTokenizer
from unembed.tokenizers.words import WordsFile, WordTokenizer
from unembed.visible import quoted

FILE_NAME = "tokenizer.json"

KINDS: tuple[tuple[type[msgspec.Struct], Any], ...] = (
    (CharactersFile, CharacterTokenizer),
    (WordsFile, WordTokenizer),
    (SubwordFile, SubwordTokenizer),
    (PiecesFile, PieceTokenizer),
)


def from_dict(values: Mapping[str, Any], *, where: str = "tokenizer") -> Tokenizer:
    """Makes the tokenizer that `to_dict` described.

    Raises: TokenizerError for an unknown type, an unknown or missing key, a wrong value or a repeated token.
    """
    kinds = {str(file.__struct_config__.tag): (file, tokenizer) for file, tokenizer in KINDS}
    tag = values.get("type")
    if not isinstance(tag, str) or tag not in kinds:
        raise TokenizerError(
            f"{where}: the tokenizer's type is {quoted(tag)}; this version reads {', '.join(sorted(kinds))}"
        )
    file, tokenizer = kinds[tag]
    try:
        checked = msgspec.convert(dict(values), type=file)
    except msgspec.ValidationError as error:
        raise TokenizerError(
            f"{where}: {tag} tokenizer: {str(error)[:400]}. Write the file again with `save`"
        ) from None
    made: Tokenizer = tokenizer.from_file(checked)
    return made


def save(tokenizer: Tokenizer, path: str | Path) -> Path:
    """Writes `tokenizer.json` into a folder, or to the file that `path` names; gives the file's path."""
    path = Path(path)
    target = path / FILE_NAME if path.is_dir() else path
    target.write_text(to_json(tokenizer) + "\n", encoding="utf-8")
    return target


def load(path: str | Path, *, vocab_size: int | None = None) -> Tokenizer:
    """Reads a tokenizer: what `save` wrote, or another program's file; from the file, or the folder that holds it.

    Known files: tokenizer.json (ours, and the tokenizers library's), tokenizer.model and other SentencePiece files,
    llama2.c's tok512.bin, vocab.json with merges.txt, encoder.json with vocab.bpe. In a folder they are looked for in
    this order; `vocab_size` is that of the model, for tok<vocab_size>.bin.
    Raises: TokenizerError if there is none, or it is broken or not understood.
    """
    path = Path(path)
    check_path(path, TokenizerError)
    source = foreign.find(path, vocab_size) if path.is_dir() else path
    if source is None:
        raise foreign.why_none(path, vocab_size)
    check_path(source, TokenizerError)
    if not source.is_file():
        hint = suggest([] if path.is_dir() else near_paths(path), f"A run folder keeps its tokenizer in {FILE_NAME}.")
        raise TokenizerError(f"{shown(source)}: there is no such file. {hint}")
    if source.suffix != ".json" or source.name in foreign.VOCABULARY_NAMES:
        return foreign.load(source)
    values = foreign.read_json(source)
    if "type" not in values and "model" in values:
        return foreign.from_library_json(values, foreign.read_config(source.parent), where=str(source))
    return from_dict(values, where=str(source))


def fingerprint(tokenizer: Tokenizer) -> str:
    """Gives the sha256 (hex) of all that decides the tokenizer's ids: equal fingerprints, equal translations."""
    return hashlib.sha256(to_json(tokenizer).encode()).hexdigest()


def to_json(tokenizer: Tokenizer) -> str:
    """Gives what `save` writes, but for the last line end; the same text for the same translations."""
    return json.dumps(tokenizer.to_dict(), ensure_ascii=False, sort_keys=True, allow_nan=False)
