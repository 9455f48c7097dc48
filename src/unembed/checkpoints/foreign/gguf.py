"""A GGUF file as the source of a model: its keys without the architecture's name, its tensors made when asked for.

Llama 3.1 and later keep their rotary scaling as a tensor of divisors; it goes to the family with the keys, so that none is
dropped. The tokenizer inside the file comes with it. The next file to read is gguf_export.py.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unembed.checkpoints.families.gguf import ARCHITECTURES, HEAD
from unembed.checkpoints.families.gguf_rope import DIVISORS_KEY, FACTORS, OWN_PREFIX
from unembed.checkpoints.foreign.translate import TIE_KEY, Source
from unembed.checkpoints.formats.gguf.read import GgufFile, read_gguf
from unembed.checkpoints.formats.safetensors import short
from unembed.checkpoints.rules.accounting import listed
from unembed.errors import CheckpointError, TokenizerError
from unembed.tokenizers.base import Tokenizer
from unembed.tokenizers.gguf_vocabulary import PREFIX, read_vocabulary

ARCHITECTURE_KEY = "general.architecture"
# Pairs of a head; a longer tensor of divisors is none, and becomes no list of so many numbers.
_MOST_PAIRS = 4096
_ID_KEYS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding", "unk_token_id": "unknown"}
# Keys that describe a file, quantisation and prompting, not the function.
_PASSED_OVER = ("general.", "tokenizer.", "quantize.", "split.")


class Tensors(Mapping[str, Tensor]):
    """The tensors of a file as float32, each dequantised when it is asked for; the rotary divisors are not among them."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._names = [name for name in file.tensors if name != FACTORS]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._file.tensors or name == FACTORS:
            raise KeyError(name)
        return self._file.tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each, which no number is read for."""
        return {name: self._file.tensors[name].shape for name in self._names}


def open_gguf(path: Path) -> Source:
    """The source in a .gguf file, with its tokenizer. Raises: CheckpointError for an architecture that is not known."""
    file = read_gguf(path)
    architecture = file.metadata.get(ARCHITECTURE_KEY)
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{path}: {ARCHITECTURE_KEY} is {str(architecture)[:40]!r}; known are {', '.join(sorted(ARCHITECTURES))}. Ask for "
            "the model as a Hugging Face folder."
        )
    tokenizer, notes = tokenizer_of(file)
    return Source(
        family=ARCHITECTURES[architecture],
        format="gguf",
        config=config_of(file, architecture),
        tensors=Tensors(file),
        where=str(path),
        types={name: tensor.type for name, tensor in file.tensors.items() if name != FACTORS},
        tokenizer=tokenizer,
        notes=notes,
        prompting=prompting_of(file, has_tokenizer=tokenizer is not None),
    )


def config_of(file: GgufFile, architecture: str) -> dict[str, Any]:
    """The architecture's keys without its name, and what the file's tensors say: the tie, the rows, the scaling.

    Raises: CheckpointError for keys of nobody's, which llama.cpp does not look at, and for rotary divisors that are no row.
    """
    prefix = f"{architecture}."
    keys = [key for key in file.metadata if not key.startswith(_PASSED_OVER)]
    config = {key.removeprefix(prefix): file.metadata[key] for key in keys}
    # without its architecture a key would pass for that of the architecture, or for what the tensors say
    made = {prefix + key for key in (DIVISORS_KEY, TIE_KEY)}
    if odd := [key for key in keys if key in made or not key.startswith((prefix, OWN_PREFIX))]:
        raise CheckpointError(
            f"{file.path}: {len(odd)} {'key has' if len(odd) == 1 else 'keys have'} no meaning here: "
            f"{listed([short(key) for key in odd])}. The keys of this architecture begin with {prefix!r}. Ask for the model "
            "as a Hugging Face folder."
        )
    table = file.tensors.get("token_embd.weight")
    if "vocab_size" not in config and table is not None and table.shape:
        config["vocab_size"] = table.shape[0]
    if FACTORS in file.tensors:
        config[DIVISORS_KEY] = _divisors(file)
    config[TIE_KEY] = HEAD not in file.tensors
    return config


def prompting_of(file: GgufFile, *, has_tokenizer: bool) -> dict[str, Any]:
    """The chat template and the ids of padding and the unknown; a tokenizer that was read tells start and end itself."""
    found: dict[str, Any] = {}
    if isinstance(template := file.metadata.get("tokenizer.chat_template"), str):
        found["chat_template"] = template
    for key, role in _ID_KEYS.items():
        token_id = file.metadata.get(f"{PREFIX}{role}_token_id")
        if type(token_id) is int and not (has_tokenizer and role in ("bos", "eos")):
            found[key] = token_id
    return found


def _divisors(file: GgufFile) -> list[float]:
    shape = file.tensors[FACTORS].shape
    if len(shape) != 1 or shape[0] > _MOST_PAIRS:
        raise CheckpointError(
            f"{file.path}: {FACTORS} has shape {list(shape)}, expected one row of divisors, one for each pair of a head "
            f"and at most {_MOST_PAIRS:,}. The file is damaged, or of another architecture."
        )
    numbers: list[float] = file.tensor(FACTORS).double().tolist()
    return numbers


def tokenizer_of(file: GgufFile) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """The tokenizer inside the file, and what there is to say of it; None where it has none, or one that is not read."""
    kind = file.metadata.get("tokenizer.ggml.model", "no_vocab")
    if isinstance(kind, str) and kind == "no_vocab":
        return None, ()
    try:
        return read_vocabulary(file.metadata, where=str(file.path)).tokenizer, ()
    except TokenizerError as error:
        return None, (str(error),)  # the model is whole without it, and --tokenizer gives another
