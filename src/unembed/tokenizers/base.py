"""What every tokenizer promises: text to ids and spans, ids to text, and what is lost on the way, if anything.

Ids come in one order everywhere: ordinary tokens first, specials (unknown, end of text) last, unless a file that was
read says otherwise. A model may have more rows than its tokenizer has ids: `vocab_size` counts ids that mean something.

A token adds bytes, not characters, to a text: a subword may hold half of a Korean syllable. So decoding joins the bytes
and turns them into text once; StreamDecoder does the same while the ids are still arriving. Next: characters.py, the
smallest tokenizer; files.py saves and loads them all.
"""

import codecs
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex

import numpy as np
from jaxtyping import Int64

from unembed.errors import TokenizerError
from unembed.visible import quoted

Ids = Int64[np.ndarray, " pos"]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The ids of a text, and for each id the characters that it stands for: `text[start:end]`.

    Spans count code points from 0. The tokens of one split character share its span.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer(Protocol):
    """A two-way translation between text and the ids 0 .. vocab_size - 1.

    `end_id` closes a document and `start_id` opens one; None where there is no such token. `adds_start` says whether the
    model was trained with the start token before every text; encoding leaves it out. Specials are marks between texts,
    never text: typed in a text they stay its letters unless `parse_specials` is given, and decoding leaves them out
    unless `show_specials` is given. `tokens` holds a placeholder where an id has no token, see `gaps`. `loses` says in
    words what decode(encode(text)) may lack, "" if nothing.
    """

    @property
    def kind(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def start_id(self) -> int | None: ...
    @property
    def end_id(self) -> int | None: ...
    @property
    def unknown_id(self) -> int | None: ...
    @property
    def specials(self) -> Mapping[str, int]: ...
    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def adds_start(self) -> bool: ...
    @property
    def is_lossless(self) -> bool: ...
    @property
    def loses(self) -> str: ...

    def encode(self, text: str, *, parse_specials: bool = False) -> Encoding:
        """Gives the ids of a text and their spans. Raises: TokenizerError if this vocabulary cannot write the text."""
        ...

    def encode_ids(self, text: str, *, is_continuation: bool = False) -> Ids:
        """Gives the ids alone, int64 [pos], fast; a continuation gets no treatment that belongs to a text's start."""
        ...

    def encode_many(self, texts: Sequence[str], are_continuations: Sequence[bool]) -> list[Ids]:
        """Gives `encode_ids` of each text, with as many threads as the tokenizer has."""
        ...

    def decode(self, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
        """Gives the text of the ids. Raises: TokenizerError for an id outside 0 .. vocab_size - 1."""
        ...

    def token_bytes(self, token_id: int, previous: int | None) -> bytes:
        """Gives what an id adds to the text, in UTF-8, after `previous` (None at the start of the text)."""
        ...

    def token_text(self, token_id: int) -> str:
        """Gives what a person is shown for one id; never fails for a padded row: see `placeholder`."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Gives plain JSON values with a "type" tag, from which files.from_dict makes an equal tokenizer."""
        ...


class StreamDecoder:
    """Turns ids into text as they arrive, never splitting a character.

    The pieces of `feed` and the last one of `finish`, joined, equal `decode` of all ids. After a prompt, give it as
    `after`: then they are what follows the prompt's own text, so that a first space is kept.

    >>> from unembed.tokenizers.characters import CharacterTokenizer
    >>> stream = StreamDecoder(CharacterTokenizer.from_text("abc"))
    >>> [stream.feed(0), stream.feed(2), stream.finish()]
    ['a', 'c', '']
    """

    def __init__(
        self, tokenizer: Tokenizer, *, after: Iterable[SupportsIndex] = (), show_specials: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._shows = show_specials
        self._names = {token_id: name for name, token_id in tokenizer.specials.items()}
        self._names.pop(-1 if tokenizer.unknown_id is None else tokenizer.unknown_id, None)
        self._previous: int | None = None
        # "replace" puts U+FFFD only where bytes can no longer become a character; an unfinished one is held back.
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        for token_id in after:
            self.feed(token_id)

    def feed(self, token_id: SupportsIndex) -> str:
        """Gives the text that this id completes: "" while a character is unfinished. Raises: TokenizerError."""
        index = operator.index(token_id)
        if index in self._names and not self._shows:
            return ""
        added = self._tokenizer.token_bytes(index, self._previous)
        self._previous = index
        return self._utf8.decode(added)

    def finish(self) -> str:
        """Gives what was held back: U+FFFD if the ids ended inside a character, otherwise nothing."""
        return self._utf8.decode(b"", final=True)


def decode(tokenizer: Tokenizer, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
    """Decodes by the rule that all tokenizers share: join each id's bytes, then read them as UTF-8 once."""
    stream = StreamDecoder(tokenizer, show_specials=show_specials)
    return "".join([*(stream.feed(token_id) for token_id in whole_ids(ids)), stream.finish()])


def decode_after(tokenizer: Tokenizer, prompt_ids: Iterable[SupportsIndex], ids: Iterable[SupportsIndex]) -> str:
    """Decodes a continuation alone: its first space is kept after a prompt, a dummy space is dropped without one."""
    stream = StreamDecoder(tokenizer, after=prompt_ids)
    return "".join([*(stream.feed(token_id) for token_id in ids), stream.finish()])


def with_start(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Puts the start token before ids that do not begin with it: once, never twice.

    Raises: TokenizerError if the tokenizer has no start token.
    """
    if tokenizer.start_id is None:
        raise TokenizerError(
            f"{tokenizer.kind} tokenizer: it has no start token to put before the ids; encode without one"
        )
    return list(ids) if len(ids) and ids[0] == tokenizer.start_id else [tokenizer.start_id, *ids]


def unknown_note(tokenizer: Tokenizer, text: str, encoding: Encoding, *, most: int = 3) -> str:
    """Says which parts of a text became the unknown token, so that a model never reads it in silence; "" if none did.

    >>> from unembed.tokenizers.words import WordTokenizer
    >>> words = WordTokenizer(["the", "dog", "."])
    >>> unknown_note(words, "the cat .", words.encode("the cat ."))
    "1 of 3 tokens is <unk>, for the words tokenizer does not know 'cat'"
    """
    spans = [
        span for token_id, span in zip(encoding.ids, encoding.spans, strict=True) if token_id == tokenizer.unknown_id
    ]
    if not spans:
        return ""
    parts = list(dict.fromkeys(text[start:end] for start, end in spans))
    shown = ", ".join(repr(part) for part in parts[:most]) + (f" and {len(parts) - most} more" if parts[most:] else "")
    assert tokenizer.unknown_id is not None
    return (
        f"{len(spans)} of {len(encoding)} tokens {'is' if len(spans) == 1 else 'are'} "
        f"{tokenizer.token_text(tokenizer.unknown_id)}, for the {tokenizer.kind} tokenizer does not know {shown}"
    )


def check_text(text: str) -> bytes:
    """Gives the text's UTF-8 bytes. Raises: TokenizerError for a lone surrogate, which no tokenizer here takes.

    Half a surrogate pair is no character: UTF-8, and so every file and every byte-level vocabulary, cannot hold it.
    Refusing it is the one result everywhere, in place of a "?" here, a loss there and a crash elsewhere.
    """
    if not isinstance(text, str):
        raise TokenizerError(f"text: is {repr(text)[:60]}, expected a text")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"text: character {error.start} is U+{ord(text[error.start]):04X}, half of a surrogate pair, which is no "
            "character and has no UTF-8 form. Remove it, or read the text again in its right encoding"
        ) from None


def whole_ids(ids: Iterable[SupportsIndex]) -> list[int]:
    """Gives ids as Python's whole numbers. Raises: TokenizerError for what is no list of whole numbers."""
    try:
        return [operator.index(token_id) for token_id in ids]
    except TypeError:
        raise TokenizerError(f"ids: are {repr(ids)[:60]}, expected a list of whole numbers") from None


def check_id(tokenizer: Tokenizer, token_id: int) -> int:
    """Gives the id back. Raises: TokenizerError if it is not one of the vocabulary."""
    if not 0 <= token_id < tokenizer.vocab_size:
        raise TokenizerError(
            f"{tokenizer.kind} tokenizer: id {token_id} is none of its {tokenizer.vocab_size} tokens "
            f"(0 to {tokenizer.vocab_size - 1}). Rows of a model beyond them are padding: leave them out when sampling"
        )
    return token_id


def check_unique(kind: str, tokens: Sequence[str]) -> None:
    """Raises TokenizerError if two ids of a vocabulary have the same text."""
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token in seen:
            raise TokenizerError(
                f"{kind} tokenizer: {quoted(token)} is both id {seen[token]} and id {index}; a vocabulary holds a token once"
            )
        seen[token] = index


def placeholder(token_id: int) -> str:
    """Gives what is shown for a model's row that has no token: `<unused 61>`."""
    return f"<unused {token_id}>"


def gaps(tokenizer: Tokenizer) -> list[int]:
    """Gives the ids below vocab_size that have no token: a model's row may stand for one, but no text does."""
    return [token_id for token_id, token in enumerate(tokenizer.tokens) if token == placeholder(token_id)]


def show_bytes(data: bytes) -> str:
    """Gives bytes as text, those that are no whole character as `<0xEA>`: what a person sees of half a syllable.

    >>> show_bytes("ñ".encode() + bytes([0xEA]))
    'ñ<0xEA>'
    """
    text = data.decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def split_specials(text: str, specials: Mapping[str, int]) -> Iterator[tuple[int, str, int | None]]:
    """Cuts a text at the specials in it: (start, part, id), the id None for ordinary text. The longest name wins."""
    if not specials:
        if text:
            yield 0, text, None
        return
    names = sorted(specials, key=len, reverse=True)
    at = 0
    for match in re.finditer("|".join(map(re.escape, names)), text):
        if match.start() > at:
            yield at, text[at : match.start()], None
        yield match.start(), match.group(), specials[match.group()]
        at = match.end()
    if at < len(text):
        yield at, text[at:], None
