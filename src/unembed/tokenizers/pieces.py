"""SentencePiece vocabularies, from a .model file or from any file that holds pieces with scores (llama2.c, GGUF).

The sentencepiece library encodes, exactly as the model's maker did. Decoding is done here, piece by piece, so that a
stream equals the whole: `▁` is a space, byte pieces are bytes, and the space that was put before the text is taken away
once. Before it: proto.py, which reads the file. Next: files.py.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import msgspec
import numpy as np
import sentencepiece

from unembed.errors import TokenizerError
from unembed.tokenizers import base, proto
from unembed.tokenizers.base import Encoding, Ids

_SPACE = "\u2581"


class PiecesFile(msgspec.Struct, tag="pieces", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SentencePiece tokenizer as its file holds it: the serialized model in base64."""

    model: str
    adds_start: bool = True


class PieceTokenizer:
    """Translates with a SentencePiece model, given as the bytes of its file.

    Raises: TokenizerError if the bytes are no such model, or repeat a piece.
    """

    def __init__(self, data: bytes, *, adds_start: bool = True, where: str = "pieces tokenizer") -> None:
        self._data = data
        self._model = proto.read_model(data, where=where)
        self.tokens: tuple[str, ...] = tuple(text for text, _, _ in self._model.pieces)
        self._kinds = [kind for _, _, kind in self._model.pieces]
        self.kind = {proto.UNIGRAM: "unigram", proto.BPE: "bpe"}.get(self._model.model_type, "pieces")
        base.check_unique(self.kind, self.tokens)
        try:
            self._engine = sentencepiece.SentencePieceProcessor(model_proto=data)
            later = proto.without_dummy_prefix(data)
            self._later = sentencepiece.SentencePieceProcessor(model_proto=later)
        except (RuntimeError, OSError) as error:
            raise TokenizerError(f"{where}: the sentencepiece library does not take it: {error}") from None
        self.vocab_size = len(self.tokens)
        self.specials: Mapping[str, int] = {t: i for i, t in enumerate(self.tokens) if self._kinds[i] == proto.CONTROL}
        self.unknown_id = next((i for i, kind in enumerate(self._kinds) if kind == proto.UNKNOWN), None)
        self.start_id = self._mark(self._model.start_id)
        self.adds_start = adds_start and self.start_id is not None
        self.end_id = self._mark(self._model.end_id)

    @property
    def model(self) -> proto.PieceModel:
        """The pieces with their scores and types, and what is done to a text before and after."""
        return self._model

    @property
    def is_lossless(self) -> bool:
        return not self.loses

    @property
    def loses(self) -> str:
        model = self._model
        said = [f"the character {_SPACE}, which comes back as a space"] if model.escapes_spaces else []
        if model.has_charsmap:
            said.append(f"character forms that its normalizer {model.normalizer} replaces by their equals")
        if model.removes_extra_spaces:
            said.append("white space at the ends and more than one space between words")
        if self._kinds.count(proto.BYTE) < 256:
            said.append("characters outside its vocabulary")
        return ", ".join(said)

    def encode(self, text: str, *, parse_specials: bool = False) -> Encoding:
        """Gives ids and spans; the bytes of one character share its span. Raises: TokenizerError for no character."""
        base.check_text(text)
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for start, part, special in base.split_specials(text, self.specials if parse_specials else {}):
            if special is not None:
                ids.append(special)
                spans.append((start, start + len(part)))
                continue
            found = self._engine.encode_as_offset_mapping(part)
            ids += found["ids"]
            spans += [(start + a, start + b) for a, b in self._shared_spans(found["ids"], found["offsets"])]
        return Encoding(tuple(ids), tuple(spans))

    def encode_ids(self, text: str, *, is_continuation: bool = False) -> Ids:
        """Gives the ids, int64 [pos]; a continuation gets no dummy space. Raises: TokenizerError for no character."""
        return self.encode_many([text], [is_continuation])[0]

    def encode_many(self, texts: Sequence[str], are_continuations: Sequence[bool]) -> list[Ids]:
        """Gives `encode_ids` of each text, on as many threads as there are cores."""
        for text in texts:
            base.check_text(text)
        out: list[Ids] = [np.zeros(0, dtype=np.int64)] * len(texts)
        for of_later in (False, True):
            chosen = [
                i for i, is_later in enumerate(are_continuations) if self._skips_prefix(is_later, texts[i]) == of_later
            ]
            runner = self._later if of_later else self._engine
            for i, ids in zip(chosen, runner.encode([texts[i] for i in chosen], num_threads=-1), strict=True):
                out[i] = np.array(ids, dtype=np.int64)
        return out

    def decode(self, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
        """Joins the bytes of the pieces and reads them as UTF-8. Raises: TokenizerError for an id outside the vocabulary."""
        if show_specials:
            return base.decode(self, ids, show_specials=True)
        # Only the first piece stands in a place that changes its bytes, so a table of them is all there is to it.
        hidden = set(self.specials.values())
        wanted = [token_id for token_id in base.whole_ids(ids) if token_id not in hidden]
        own = {token_id: self._own_bytes(base.check_id(self, token_id)) for token_id in set(wanted)}
        first = [self.token_bytes(token_id, None) for token_id in wanted[:1]]
        return b"".join([*first, *(own[token_id] for token_id in wanted[1:])]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int, previous: int | None) -> bytes:
        """Gives the piece's bytes; at the start of a text without the space that encoding put before it."""
        own = self._own_bytes(base.check_id(self, token_id))
        is_first = previous is None or self._kinds[previous] == proto.CONTROL
        drops = self._model.adds_dummy_prefix or self._model.removes_extra_spaces
        is_text = self._kinds[token_id] in (proto.NORMAL, proto.USER_DEFINED)
        return own.removeprefix(b" ") if is_first and drops and is_text else own

    def token_text(self, token_id: int) -> str:
        """Gives the piece as text, half characters as `<0xEA>`; a placeholder for a padded row."""
        return (
            base.show_bytes(self._own_bytes(token_id))
            if 0 <= token_id < self.vocab_size
            else base.placeholder(token_id)
        )

    def to_dict(self) -> dict[str, Any]:
        """Gives the model's bytes in base64, as plain JSON values."""
        said = {"type": "pieces", "model": base64.b64encode(self._data).decode()}
        # named only where it differs from what these files mean, so that fingerprints stay as they were
        return said if self.adds_start or self.start_id is None else said | {"adds_start": False}

    @classmethod
    def from_file(cls, file: PiecesFile) -> "PieceTokenizer":
        """Builds the tokenizer that a checked file describes. Raises: TokenizerError as the class does."""
        try:
            data = base64.b64decode(file.model, validate=True)
        except ValueError as error:
            raise TokenizerError(f"pieces tokenizer: the model is not base64 ({error}); write the file again") from None
        return cls(data, adds_start=file.adds_start)

    @classmethod
    def from_pieces(cls, model: proto.PieceModel, *, where: str = "pieces tokenizer") -> "PieceTokenizer":
        """Builds a tokenizer from pieces, scores and types that came in another kind of file. Raises: as the class does."""
        return cls(proto.write_model(model), where=where)

    def _own_bytes(self, token_id: int) -> bytes:
        kind, token = self._kinds[token_id], self.tokens[token_id]
        if kind == proto.BYTE:
            return bytes([int(token[3:5], 16)])
        if kind == proto.UNKNOWN:
            return self._model.unknown_surface.encode()
        return (token if kind == proto.CONTROL else token.replace(_SPACE, " ")).encode()

    def _skips_prefix(self, is_continuation: bool, text: str) -> bool:
        # A model that strips spaces takes a stretch's first one away; its dummy space stands for that one again.
        return is_continuation and not (self._model.removes_extra_spaces and text[:1].isspace())

    def _mark(self, token_id: int) -> int | None:
        is_there = 0 <= token_id < len(self._kinds) and self._kinds[token_id] == proto.CONTROL
        return token_id if is_there else None

    def _shared_spans(self, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Gives every byte of a character the character's span; the library gives it to the last byte alone."""
        spans = list(offsets)
        for i in range(len(ids) - 2, -1, -1):
            start, end = spans[i]
            if start == end and self._kinds[ids[i]] == proto.BYTE and self._kinds[ids[i + 1]] == proto.BYTE:
                spans[i] = spans[i + 1]
        return spans
