"""A model as one GGUF file for llama.cpp: the architecture's keys, the tokenizer's keys, and the tensors.

Which architecture can say what the spec says is found as for transformers: its keys, read back, must give the spec. Vectors
stay float32 whatever the matrices are, because llama.cpp multiplies by no others. The next file to read is ../convert.py.
"""

from pathlib import Path
from typing import Any

import torch

from unembed.checkpoints.families.base import Family
from unembed.checkpoints.families.gguf import ARCHITECTURES
from unembed.checkpoints.families.gguf_rope import DIVISORS_KEY, FACTORS, OWN_PREFIX
from unembed.checkpoints.foreign.carrying import NOTHING, Carried, special_ids_of
from unembed.checkpoints.foreign.export import in_a_form, why_not
from unembed.checkpoints.foreign.gguf import ARCHITECTURE_KEY
from unembed.checkpoints.formats.gguf.write import write_gguf
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.errors import SpecError
from unembed.model.spec import TransformerSpec
from unembed.model.transformer import Transformer
from unembed.tokenizers.gguf_keys import gguf_keys
from unembed.tokenizers.gguf_vocabulary import PREFIX

_FILE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 32}


def architecture_for(spec: TransformerSpec, *, where: str = "export") -> Family:
    """The architecture whose keys say exactly what the spec says. Raises: SpecError with what each cannot say."""
    why = {name: why_not(family, spec) for name, family in ARCHITECTURES.items()}
    for name, family in ARCHITECTURES.items():
        if why[name] is None:
            return family
    told = "; ".join(f"{name}: {reason}" for name, reason in why.items())
    raise SpecError(
        f"{where}: no GGUF architecture that is written here describes this model exactly: {told}. Write it with --to hf, or "
        "--to native, which says everything."
    )


def write(model: Transformer, path: Path, *, name: str, along: Carried = NOTHING) -> tuple[int, int, list[str]]:
    """Writes the file; gives the numbers of tensors and parameters, and what a user should know.

    Raises: SpecError, CheckpointError.
    """
    model, family, note = in_a_form(model, lambda spec: architecture_for(spec, where=name))
    notes, spec, weights = [note] if note else [], model.spec, dict(model.named_parameters())
    tensors = to_theirs(family.rules(spec), weights)
    tensors = {key: tensor.float() if tensor.ndim == 1 else tensor for key, tensor in tensors.items()}
    keys = family.write(spec)
    if (divisors := keys.pop(DIVISORS_KEY, None)) is not None:
        tensors[FACTORS] = torch.tensor(divisors, dtype=torch.float32)
    metadata: dict[str, Any] = {
        ARCHITECTURE_KEY: family.architecture,
        "general.name": name,
        "general.file_type": _FILE_TYPES.get(model.embed.table.dtype, 0),
        **{key if key.startswith(OWN_PREFIX) else f"{family.architecture}.{key}": keys[key] for key in keys},
    }
    found = None
    if model.tokenizer is None:
        notes.append("no tokenizer is known for this model, so none was written")
    elif (found := gguf_keys(model.tokenizer, spec.embedding.vocab_size)) is None:
        notes.append(f"the {model.tokenizer.kind} tokenizer has no exact form in GGUF, so none was written")
    if model.tokenizer is None or found is None:
        metadata |= {"tokenizer.ggml.model": "no_vocab", **_ids(model)}
        notes += along.lost("a GGUF file without a tokenizer")
    else:
        more, unsaid = along.for_gguf(model.tokenizer)
        metadata |= more | found
        notes += unsaid
    write_gguf(path, metadata, tensors)
    return len(tensors), sum(tensor.numel() for tensor in weights.values()), notes


def _ids(model: Transformer) -> dict[str, int]:
    """The ids of start, end and padding, which a model has also where its tokenizer could not be written."""
    ids = special_ids_of(model)
    roles = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    single = {key: value[0] if isinstance(value, list) and value else value for key, value in ids.items()}
    return {f"{PREFIX}{role}_token_id": single[key] for key, role in roles.items() if single.get(key) is not None}
