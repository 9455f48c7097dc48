"""Tiny random models of our own in the shape of each family's base config, and their files; transformers is not needed."""

import json

import torch
from safetensors.torch import save_file

from unembed.checkpoints.families.base import read_spec
from unembed.checkpoints.foreign.export import config_of
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.model.init import Gpt2Init, build
from unembed.model.spec import with_tying

IDS = torch.arange(4, 40)[None]


def spec_of(parity, *, tied):
    """The spec of the family's base config."""
    plain = json.loads(
        json.dumps({key: v for key, v in parity.changed("base").items() if key != "tie_word_embeddings"})
    )
    family = parity.ours()
    return with_tying(read_spec(family, ConfigReader(plain, family=family.name, where="base")), tied)


def model_of(parity, *, tied, seed=1):
    """A random model whose biases are not 0 and whose gains are not 1."""
    model = build(spec_of(parity, tied=tied), Gpt2Init(std=0.3), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def put(folder, parity, model, *, flag, drop=(), **more):
    """Writes a folder by hand: the tensors of a model with some dropped or added, and a flag that may say something else."""
    family = parity.ours()
    config = config_of(family, model.spec, "float32") | {"tie_word_embeddings": flag}
    (folder / "config.json").write_text(json.dumps({key: v for key, v in config.items() if v is not ...}))
    tensors = to_theirs(family.rules(model.spec), dict(model.named_parameters()))
    kept = {name: tensor.contiguous().clone() for name, tensor in tensors.items() if name not in drop}
    save_file(kept | more, folder / "model.safetensors")
    return folder


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(ids)
