"""Subwords: byte-level BPE and unigram of our own training, and every tokenizer.json whose decoding is understood.

The `tokenizers` library encodes; this file keeps its two dangers out. Specials typed in a text stay letters, and nothing
is dropped in silence: a vocabulary with a gap says so in `loses`, or stops. Next: engine.py, which reads what such a file
says about itself; training.py, which makes new ones; pieces.py for SentencePiece.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex

import msgspec
import numpy as np

import tokenizers
from unembed.errors import TokenizerError
from unembed.tokenizers import base, engine
from unembed.tokenizers.base import Encoding, Ids
from unembed.visible import quoted


class SubwordFile(
    msgspec.Struct, tag="subword", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A subword tokenizer as its file holds it: the `tokenizers` library's own description, and our marks."""

    engine: dict[str, Any]
    start: str | None
    end: str | None
    adds_start: bool = False


class SubwordTokenizer:
    """Translates with an engine of the `tokenizers` library, described by the values of its tokenizer.json.

    Raises: TokenizerError if the description is broken, draws at random, or decodes in a way that is not understood.
    """

    def __init__(
        self, values: Mapping[str, Any], *, start: str | None = None, end: str | None = None, adds_start: bool = False
    ) -> None:
        engine.check(values)
        # Truncation would shorten a text in silence; padding and templates add ids that are no text. None has a say here.
        self._values = dict(values) | {"truncation": None, "padding": None, "post_processor": None}
        self._start, self._end = start, end
        self.kind = str(self._values["model"]["type"]).lower()
        self._rule = engine.decoding_rule(self._values.get("decoder"))
        added = self._values.get("added_tokens", [])
        id_of = engine.ids_of(self._values)
        self._engine = _open_engine(self._values)
        bare = engine.without_start(self._values)
        self._later = self._engine if not _has_start(self._values) else _open_engine(bare)
        self.vocab_size = max(id_of.values(), default=-1) + 1
        self.specials: Mapping[str, int] = {token["content"]: token["id"] for token in added if token["special"]}
        self._literal = {token["id"] for token in added}
        self._token_of = {token_id: token for token, token_id in id_of.items()}
        self._bytes_of: dict[int, bytes] = {}  # what has been worked out of them, since decoding asks again and again
        # As the engine spells them; a placeholder where an id has none.
        self.tokens: tuple[str, ...] = tuple(self._token_of.get(i, base.placeholder(i)) for i in range(self.vocab_size))
        self.start_id, self.end_id = self._mark("start", start), self._mark("end", end)
        self.adds_start = adds_start and self.start_id is not None
        self.unknown_id = _unknown_id(self._values["model"], id_of)
        # Marks between texts: after one, a text begins anew. An unknown token stands inside a text.
        self._marks = set(self.specials.values()) - {self.unknown_id}
        self._losses = engine.losses(self._values)
        self._may_drop = self.unknown_id is None and not engine.writes_all_bytes(self._values)
        self._check_specials_stay_text()

    @property
    def is_lossless(self) -> bool:
        return not self._losses

    @property
    def loses(self) -> str:
        return ", ".join(self._losses)

    def encode(self, text: str, *, parse_specials: bool = False) -> Encoding:
        """Gives ids and spans; the tokens of one split character share its span. Raises: TokenizerError for no character."""
        base.check_text(text)
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for start, part, special in base.split_specials(text, self.specials if parse_specials else {}):
            if special is not None:
                ids.append(special)
                spans.append((start, start + len(part)))
                continue
            encoding = self._run(part)
            ids += encoding.ids
            spans += [(start + a, start + b) for a, b in encoding.offsets]
        return Encoding(tuple(ids), tuple(spans))

    def encode_ids(self, text: str, *, is_continuation: bool = False) -> Ids:
        """Gives the ids, int64 [pos]; a continuation gets no dummy space. Raises: TokenizerError for no character."""
        return self.encode_many([text], [is_continuation])[0]

    def encode_many(self, texts: Sequence[str], are_continuations: Sequence[bool]) -> list[Ids]:
        """Gives `encode_ids` of each text, on all threads of the engine."""
        if self._may_drop:
            both = zip(texts, are_continuations, strict=True)
            return [np.array(self._run(t, is_continuation=c).ids, dtype=np.int64) for t, c in both]
        out: list[Ids] = [np.zeros(0, dtype=np.int64)] * len(texts)
        for of_later, runner in ((False, self._engine), (True, self._later)):
            chosen = [i for i, is_later in enumerate(are_continuations) if is_later == of_later]
            batch = [texts[i] for i in chosen]
            for i, encoding in zip(chosen, self._batch(runner, batch), strict=True):
                out[i] = np.array(encoding.ids, dtype=np.int64)
        return out

    def decode(self, ids: Iterable[SupportsIndex], *, show_specials: bool = False) -> str:
        """Joins the bytes of the ids and reads them as UTF-8. Raises: TokenizerError for an id without a token."""
        if self._rule.drops_first_space or self._rule.joins_by_space:
            return base.decode(self, ids, show_specials=show_specials)
        # Here a token's bytes are the same everywhere, so a table of them is all there is to it.
        hidden = set() if show_specials else self._marks
        wanted = [token_id for token_id in base.whole_ids(ids) if token_id not in hidden]
        own = {token_id: self._own_bytes(base.check_id(self, token_id)) for token_id in set(wanted)}
        return b"".join([own[token_id] for token_id in wanted]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int, previous: int | None) -> bytes:
        """Gives the token's bytes in its place: after a space, or without the dummy one, as the decoder says."""
        own = self._own_bytes(base.check_id(self, token_id))
        is_first = previous is None or previous in self._marks
        if self._rule.drops_first_space and is_first and token_id not in self._literal:
            return own.removeprefix(b" ")
        if self._rule.joins_by_space and previous is not None:
            prefix = self._rule.continuing_prefix
            return own if prefix and self._token_of[token_id].startswith(prefix) else b" " + own
        return own

    def token_text(self, token_id: int) -> str:
        """Gives the token as text, half characters as `<0xEA>`; a placeholder for a padded row."""
        return base.show_bytes(self._own_bytes(token_id)) if token_id in self._token_of else base.placeholder(token_id)

    def to_dict(self) -> dict[str, Any]:
        """Gives the engine's description and the two marks as plain JSON values."""
        said = {"type": "subword", "engine": self._values, "start": self._start, "end": self._end}
        # named only where it holds, so that a run's tokenizer keeps the fingerprint that it was trained with
        return said | {"adds_start": True} if self.adds_start else said

    @classmethod
    def from_file(cls, file: SubwordFile) -> "SubwordTokenizer":
        """Builds the tokenizer that a checked file describes. Raises: TokenizerError as the class does."""
        return cls.from_values(file.engine, start=file.start, end=file.end, adds_start=file.adds_start)

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], *, start: str | None, end: str | None, adds_start: bool
    ) -> "SubwordTokenizer":
        """Builds a tokenizer of values that came in a file. Raises: TokenizerError also where a part is missing or odd."""
        try:
            return cls(values, start=start, end=end, adds_start=adds_start)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise TokenizerError(
                f"tokenizer.json: not as the tokenizers library writes it ({type(error).__name__}: {str(error)[:80]})"
            ) from error

    def _own_bytes(self, token_id: int) -> bytes:
        if (known := self._bytes_of.get(token_id)) is not None:
            return known
        if token_id not in self._token_of:
            raise TokenizerError(f"{self.kind} tokenizer: id {token_id} is a gap in its vocabulary; no text has it")
        own = self._rule.bytes_of(self._token_of[token_id], is_literal=token_id in self._literal)
        self._bytes_of[token_id] = own
        return own

    def _run(self, text: str, *, is_continuation: bool = False) -> Any:
        base.check_text(text)
        runner = self._later if is_continuation else self._engine
        with _answering(self._engine_error):
            encoding = runner.encode(text, add_special_tokens=False)
        if self._may_drop:
            self._check_nothing_dropped(text, encoding)
        return encoding

    def _batch(self, runner: Any, texts: list[str]) -> Any:
        for text in texts:
            base.check_text(text)
        with _answering(self._engine_error):
            return runner.encode_batch_fast(texts, add_special_tokens=False)

    def _engine_error(self, error: BaseException) -> TokenizerError:
        return TokenizerError(
            f"{self.kind} tokenizer: the text cannot be written in its vocabulary ({error}). Use a byte-level tokenizer, "
            "or one with an unknown token"
        )

    def _check_nothing_dropped(self, text: str, encoding: Any) -> None:
        # The library shifts the spans after a character that it drops, so they tell that one is missing, but not which.
        covered = np.zeros(len(text), dtype=bool)
        for start, end in encoding.offsets:
            covered[start:end] = True
        if all(covered[at] or text[at].isspace() for at in range(len(text))):
            return
        lost = (at for at, c in enumerate(text) if not c.isspace() and not self._engine.encode(c).ids)
        if (at := next(lost, None)) is not None:
            raise TokenizerError(
                f"{self.kind} tokenizer: character {at} is {text[at]!r} (U+{ord(text[at]):04X}), which its vocabulary "
                "cannot write and would drop in silence. Leave it out, or use a byte-level tokenizer"
            )

    def _mark(self, role: str, name: str | None) -> int | None:
        if name is None:
            return None
        if name not in self.specials:
            raise TokenizerError(
                f"{self.kind} tokenizer: its {role} token is said to be {quoted(name)}, which is not among its specials: "
                f"{', '.join(sorted(self.specials)) or 'it has none'}"
            )
        return self.specials[name]

    def _ids_if_any(self, name: str) -> Sequence[int]:
        """The ids of a special's name as text; none where the vocabulary cannot write it, so it cannot become one."""
        try:
            with _answering(self._engine_error):
                ids: Sequence[int] = self._engine.encode(name, add_special_tokens=False).ids
                return ids
        except TokenizerError:
            return ()

    def _check_specials_stay_text(self) -> None:
        for name, token_id in self.specials.items():
            if token_id != self.unknown_id and token_id in self._ids_if_any(name):
                raise TokenizerError(
                    f"{self.kind} tokenizer: {quoted(name)} typed in a text would become the special token {token_id}; "
                    "take the special out of the model's own vocabulary, and keep it in added_tokens"
                )


