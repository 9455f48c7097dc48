"""What goes along with a tokenizer besides its ids: its own files, the chat template, the ids of padding and the unknown.

A folder's tokenizer files have a form in another folder already, so they are copied byte for byte; whatever crosses from
one format to another goes by name. The next file to read is ../convert.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from unembed.checkpoints.files import write_file
from unembed.checkpoints.foreign.translate import SPECIAL_KEYS, Source
from unembed.errors import CheckpointError
from unembed.model.transformer import Transformer
from unembed.tokenizers import foreign
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.engine import name_in
from unembed.tokenizers.gguf_vocabulary import PREFIX
from unembed.tokenizers.library import unknown_of

LIBRARY, CONFIG, MAP, TEMPLATE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
# Every file that transformers keeps a tokenizer in, for the families that are read here.
FILES = (
    LIBRARY,
    CONFIG,
    MAP,
    TEMPLATE,
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "vocab.txt",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
)
CHAT_TEMPLATE = "chat_template"
GGUF_TEMPLATE = "tokenizer.chat_template"
_ROLES = {"pad_token_id": ("pad_token", "padding"), "unk_token_id": ("unk_token", "unknown")}
_WHAT = {"pad_token_id": "padding", "unk_token_id": "unknown"}


class Carried(NamedTuple):
    """What a source says besides weights and ids.

    files          a tokenizer's own files, in the form of the tokenizers library or as programs before it kept them
    chat_template  how a conversation becomes one text
    ids            pad_token_id and unk_token_id, where they are told
    silent         the keys of a config.json that say there is no such id
    notes          what was found and has no place anywhere
    """

    files: tuple[Path, ...] = ()
    chat_template: str | None = None
    ids: Mapping[str, int] = {}
    silent: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def copy(self, folder: Path) -> set[str]:
        """Copies the files into a folder, byte for byte, and gives their names. Raises: CheckpointError, ResourceError."""
        for path in self.files:
            with path.open("rb") as file:
                chunks = iter(lambda: file.read(1 << 20), b"")
                write_file(
                    folder / path.name, chunks, consequence=f"{path.name} was not written.", kind=CheckpointError
                )
        return {path.name for path in self.files}

    def for_library(self, tokenizer: Tokenizer) -> tuple[dict[str, Any], list[str]]:
        """What a tokenizer_config.json says of it, and what it cannot say."""
        ids, notes = self._specials(tokenizer)
        named = {_ROLES[key][0]: tokenizer.tokens[i] for key, i in ids.items()}
        return named | ({} if self.chat_template is None else {CHAT_TEMPLATE: self.chat_template}), notes

    def for_gguf(self, tokenizer: Tokenizer) -> tuple[dict[str, Any], list[str]]:
        """The keys that a GGUF file has for it, and what it cannot say."""
        ids, notes = self._specials(tokenizer)
        keys = {f"{PREFIX}{_ROLES[key][1]}_token_id": i for key, i in ids.items()}
        return keys | ({} if self.chat_template is None else {GGUF_TEMPLATE: self.chat_template}), notes

    def lost(self, place: str) -> list[str]:
        """What is said where none of it has a place, such as a run folder."""
        return [] if self.chat_template is None else [f"the chat template has no place in {place}, so it was left out"]

    def _specials(self, tokenizer: Tokenizer) -> tuple[dict[str, int], list[str]]:
        # a role makes its token a special: one that is an ordinary word would be split otherwise from then on
        specials = {*tokenizer.specials.values(), unknown_of(tokenizer)}
        held = {key: i for key, i in self.ids.items() if i in specials}
        notes = [
            f"token {i} is the {_WHAT[key]} token and no special of the tokenizer, so that was left out"
            for key, i in self.ids.items()
            if i not in specials
        ]
        return held, [*self.notes, *notes]


NOTHING = Carried()


def special_ids_of(model: Transformer, along: Carried = NOTHING) -> dict[str, Any]:
    """What the model's own config said, and the tokenizer's marks where it said nothing."""
    marks: dict[str, Any] = {}
    if model.tokenizer is not None:
        marks = {"bos_token_id": model.tokenizer.start_id, "eos_token_id": model.tokenizer.end_id}
        marks = {key: token_id for key, token_id in marks.items() if key not in along.silent}
    named = marks | (model.special_ids or {})
    return {name: token_id for name, token_id in named.items() if token_id is not None}


def carried(source: Source | None, path: Path, tokenizer: str | Path | None, model: Transformer) -> Carried:
    """What goes along with the model of `path`: told by the folder of its tokenizer, or by the GGUF file it is in."""
    found = _of_source(source, path, tokenizer, model.tokenizer)
    padding = (model.special_ids or {}).get("pad_token_id")
    if padding is not None and "pad_token_id" not in found.ids:
        found = found._replace(ids={**found.ids, "pad_token_id": padding})
    if source is None or source.format == "gguf":
        return found
    # what generates needs its marks, and a config may forget them; what fills gaps has no use for any
    return found._replace(
        silent=frozenset(
            key
            for key in SPECIAL_KEYS
            if source.config.get(key) is None and (key in source.config or not model.spec.is_causal)
        )
    )


def _of_source(source: Source | None, path: Path, tokenizer: str | Path | None, made: Tokenizer | None) -> Carried:
    if tokenizer is None and source is not None and source.tokenizer is not None:
        ids = {key: source.prompting[key] for key in _ROLES if key in source.prompting}
        return Carried(chat_template=source.prompting.get(CHAT_TEMPLATE), ids=ids)
    if source is None and tokenizer is None:
        return NOTHING
    place = path if tokenizer is None else Path(tokenizer)
    folder = place if place.is_dir() else place.parent
    files = tuple(folder / name for name in FILES if (folder / name).is_file())
    if not _is_tokenizer(files, None if place.is_dir() or tokenizer is None else place):
        return NOTHING
    return _of_folder(folder, files, made)


def _is_tokenizer(files: tuple[Path, ...], named: Path | None) -> bool:
    """Whether another program's tokenizer is in these files, and what was named is one of them."""
    names = {path.name for path in files}
    if named is not None and named.name not in names:
        return False  # a file of another name, beside which lie those of another tokenizer
    if LIBRARY in names:
        library = next(path for path in files if path.name == LIBRARY)
        return "type" not in foreign.read_json(library)  # our own form has a type
    return any(name.endswith((".model", ".txt", ".bpe")) for name in names)


def _of_folder(folder: Path, files: tuple[Path, ...], made: Tokenizer | None) -> Carried:
    config: dict[str, Any] = {}
    for name in (MAP, CONFIG):  # the second says what holds where both say something
        if (folder / name).is_file():
            config |= {key: value for key, value in foreign.read_json(folder / name).items() if value is not None}
    template: Any = config.get(CHAT_TEMPLATE)
    notes: tuple[str, ...] = ()
    if (folder / TEMPLATE).is_file():
        template = (folder / TEMPLATE).read_text(encoding="utf-8", errors="replace")
    if isinstance(template, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.pop("default", None)
        if named:
            notes = (f"{len(named)} more chat templates have no place there, so they were left out",)
    ids: dict[str, int] = {}
    if made is not None:
        for key, (role, _) in _ROLES.items():
            if (token := name_in(config.get(role))) is not None and token in made.tokens:
                ids[key] = made.tokens.index(token)
    return Carried(files, template if isinstance(template, str) else None, ids, notes=notes)
