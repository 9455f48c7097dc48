"""Single files of other programs as sources: nanoGPT's .pt, llama2.c's and microGPT's .bin.

The two kinds of .bin have no mark of their own and are told apart by their sizes, which the numbers at their beginning
must give to the byte. The next file to read is gguf.py.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from unembed.checkpoints.families import llama2c as llama2c_family
from unembed.checkpoints.families import microgpt as microgpt_family
from unembed.checkpoints.families import nanogpt as nanogpt_family
from unembed.checkpoints.foreign.translate import TIE_KEY, Source
from unembed.checkpoints.formats.llama2c import EXCUSED, read_llama2c
from unembed.checkpoints.formats.microgpt import ORDER_NOTE, MicroGptShape, read_count, read_microgpt
from unembed.checkpoints.formats.torch_files import read_torch
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.errors import CheckpointError, TokenizerError, UsageError, did_you_mean
from unembed.model import counts
from unembed.model.presets import PRESETS, preset
from unembed.model.spec import Learned
from unembed.model_names import A_TOKENIZER
from unembed.tokenizers.foreign import load as load_tokenizer

MICROGPT = microgpt_family.FAMILY.name


def open_torch(path: Path) -> Source:
    """The source in a nanoGPT checkpoint. Raises: CheckpointError for another program's .pt; UnsafeError."""
    file = read_torch(path)
    args = file.others.get("model_args")
    if not isinstance(args, dict):
        raise CheckpointError(
            f"{path}: holds weights and no description; expected nanoGPT's `model_args` beside them. For transformers' "
            "pytorch_model.bin name its folder, which has a config.json."
        )
    config = dict(args) | {TIE_KEY: True}
    return Source(nanogpt_family.FAMILY, "nanogpt .pt", config, file.tensors, str(path))


def open_bin(path: Path, like: str | None) -> Source:
    """The source in a .bin file; `like` names the preset whose shape a microGPT file has.

    Raises: CheckpointError, UsageError.
    """
    try:
        file = read_llama2c(path)
    except CheckpointError as no_llama2c:
        try:
            _, count = read_count(path)
        except CheckpointError as no_microgpt:
            if _is_tokenizer(path):
                raise CheckpointError(f"{path}: {A_TOKENIZER}") from None
            raise CheckpointError(f"{no_llama2c}\n{no_microgpt}") from None
        return _microgpt(path, like, count)
    config: dict[str, Any] = {
        name: getattr(file.config, name)
        for name in ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
    }
    # before each layer's tensors are made: a file of a few megabytes may announce a million layers of one number
    ConfigReader(config, family=llama2c_family.FAMILY.name, where=str(path)).layers("n_layers")
    tensors: dict[str, Tensor] = {}
    for name, tensor in file.tensors.items():
        is_stack = name not in ("token_embedding_table", "rms_final_weight", "wcls", *EXCUSED)
        tensors |= {f"{name}.{layer}": part for layer, part in enumerate(tensor)} if is_stack else {name: tensor}
    config[TIE_KEY] = not file.config.is_untied
    return Source(llama2c_family.FAMILY, "llama2.c .bin", config, tensors, str(path))


def _is_tokenizer(path: Path) -> bool:
    try:
        load_tokenizer(path)
    except TokenizerError:
        return False
    return True


def _microgpt(path: Path, like: str | None, count: int) -> Source:
    if like is None:
        fitting = [name for name in PRESETS if counts.count(preset(name).spec).parameters == count]
        known = f"{' or '.join(fitting)} has as many" if fitting else "no preset has as many"
        raise UsageError(
            f"{path}: holds {count:,} weights and does not say of what shape. Give --like PRESET ({known})."
        )
    if like not in PRESETS:
        raise UsageError(
            f"--like {like[:60]}: no preset of that name. {did_you_mean(like, PRESETS, 'See docs/presets.md.')}"
        )
    spec = preset(like).spec
    position, mlp = spec.embedding.position, spec.blocks[0].mlp
    shape = MicroGptShape(
        vocab_size=spec.embedding.vocab_size,
        d_model=spec.embedding.d_model,
        context_length=position.n_rows if isinstance(position, Learned) else spec.context_length,
        n_layers=spec.n_layers,
        d_mlp=mlp.d_mlp,
    )
    file = read_microgpt(path, shape)
    config = {"like": like, TIE_KEY: False}
    return Source(microgpt_family.FAMILY, "microgpt .bin", config, file.tensors, str(path), notes=(ORDER_NOTE,))