@contextmanager
def _answering(say: Callable[[BaseException], TokenizerError]) -> Iterator[None]:
    """Turns what the library raises into our own words: bare Exceptions, and panics, which are no Exceptions at all."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise say(error) from None


def _open_engine(values: Mapping[str, Any]) -> Any:
    if values["model"].get("dropout"):
        raise TokenizerError(
            f"tokenizer.json: dropout is {values['model']['dropout']}, so one text would have many encodings by chance; "
            "set it to null"
        )
    hidden = _hide_specials(values)
    with _answering(lambda e: TokenizerError(f"tokenizer.json: the tokenizers library does not take it: {e}")):
        made = tokenizers.Tokenizer.from_str(json.dumps(hidden))
    for token in hidden.get("added_tokens", ()):
        if made.token_to_id(token["content"]) != token["id"]:
            raise TokenizerError(
                f"tokenizer.json: added token {quoted(token['content'])} has id {token['id']}, but the tokenizers library "
                f"counts {made.token_to_id(token['content'])}; ids of added tokens follow the vocabulary without a gap"
            )
    made.encode_special_tokens = True
    return made


def _hide_specials(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gives a description in which no text matches a unigram's specials; BPE needs no such help: no merge makes them.

    A unigram finds pieces by their letters, whatever they are for: "</s>" typed in a text would be the special. With a
    space before its name it matches nothing, because these vocabularies write a space as another character.
    """
    model = values["model"]
    steps = [*engine.flatten(values.get("normalizer"), "normalizers")]
    steps += engine.flatten(values.get("pre_tokenizer"), "pretokenizers")
    writes_spaces = any(s["type"] in ("Metaspace", "ByteLevel") or s.get("content") == "\u2581" for s in steps)
    if model["type"] != "Unigram" or not writes_spaces:
        return values
    specials = {token["content"] for token in values.get("added_tokens", ()) if token["special"]}
    inside = specials & {piece for piece, _ in model["vocab"]}
    vocabulary = [[f" {piece}" if piece in inside else piece, score] for piece, score in model["vocab"]]
    kept = [token for token in values.get("added_tokens", ()) if token["content"] not in inside]
    return dict(values) | {"model": model | {"vocab": vocabulary}, "added_tokens": kept}


def _has_start(values: dict[str, Any]) -> bool:
    normalizers = engine.flatten(values.get("normalizer"), "normalizers")
    pre = engine.flatten(values.get("pre_tokenizer"), "pretokenizers")
    return any(
        step["type"] in ("Prepend", "Metaspace") or step.get("add_prefix_space") for step in [*normalizers, *pre]
    )


def _unknown_id(model: Mapping[str, Any], id_of: Mapping[str, int]) -> int | None:
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    return None if name is None else id_of.get(name)
