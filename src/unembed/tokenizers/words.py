"""One id per word: what the courses begin with, and what the grammar corpora are written in.

A word is what stands between white space, so punctuation must stand alone (as the grammars write it) to be a word of
its own. New words become `<unk>`: that is the lesson, and `loses` says it. Next: subword.py, the compromise.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import msgspec
import numpy as np

from unembed.errors import TokenizerError
from unembed.tokenizers import base
from unembed.tokenizers.base import Encoding, Ids
from unembed.visible import quoted

UNKNOWN, END = "<unk>", "<end>"


class WordsFile(msgspec.Struct, tag="words", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A word tokenizer as its file holds it: words in id order (`<unk>` and `<end>` follow), and two switches."""

    words: list[str]
    lowercases: bool
    strips_accents: bool


class WordTokenizer:
    """Translates words to their place in a list; n words make n + 2 ids, the last two being `<unk>` and `<end>`.

    `lowercases` and `strips_accents` are two switches, because lower case alone must keep "hacia" and "hacía" apart.
    Typed in a text, "<end>" is an unknown word like any other, unless specials are parsed.

    >>> tokenizer = WordTokenizer(["the", "dog", "barks", "."])
    >>> tokenizer.encode("the dog meows .").ids, tokenizer.decode([0, 1, 2, 3, 5])
    ((0, 1, 4, 3), 'the dog barks .')
    """

    kind = "words"
    start_id = None
    adds_start = False
    is_lossless = False

    def __init__(self, words: Sequence[str], *, lowercases: bool = False, strips_accents: bool = False) -> None:
        for word in words:
            base.check_text(word)
            if not word or any(c.isspace() for c in word):
                raise TokenizerError(
                    f"words tokenizer: {quoted(word)} is no word; a word is not empty and holds no white space"
                )
        base.check_unique(self.kind, [*words, UNKNOWN, END])
        self.lowercases, self.strips_accents = lowercases, strips_accents
        self.tokens: tuple[str, ...] = (*words, UNKNOWN, END)
        self.vocab_size = len(self.tokens)
        self.unknown_id, self.end_id = len(words), len(words) + 1
        self.specials: Mapping[str, int] = {UNKNOWN: self.unknown_id, END: self.end_id}
        self._id_of = {word: i for i, word in enumerate(words)}

    @classmethod
    def from_text(
        cls,
        text: str | Iterable[str],
        *,
        max_vocab: int | None = None,
        lowercases: bool = False,
        strips_accents: bool = False,
    ) -> "WordTokenizer":
        """Counts the words of a text, or of pieces of text none of which ends inside a word.

        The most frequent come first, equally frequent ones in code-point order; `max_vocab` bounds all ids, specials
        included. Raises: TokenizerError if there is no word, or no room for one.
        """
        counts: Counter[str] = Counter()
        for piece in [text] if isinstance(text, str) else text:
            base.check_text(piece)
            counts.update(_spell(word, lowercases, strips_accents) for word in piece.split())
        for name in ("", UNKNOWN, END):
            counts.pop(name, None)
        if not counts:
            raise TokenizerError(
                "words tokenizer: the text holds no word, so there is no vocabulary; give a text with words"
            )
        if max_vocab is not None and max_vocab < 3:
            raise TokenizerError(
                f"words tokenizer: max_vocab is {max_vocab}, but {UNKNOWN} and {END} take 2 ids; give at least 3"
            )
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        kept = ranked if max_vocab is None else ranked[: max_vocab - 2]
        return cls(kept, lowercases=lowercases, strips_accents=strips_accents)

    @property
    def loses(self) -> str:
        spelling = [", upper case" if self.lowercases else "", ", accents" if self.strips_accents else ""]
        return (
            f"words outside its {len(self._id_of)}, white space other than one space between words{''.join(spelling)}"
        )

    def encode(self, text: str, *, parse_specials: bool = False) -> Encoding:
        """Gives one id per word, and the characters that the word occupies in the text as it was given."""
        base.check_text(text)
        known = {**self._id_of, **self.specials} if parse_specials else self._id_of
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for match in re.finditer(r"\S+", text):
            word = match.group()
            spelt = word if parse_specials and word in self.specials else self.spell(word)
            ids.append(known.get(spelt, self.unknown_id))
            spans.append(match.span())
        return Encoding(tuple(ids), tuple(spans))

    def encode_ids(self, text: str, *, is_continuation: bool = False) -> Ids:
        """Gives one id per word, int64 [pos]."""
        base.check_text(text)
        unknown, id_of = self.unknown_id, self._id_of
        words = text.split() if not (self.lowercases or self.strips_accents) else map(self.spell, text.split())
        return np.array([id_of.get(word, unknown) for word in words], dtype=np.int64)

    def encode_many(self, texts: Sequence[str], are_continuations: Sequence[bool]) -> list[Ids]:
        """Gives `encode_ids` of each text."""
        return [self.encode_ids(text) for text in texts]

    def spell(self, word: str) -> str:
        """Gives the word as the vocabulary spells it: lower case, without accents, as the two switches say."""
        return _spell(word, self.lowercases, self.strips_accents)

    def decode(self, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
        """Joins the words by single spaces. Raises: TokenizerError for an id outside the vocabulary."""
        return base.decode(self, ids, show_specials=show_specials)

    def token_bytes(self, token_id: int, previous: int | None) -> bytes:
        """Gives the word's UTF-8 bytes, after a space unless it is the first."""
        word = self.tokens[base.check_id(self, token_id)].encode()
        return word if previous is None else b" " + word

    def token_text(self, token_id: int) -> str:
        """Gives the word itself, or a placeholder for a padded row."""
        return self.tokens[token_id] if 0 <= token_id < self.vocab_size else base.placeholder(token_id)

    def to_dict(self) -> dict[str, Any]:
        """Gives the words in id order and the two switches as plain JSON values."""
        return {
            "type": self.kind,
            "words": list(self.tokens[:-2]),
            "lowercases": self.lowercases,
            "strips_accents": self.strips_accents,
        }

    @classmethod
    def from_file(cls, file: WordsFile) -> "WordTokenizer":
        """Builds the tokenizer that a checked file describes. Raises: TokenizerError for a repeated or odd word."""
        return cls(file.words, lowercases=file.lowercases, strips_accents=file.strips_accents)


def _spell(word: str, lowercases: bool, strips_accents: bool) -> str:
    if lowercases:
        word = word.lower()
    if strips_accents:
        # Composed again afterwards: taking Korean syllables apart is not stripping an accent.
        bare = (c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
        word = unicodedata.normalize("NFC", "".join(bare))
    return word
