"""One id per character: the smallest tokenizer, and the one that can lose nothing of its own alphabet.

The vocabulary is the distinct code points of a text in code-point order (as nanoGPT's character recipe numbers them),
then the specials. Next: words.py, the other extreme.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import msgspec
import numpy as np

from unembed.errors import TokenizerError
from unembed.tokenizers import base
from unembed.tokenizers.base import Encoding, Ids


class CharactersFile(
    msgspec.Struct, tag="characters", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A character tokenizer as its file holds it; `characters` is one string, one id per code point."""

    characters: str
    unknown: str | None
    end: str | None


class CharacterTokenizer:
    """Translates each code point to its place in a fixed alphabet.

    Without `unknown`, a character outside the alphabet is an error (nothing is ever lost); with it, that character
    becomes the unknown token, and the tokenizer declares the loss.

    >>> tokenizer = CharacterTokenizer.from_text("hello")
    >>> tokenizer.encode("hole").ids, tokenizer.vocab_size
    ((1, 3, 2, 0), 4)
    """

    kind = "characters"
    start_id = None
    adds_start = False

    def __init__(self, characters: str, *, unknown: str | None = None, end: str | None = None) -> None:
        base.check_text(characters)
        base.check_unique(self.kind, [*characters, *(name for name in (unknown, end) if name is not None)])
        self._characters = characters
        self._unknown, self._end = unknown, end
        names = [name for name in (unknown, end) if name is not None]
        self.tokens: tuple[str, ...] = (*characters, *names)
        self.specials: Mapping[str, int] = {name: len(characters) + i for i, name in enumerate(names)}
        self.unknown_id = None if unknown is None else self.specials[unknown]
        self.end_id = None if end is None else self.specials[end]
        self.vocab_size = len(self.tokens)
        # One table look-up per code point; its last entry stands for everything above the alphabet.
        self._code_points = np.array([ord(c) for c in characters], dtype="<u4")
        self._id_of = np.full(max(map(ord, characters), default=-1) + 2, -1, dtype=np.int64)
        self._id_of[self._code_points] = np.arange(len(characters))

    @classmethod
    def from_text(
        cls, text: str | Iterable[str], *, has_unknown: bool = False, has_end: bool = False
    ) -> "CharacterTokenizer":
        """Builds the alphabet of a text, or of pieces of text that are read one after the other.

        Raises: TokenizerError if there is no character at all.
        """
        seen: set[str] = set()
        for piece in [text] if isinstance(text, str) else text:
            seen.update(piece)
        if not seen:
            raise TokenizerError(
                "characters tokenizer: the text is empty, so there is no alphabet; give a text with characters"
            )
        return cls("".join(sorted(seen)), unknown="<unk>" if has_unknown else None, end="<end>" if has_end else None)

    @property
    def is_lossless(self) -> bool:
        return self._unknown is None

    @property
    def loses(self) -> str:
        return "" if self._unknown is None else f"characters outside its alphabet of {len(self._characters)}"

    def encode(self, text: str, *, parse_specials: bool = False) -> Encoding:
        """Gives an id and a span of one character per character. Raises: TokenizerError as `encode_ids` does."""
        if not parse_specials:
            return Encoding(tuple(self.encode_ids(text).tolist()), tuple((i, i + 1) for i in range(len(text))))
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        base.check_text(text)
        for start, part, special in base.split_specials(text, self.specials):
            if special is not None:
                ids.append(special)
                spans.append((start, start + len(part)))
            else:
                ids += self._look_up(part, offset=start).tolist()
                spans += [(start + i, start + i + 1) for i in range(len(part))]
        return Encoding(tuple(ids), tuple(spans))

    def encode_ids(self, text: str, *, is_continuation: bool = False) -> Ids:
        """Gives the ids, int64 [pos]. Raises: TokenizerError for a character outside the alphabet, or no character."""
        return self._look_up(text, offset=0)

    def encode_many(self, texts: Sequence[str], are_continuations: Sequence[bool]) -> list[Ids]:
        """Gives `encode_ids` of each text."""
        return [self.encode_ids(text) for text in texts]

    def _look_up(self, text: str, offset: int) -> Ids:
        try:
            code_points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        except (UnicodeEncodeError, AttributeError):
            base.check_text(text)
            raise
        ids: Ids = self._id_of[np.minimum(code_points, len(self._id_of) - 1)]
        missing = ids < 0
        if missing.any():
            if self.unknown_id is None:
                at = int(missing.argmax())
                raise TokenizerError(
                    f"characters tokenizer: character {offset + at} is {text[at]!r} (U+{ord(text[at]):04X}), none of its "
                    f"{len(self._characters)} characters. Leave it out, or build the tokenizer from a text that has it"
                )
            ids[missing] = self.unknown_id
        return ids

    def decode(self, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
        """Joins the characters of the ids. Raises: TokenizerError for an id outside the vocabulary."""
        is_array = isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"
        found: Any = ids if is_array else np.array(base.whole_ids(ids), dtype=np.int64)
        outside = (found < 0) | (found >= self.vocab_size)
        if outside.any():
            base.check_id(self, int(found[outside.argmax()]))
        if self.end_id is not None and not show_specials:
            found = found[found != self.end_id]
        if (found < len(self._code_points)).all():
            text: str = self._code_points[found].tobytes().decode("utf-32-le")
            return text
        return "".join([self.tokens[token_id] for token_id in found])

    def token_bytes(self, token_id: int, previous: int | None) -> bytes:
        """Gives the character's UTF-8 bytes, whatever came before."""
        return self.tokens[base.check_id(self, token_id)].encode()

    def token_text(self, token_id: int) -> str:
        """Gives the character itself, or a placeholder for a padded row."""
        return self.tokens[token_id] if 0 <= token_id < self.vocab_size else base.placeholder(token_id)

    def to_dict(self) -> dict[str, Any]:
        """Gives the alphabet and the names of the specials as plain JSON values."""
        return {"type": self.kind, "characters": self._characters, "unknown": self._unknown, "end": self._end}

    @classmethod
    def from_file(cls, file: CharactersFile) -> "CharacterTokenizer":
        """Builds the tokenizer that a checked file describes. Raises: TokenizerError for a repeated character."""
        return cls(file.characters, unknown=file.unknown, end=file.end)
