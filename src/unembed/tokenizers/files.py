"""Tokenizers on disk: the `tokenizer.json` of a run folder, and the one list of tokenizers that can be read from it.

To add a tokenizer, add one line to KINDS. Next: ../corpora/text.py, where texts to encode come from.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from unembed.errors import TokenizerError
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.characters import CharactersFile, CharacterTokenizer
from unembed.tokenizers.words import WordsFile, WordTokenizer

FILE_NAME = "tokenizer.json"

KINDS: tuple[tuple[type[msgspec.Struct], Any], ...] = (
    (CharactersFile, CharacterTokenizer),
    (WordsFile, WordTokenizer),
)


def from_dict(values: Mapping[str, Any], *, where: str = "tokenizer") -> Tokenizer:
    """Makes the tokenizer that `to_dict` described.

    Raises: TokenizerError for an unknown type, an unknown or missing key, a wrong value or a repeated token.
    """
    kinds = {str(file.__struct_config__.tag): (file, tokenizer) for file, tokenizer in KINDS}
    tag = values.get("type")
    if not isinstance(tag, str) or tag not in kinds:
        raise TokenizerError(f"{where}: the tokenizer's type is {tag!r}; this version reads {', '.join(sorted(kinds))}")
    file, tokenizer = kinds[tag]
    try:
        checked = msgspec.convert(dict(values), type=file)
    except msgspec.ValidationError as error:
        raise TokenizerError(f"{where}: {tag} tokenizer: {error}. Write the file again with `save`") from None
    made: Tokenizer = tokenizer.from_file(checked)
    return made


def save(tokenizer: Tokenizer, path: str | Path) -> Path:
    """Writes `tokenizer.json` into a folder, or to the file that `path` names; gives the file's path."""
    path = Path(path)
    target = path / FILE_NAME if path.is_dir() else path
    target.write_text(_to_json(tokenizer) + "\n", encoding="utf-8")
    return target


def load(path: str | Path) -> Tokenizer:
    """Reads what `save` wrote, from the file or from the folder that holds it.

    Raises: TokenizerError if the file is absent, is no JSON, or describes no tokenizer of this version.
    """
    path = Path(path)
    source = path / FILE_NAME if path.is_dir() else path
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TokenizerError(
            f"{source}: there is no such file; a run folder keeps its tokenizer in {FILE_NAME}"
        ) from None
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{source}: byte {error.start} is not UTF-8, so this is no {FILE_NAME}") from None
    try:
        values = json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except ValueError as error:
        raise TokenizerError(f"{source}: not readable as JSON: {error}") from None
    if not isinstance(values, dict):
        raise TokenizerError(f"{source}: holds a {type(values).__name__}; a tokenizer's file holds one object")
    return from_dict(values, where=str(source))


def fingerprint(tokenizer: Tokenizer) -> str:
    """Gives the sha256 (hex) of all that decides the tokenizer's ids: equal fingerprints, equal translations."""
    return hashlib.sha256(_to_json(tokenizer).encode()).hexdigest()


def _to_json(tokenizer: Tokenizer) -> str:
    return json.dumps(tokenizer.to_dict(), ensure_ascii=False, sort_keys=True, allow_nan=False)


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key!r} appears twice in one object")
        made[key] = value
    return made
