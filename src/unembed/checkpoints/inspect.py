"""What a file or folder holds, said as far as it can be read: nothing is built, and a broken file is no reason to stop.

Each part (format, config, tensors, tokenizer) is looked at on its own; what fails is a problem in the list and the others
are still told. The next file to read is ../verify/__init__.py, which proves things of a model that loads.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.gguf import tokenizer_of
from unembed.checkpoints.foreign.whole import described_whole
from unembed.checkpoints.formats.gguf.read import is_gguf, read_gguf
from unembed.checkpoints.formats.safetensors import DTYPES, read_header, read_promises
from unembed.checkpoints.load import TOKENIZER, find, open_source
from unembed.checkpoints.rules.ignoring import checked
from unembed.checkpoints.run.description import RUN_FILE
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.intact import why_incomplete
from unembed.checkpoints.run.native import WEIGHTS
from unembed.checkpoints.run.shards import MODEL, wholes
from unembed.errors import TokenizerError, UnembedError
from unembed.model import counts
from unembed.model.presets import PRESETS, preset
from unembed.tokenizers import files as tokenizer_files
from unembed.tokenizers import foreign
from unembed.tokenizers.base import Tokenizer

T = TypeVar("T")
EXAMPLE = "Hello, world! It costs 1234."
OWN_TOKENS = 8  # that an example is made of where the tokenizer lacks letters of that sentence


class Tensor(NamedTuple):
    """One tensor as the file announces it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Inspected(NamedTuple):
    """What was found. `config` is the file's own; `problems` says in sentences what could not be read or is wrong."""

    format: str
    tensors: list[Tensor]
    config: dict[str, Any]
    tokenizer: dict[str, Any] | None
    problems: list[str]


def inspect(model: str | Path, like: str | None = None, ignore_tensors: Sequence[str] = ()) -> Inspected:
    """Looks into anything that may be a MODEL. No error of a file leaves this function; it becomes a problem.

    `ignore_tensors` names tensors that are no problem, as for `load`. Raises: UsageError where they name some of our own.
    """
    path, ignored = Path(model), checked(ignore_tensors)
    if ignored and (str(model) in PRESETS or (path.is_dir() and RunFolder.exists(path))):
        find(model, like=like, ignore_tensors=ignored)
    problems: list[str] = []
    if not path.exists() and str(model) in PRESETS:
        spec = preset(str(model)).spec
        tensors = [Tensor(one.name, "none", one.shape) for one in counts.tensors(spec)]
        return Inspected("preset", tensors, {}, None, [])
    if path.is_dir() and RunFolder.exists(path):
        return _run(path, problems)
    if path.is_dir() and (path / huggingface.CONFIG).is_file():
        return _folder(path, problems, ignored)
    if is_gguf(path):
        return _gguf(path, problems, ignored)
    if path.is_file() and path.suffix == ".safetensors":
        tensors = _header(path, problems)
        config = path.parent / huggingface.CONFIG
        read = (_tried(problems, lambda: huggingface.read_config(config)) or {}) if config.is_file() else {}
        _account(path, problems, ignored)
        return Inspected("safetensors", tensors, read, _tokenizer(path.parent, problems, read), problems)
    if path.is_file() and (alone := _tokenizer_alone(path, problems)) is not None:
        return alone
    source = _tried(problems, lambda: find(path, like=like).source)
    if source is None:
        return Inspected("unknown", [], {}, None, problems)
    held = {name: source.tensors[name] for name in source.tensors}
    tensors = [Tensor(name, str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in held.items()]
    _account(path, problems, ignored, like)
    tokenizer = _tokenizer(path.parent, problems, source.config)
    return Inspected(source.format, tensors, dict(source.config), tokenizer, problems)


def _gguf(path: Path, problems: list[str], ignored: Sequence[str]) -> Inspected:
    file = _tried(problems, lambda: read_gguf(path))
    if file is None:
        return Inspected("gguf", [], {}, None, problems)
    tensors = [Tensor(name, one.type, one.shape) for name, one in file.tensors.items()]
    # a vocabulary is for `tokenize`, not for eyes
    config = {key: value for key, value in file.metadata.items() if isinstance(value, str | bool | int | float)}
    _account(path, problems, ignored)
    tokenizer, notes = tokenizer_of(file)
    problems += notes
    told = _tokenizer(path.parent, problems, {}) if tokenizer is None else _facts(path.name, tokenizer)
    return Inspected("gguf", tensors, config, told, problems)


def _folder(path: Path, problems: list[str], ignored: Sequence[str]) -> Inspected:
    config = _tried(problems, lambda: huggingface.read_config(path / huggingface.CONFIG)) or {}
    files = sorted(path.glob("*.safetensors"))
    tensors = [tensor for file in files for tensor in _tried(problems, partial(_header, file, problems)) or []]
    _account(path, problems, ignored)
    return Inspected("huggingface", tensors, config, _tokenizer(path, problems, config), problems)


def _run(path: Path, problems: list[str]) -> Inspected:
    run = _tried(problems, lambda: RunFolder.open(path))
    config = {} if run is None else run.description
    tensors: list[Tensor] = []
    for folder in sorted((path / "checkpoints").glob("step-*")):
        if (reason := why_incomplete(folder)) is not None:
            problems.append(f"{folder}: {reason}")
        look = partial(_shards, folder) if (folder / MODEL).is_dir() else partial(_header, folder / WEIGHTS, problems)
        tensors = _tried(problems, look) or tensors
    if not tensors:
        problems.append(f"{path}: holds no checkpoint that can be read")
    if not (path / TOKENIZER).is_file():
        problems.append(f"{path}: has no {TOKENIZER} beside {RUN_FILE}")
    return Inspected("run", tensors, config, _tokenizer(path, problems, config), problems)


def _shards(folder: Path) -> list[Tensor]:
    """The tensors of a checkpoint in parts, as they are when these are put together."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    return [Tensor(name, names[one.dtype], one.shape) for name, one in wholes(folder / MODEL).items()]


def _header(file: Path, problems: list[str]) -> list[Tensor]:
    """The tensors that a file announces, also where it does not hold all of them; then what is missing is a problem."""
    promised = _tried(problems, lambda: read_promises(file))
    if promised is None:
        return []
    _tried(problems, lambda: read_header(file))
    return [Tensor(name, info.dtype, info.shape) for name, info in promised.tensors.items()]


def _account(path: Path, problems: list[str], ignored: Sequence[str], like: str | None = None) -> None:
    """What loading would object to, if what was seen so far is no obstacle already."""

    def account() -> None:
        source = open_source(path, like)
        assert source is not None
        described_whole(source._replace(ignored=tuple(ignored)))

    if not problems:
        _tried(problems, account)


def _tokenizer(folder: Path, problems: list[str], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tokenizer that loading finds there; llama2.c's is named for the size of the vocabulary, such as tok512.bin."""
    size = config.get("vocab_size")
    found = foreign.find(folder, size if isinstance(size, int) else None)
    if found is None:
        return None
    read = _tried(problems, lambda: tokenizer_files.load(found))
    if read is None:
        return None
    return _facts(found.name, read)


def _tokenizer_alone(path: Path, problems: list[str]) -> Inspected | None:
    """A tokenizer's own file, with how it splits a text; None for what may be another thing, such as a config.json."""
    is_named_so = path.name.startswith("tok") or path.name in foreign.PAIRED_NAMES
    if not is_named_so and path.suffix not in (".json", ".model"):
        return None
    why: list[str] = []
    read = _tried(why, lambda: tokenizer_files.load(path))
    if read is None and (not is_named_so or path.suffix == ".bin"):
        return None
    problems += why
    facts = None if read is None else _facts(path.name, read) | {"example": _example(read)}
    return Inspected("tokenizer", [], {}, facts, problems)


def _example(tokenizer: Tokenizer) -> dict[str, Any]:
    """A text and its tokens: a sentence, or for an alphabet without its letters some tokens of its own."""
    text = EXAMPLE
    try:
        ids = tokenizer.encode(text).ids
        knows = tokenizer.unknown_id is None or tokenizer.unknown_id not in ids
    except TokenizerError:
        knows = False
    if not knows:
        marks = set(tokenizer.specials.values())
        text = tokenizer.decode([i for i in range(tokenizer.vocab_size) if i not in marks][:OWN_TOKENS])
        ids = tokenizer.encode(text).ids
    return {"text": text, "tokens": [tokenizer.token_text(i) for i in ids]}


def _facts(file: str, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "file": file,
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "specials": dict(tokenizer.specials),
        "start_id": tokenizer.start_id,
        "end_id": tokenizer.end_id,
        "lossless": tokenizer.is_lossless,
    }


def _tried(problems: list[str], look: Callable[[], T]) -> T | None:
    try:
        return look()
    except UnembedError as error:
        if str(error) not in problems:
            problems.append(str(error))
        return None
    except OSError as error:
        problems.append(f"{error.filename or 'a file'}: {error.strerror or error}")
        return None
